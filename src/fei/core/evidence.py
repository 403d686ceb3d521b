"""Is there anything in the picture that speaks for the class? What the masks keep of its score, against chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fei.core.randomness import generator_for
from fei.references import smooth_noise

LEAST = 0.1  # of the score, beyond what random masks keep
SEEN = 0.05  # a score on the whole image from which on a class counts as seen by the network
_DRAWS = 2  # of random masks


@dataclass(frozen=True)
class Evidence:
    """What is left of a class's score when only the pixels of a mask are shown, over references not optimised with.

    Attributes:
        kept: φ with each mask, cut to its largest values by its own area, (N, masks).
        chance: φ with smooth random masks of the same area.
        whole: φ on the whole image, (N,).
    """

    kept: Tensor
    chance: Tensor
    whole: Tensor

    @property
    def gain(self) -> Tensor:
        """The most that a mask keeps beyond chance, (N,)."""
        return (self.kept - self.chance).amax(1)

    @property
    def found(self) -> Tensor:
        """Whether something in the image speaks for the class, (N,).

        A mask keeps at least .1 beyond chance; or the network gives the class at least .05 on the whole image and a
        mask keeps half of that. Where several classes share what speaks for them, as kinds of cats do, masks may move
        the score from one to the other, and random masks do as well.
        """
        seen = (self.whole >= SEEN) & (self.kept.amax(1) >= self.whole / 2)
        return (self.gain >= LEAST) | seen


def silence(label: str, probability: float | None = None) -> str:
    """What is said where nothing was found."""
    return f"nothing in this picture speaks for '{label}'" + ("" if probability is None else f" ({probability:.1%})")


def presence(kept: Sequence[float], chance: Sequence[float], areas: Sequence[float], whole: float) -> str:
    """What is said where something was found: of the mask that keeps the most beyond chance.

    Args:
        kept: φ with each mask of one image.
        chance: φ with random masks of the same area.
        areas: The shares of the pixels that the masks show.
        whole: φ on the whole image.
    """
    best = max(range(len(kept)), key=lambda mask: kept[mask] - chance[mask])
    told = f"{areas[best]:.0%} of the pixels keep {kept[best]:.2f} of its score {whole:.2f}"
    return f"{told} (random masks: {chance[best]:.2f})"


@torch.no_grad()
def measure_evidence(
    score: Callable[[Tensor, Tensor], Tensor],
    images: Tensor,
    alphas: Tensor,
    fills: list[Tensor],
    digests: list[str],
    seed: int,
    rows: int,
) -> Evidence:
    """See what masks keep.

    Args:
        score: φ of rows, given what the network is to see and which image each row belongs to.
        images: (N, C, H, W).
        alphas: Their masks, (N, masks, channels, H, W).
        fills: What replaces pixels, each broadcastable to the images.
        digests: Of the images, for random masks of their own.
        seed: Of the random masks.
        rows: How many go through the network at a time.
    """
    masks = alphas.mean(2)
    pixels = masks.shape[2] * masks.shape[3]
    counts = (masks.flatten(2).double().mean(-1) * pixels).round().long().clamp(1, pixels)
    kept, chance, whole = [], [], []
    for number, image in enumerate(images):
        generators = [generator_for(seed, digests[number], f"evidence/{draw}") for draw in range(_DRAWS)]
        draws = [smooth_noise(masks.shape[2:], generator).to(masks) for generator in generators]
        shuffle = torch.randperm(pixels, generator=generator_for(seed, digests[number], "evidence")).to(masks.device)
        own = [_largest(mask, int(count), shuffle) for mask, count in zip(masks[number], counts[number], strict=True)]
        random = [_largest(draw, int(count), shuffle) for draw in draws for count in counts[number]]
        shown = torch.stack([*own, *random])[:, None]
        phi = torch.stack(
            [_scored(score, torch.where(shown, image, fill[number]), number, rows) for fill in fills]
        ).mean(0)
        kept.append(phi[: len(own)])
        chance.append(phi[len(own) :].view(_DRAWS, -1).mean(0))
        whole.append(_scored(score, image[None], number, rows))
    return Evidence(torch.stack(kept), torch.stack(chance), torch.cat(whole))


def _scored(score: Callable[[Tensor, Tensor], Tensor], batch: Tensor, number: int, rows: int) -> Tensor:
    parts = [score(part, torch.full((len(part),), number, device=part.device)) for part in batch.split(rows)]
    return torch.cat(parts).double()


def _largest(values: Tensor, count: int, shuffle: Tensor) -> Tensor:
    """Which pixels have the `count` largest values; of equal ones, those that come first in a shuffle."""
    flat = values.flatten()
    order = shuffle[flat[shuffle].argsort(descending=True, stable=True)]
    chosen = torch.zeros_like(flat, dtype=torch.bool)
    chosen[order[:count]] = True
    return chosen.view(values.shape)
