"""The trials of the black-image test: a black image, and for each number a class and a colour to ask about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fei.core.checks import explained_failure
from fei.core.randomness import generator_for
from fei.core.scoring import check_target, class_indices, logits_of
from fei.errors import InputError, ModelError

_NEAR_BLACK = 1 / 255  # one level of an 8-bit image
_ATTEMPTS = 100


@dataclass(frozen=True)
class Trial:
    """One trial: its number, the target class, R, and how many draws were thrown away before."""

    number: int
    target: int
    reference: Tensor
    redrawn: int


class Trials:
    """What the caller gave, and what is drawn for each number.

    Args:
        model: The classifier.
        black: x, (C, H, W), or ``None`` where the model says what is black.
        targets: A class, one per trial, or ``None`` to draw them.
        references: One R, one per trial, or ``None`` to draw colours.
        count: How many trials.
        seed: Of the draws; each depends on it and on the trial's number alone.

    Attributes:
        x: The black image, where the model is and in its precision.
        in_black: The probability of each class on it.
    """

    def __init__(
        self,
        model: nn.Module,
        black: Tensor | None,
        targets: int | Sequence[int] | Tensor | None,
        references: Tensor | None,
        count: int,
        seed: int,
    ) -> None:
        self._model, self._count, self._seed = model, count, seed
        self.x = _black(model, black)
        self._colours = _pixel_range(model) if references is None else _checked_references(references, self.x, count)
        self.in_black = self._logits(self.x).softmax(1)[0]
        self._top = int(self.in_black.argmax())
        if len(self.in_black) < 2:
            raise InputError("The black-image test needs at least two classes; this network has a single logit.")
        if targets is not None:
            given = class_indices(targets, "`targets` must be a class index, or one per trial").numel()
            if given not in {1, count}:
                raise InputError(
                    f"`targets` has {given} entries for {count} trial(s); give one for each, or one for all."
                )
        self._targets = check_target(targets, count, len(self.in_black))

    def draw(self) -> list[Trial]:
        """The trials, without those in which the network sees the target in x or R and that cannot be redrawn."""
        drawn = [trial for number in range(self._count) if (trial := self._trial(number)) is not None]
        if not drawn:
            raise InputError(
                "No trial is left: in each of them the network sees the target in the black image or in the reference; "
                "give other targets or references."
            )
        return drawn

    def _trial(self, number: int) -> Trial | None:
        """The first draw in which the network sees the target neither in x nor in R."""
        fixed = self._targets is not None and isinstance(self._colours, Tensor)
        for attempt in range(1 if fixed else _ATTEMPTS):
            target, reference = self._target(number, attempt), self._reference(number, attempt)
            if target == self._top or _is_black(reference, self.x):
                continue
            if int(self._logits(reference.expand_as(self.x)).argmax()) != target:
                return Trial(number, target, reference, attempt)
        return None

    def _target(self, number: int, attempt: int) -> int:
        if self._targets is not None:
            return int(self._targets[number])
        generator = generator_for(self._seed, "black image", f"target {number}/{attempt}")
        return int(torch.randint(len(self.in_black), (), generator=generator))

    def _reference(self, number: int, attempt: int) -> Tensor:
        if isinstance(self._colours, Tensor):
            return self._colours[number]
        low, high = self._colours
        generator = generator_for(self._seed, "black image", f"colour {number}/{attempt}")
        return low + (high - low) * torch.rand(len(self.x), 1, 1, generator=generator).to(self.x)

    @torch.no_grad()
    def _logits(self, image: Tensor) -> Tensor:
        # one image per pass: a prediction must not depend on what else is drawn
        with explained_failure(image[None]):
            output = self._model(image[None])
        return finite(logits_of(output, 1))


def finite(logits: Tensor) -> Tensor:
    """Logits, if they are numbers."""
    if not logits.isfinite().all():
        raise ModelError("The model's output holds NaN or infinite values; check its weights and its input range.")
    return logits


def _pixel_range(model: nn.Module) -> tuple[float, float]:
    known: tuple[float, float] | None = getattr(model, "pixel_range", None)
    if known is None:
        raise InputError(
            "The colours of this network's input space are not known; wrap it in fei.models.Classifier, or give "
            "`references`, shape (trials, C, 1, 1)."
        )
    return known


def _black(model: nn.Module, black: Tensor | None) -> Tensor:
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    if black is None:
        known, side = getattr(model, "pixel_range", None), getattr(model, "input_size", None)
        if known is None or side is None:
            raise InputError(
                "What is black to this network is not known; wrap it in fei.models.Classifier, or give `black`, shape "
                "(C, H, W), and `references`."
            )
        return like.new_full((3, side, side), known[0], requires_grad=False)
    if not isinstance(black, Tensor) or black.ndim != 3 or not black.numel():
        got = tuple(black.shape) if isinstance(black, Tensor) else type(black).__name__
        raise InputError(f"`black` must be a tensor of one image (C, H, W); got {got}.")
    if not black.isfinite().all():
        raise InputError("`black` holds NaN or infinite values; replace them before the call.")
    return black.detach().to(like).clone()


def _checked_references(references: Tensor, x: Tensor, count: int) -> Tensor:
    """One R per trial."""
    wanted = f"(1 or {count}, {x.shape[0]}, 1 or {x.shape[1]}, 1 or {x.shape[2]})"
    if not isinstance(references, Tensor):
        raise InputError(f"`references` must be a tensor of shape {wanted}; got {type(references).__name__}.")
    rows, *shape = references.shape or (0,)
    if references.ndim != 4 or rows not in {1, count} or shape[0] != len(x) or not _broadcasts(shape, x):
        raise InputError(f"`references` must have the shape {wanted}; got {tuple(references.shape)}.")
    if not references.isfinite().all():
        raise InputError("`references` holds NaN or infinite values; replace them before the call.")
    values = references.detach().to(x)
    for number, reference in enumerate(values):
        if _is_black(reference, x):
            raise InputError(
                f"Reference {number} is as black as the image, and then every method passes; give another colour."
            )
    return values.expand(count, -1, -1, -1)


def _broadcasts(shape: Sequence[int], x: Tensor) -> bool:
    return all(given in {1, wanted} for given, wanted in zip(shape, x.shape, strict=True))


def _is_black(reference: Tensor, x: Tensor) -> bool:
    return bool((reference - x).abs().max() <= _NEAR_BLACK)
