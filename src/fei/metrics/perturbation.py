"""The perturbed images behind every curve: ranks, replacements, and batched forwards over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fei.core.dropping import Sequencing
from fei.core.folding import Folding
from fei.core.randomness import image_digest
from fei.errors import InputError
from fei.metrics._maps import check_real
from fei.protocols import Averaged, LeftOut, Protocol
from fei.references import References, ReferenceSpec, normalised_zero


def check_maps(maps: Tensor, inputs: Tensor) -> Tensor:
    """Maps (N, H, W) in single or double precision for images (N, C, H, W); a channel dimension of 1 is dropped."""
    check_real(maps, "maps")
    shape = (len(inputs), *inputs.shape[2:])
    flat = maps[:, 0] if maps.ndim == 4 and maps.shape[1] == 1 else maps
    if flat.shape != shape:
        raise InputError(
            f"`maps` has shape {tuple(maps.shape)}; expected ({shape[0]}, 1, {shape[1]}, {shape[2]}) for inputs of "
            f"shape {tuple(inputs.shape)}; upsample or reduce the maps first."
        )
    flat = flat.detach() if flat.dtype in (torch.float32, torch.float64) else flat.detach().double()
    if not flat.isfinite().all():
        raise InputError("`maps` holds NaN or infinite values; a map must rank every pixel.")
    return flat.to(inputs.device)


def tie_fraction(maps: Tensor) -> Tensor:
    """For each map (N, H, W), the share of pixels whose value another pixel has too: 1 for a constant map."""
    values = maps.flatten(1).sort(1).values
    same = values[:, 1:] == values[:, :-1]
    edge = torch.zeros_like(same[:, :1])
    return (torch.cat([same, edge], 1) | torch.cat([edge, same], 1)).double().mean(1)


@dataclass(frozen=True)
class PerturbedRow:
    """One perturbed image: which image, which curve, which point of it, and with which of several replacements."""

    image: int
    curve: str
    point: int
    fill: int


class Perturbations:
    """The perturbed images of a batch under a protocol.

    Args:
        protocol: How pixels are ordered, counted and replaced.
        model: The network; says what its input space is.
        inputs: Images (N, C, H, W).
        maps: Their maps (N, H, W).
        reference: R, where the protocol leaves it to the call.
        seed: Of R and of the order of ties.
        curves: "insertion", "deletion" or both.
    """

    def __init__(
        self,
        protocol: Protocol,
        model: nn.Module,
        inputs: Tensor,
        maps: Tensor,
        reference: ReferenceSpec,
        seed: int,
        curves: Sequence[str],
    ) -> None:
        self._inputs = inputs
        self._tokens = Sequencing.of(model, inputs[:1]) if protocol.drops_tokens else None
        if self._tokens is not None:
            maps = self._tokens.means(maps)
        digests = [image_digest(image) for image in inputs]
        channels = inputs.shape[1]
        self.total = maps[0].numel() * (channels if protocol.per_value else 1)
        per_curve = dict(zip(("insertion", "deletion"), protocol.levels(self.total, inputs.shape[3]), strict=True))
        self.counts = {curve: per_curve[curve] for curve in curves}
        self._ranks = torch.stack(
            [_ranks(protocol.order(m.flatten(), d, seed, channels)) for m, d in zip(maps, digests, strict=True)]
        )
        self._shape = inputs.shape[1:] if protocol.per_value else (1, *inputs.shape[2:])
        self._fills = self._replacements(protocol, model, reference, digests, seed)

    @property
    def reference(self) -> dict[str, Tensor]:
        """What replaces pixels in each curve; the first of several."""
        return self._fills[0]

    @property
    def fills(self) -> int:
        """How many replacements each point is the mean over."""
        return len(self._fills)

    def fractions(self, curve: str) -> Tensor:
        """The share of values replaced at each point."""
        return torch.tensor(self.counts[curve], dtype=torch.float64) / self.total

    @property
    def shares_end(self) -> bool:
        """Whether both curves hold the image in which everything is replaced, by the same."""
        return len(self.counts) == 2 and self._same and all(self.total in counts for counts in self.counts.values())

    def rows(self, image: int) -> list[PerturbedRow]:
        """The perturbed images that have to pass the network: not the original, and a shared end only once.

        Where tokens are dropped, those of one length follow one another.
        """
        found = [
            PerturbedRow(image, curve, point, fill)
            for curve, counts in self.counts.items()
            for fill in range(self.fills)
            for point, n in enumerate(counts)
            if n > 0 and not (self.shares_end and curve == "deletion" and n == self.total)
        ]
        return found if self._tokens is None else sorted(found, key=self._replaced)

    def batches(self, rows: Sequence[PerturbedRow], size: int) -> Iterator[list[PerturbedRow]]:
        """Rows that can pass the network together, at most `size` of them: sequences in a batch have one length."""
        first = 0
        for place in range(1, len(rows) + 1):
            longer = place < len(rows) and place - first < size
            if longer and (self._tokens is None or self._replaced(rows[place]) == self._replaced(rows[first])):
                continue
            yield list(rows[first:place])
            first = place

    def _replaced(self, row: PerturbedRow) -> int:
        return self.counts[row.curve][row.point]

    def make(self, rows: Sequence[PerturbedRow]) -> Tensor:
        """The perturbed images of some rows; where tokens are dropped, the images as they are, see `folding`."""
        index = torch.tensor([row.image for row in rows], device=self._inputs.device)
        x = self._inputs[index]
        if self._tokens is not None:
            return x
        fill = torch.stack([self._fills[row.fill][row.curve][row.image] for row in rows])
        return torch.where(self.replaced(rows).view(-1, *self._shape), fill, x)

    def folding(self, rows: Sequence[PerturbedRow]) -> Folding | None:
        """What is exchanged in the pass of a batch of rows, so that tokens are dropped."""
        if self._tokens is None:
            return None
        kept = ~self.replaced(rows)
        return self._tokens.keeping(kept.nonzero()[:, 1].view(len(rows), -1))

    def kept_pixels(self, rows: Sequence[PerturbedRow]) -> Tensor:
        """What share of each pixel of some rows is kept, (rows, H, W): 0 or 1 unless single values are replaced."""
        return (~self.replaced(rows)).view(len(rows), *self._shape).float().mean(1)

    def replaced(self, rows: Sequence[PerturbedRow]) -> Tensor:
        """Which values, pixels or patches of some rows are replaced, (rows, total)."""
        device = self._inputs.device
        index = torch.tensor([row.image for row in rows], device=device)
        # deletion replaces ranks below n; insertion, which replaces the bottom n, ranks from total − n on
        edges = torch.tensor(
            [n if row.curve == "deletion" else self.total - n for row in rows for n in [self._replaced(row)]],
            device=device,
        )
        deletes = torch.tensor([row.curve == "deletion" for row in rows], device=device)
        return (self._ranks[index] < edges[:, None]) == deletes[:, None]

    def _replacements(
        self, protocol: Protocol, model: nn.Module, reference: ReferenceSpec, digests: list[str], seed: int
    ) -> list[dict[str, Tensor]]:
        spec = protocol.replacement
        if isinstance(spec, tuple | Averaged | LeftOut) and reference is not None:
            raise InputError(f"Protocol {protocol.id} fixes what replaces pixels; leave `reference` out.")
        if isinstance(spec, LeftOut):  # only to be looked at: nothing is painted
            self._same = True
            return [dict.fromkeys(self.counts, normalised_zero(self._inputs, model))]
        if isinstance(spec, Averaged):
            self._same = True
            return [dict.fromkeys(self.counts, make(self._inputs, model)) for make in spec.makers]
        if isinstance(spec, tuple):
            makers = dict(zip(("insertion", "deletion"), spec, strict=True))
            self._same = spec[0] is spec[1]
            return [{curve: makers[curve](self._inputs, model) for curve in self.counts}]
        self._same = True
        chosen = reference if spec == "reference" else spec
        values = References(chosen, self._inputs, digests, model, seed).values.expand_as(self._inputs)
        return [dict.fromkeys(self.counts, values)]


def _ranks(order: Tensor) -> Tensor:
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
