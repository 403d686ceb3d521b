"""Where tokens lie in the image: the grid of patches that a sequence of tokens, or a map, stands for.

    grid = grid_of(flow, call)          # None where the value of this call forms no grid
    maps = grid.to_map(values)          # (N, T, C), (N, h, w, C) or (N, C, h, w) to (N, C, h, w)
    values = grid.from_map(maps, fill)  # and back; tokens that are no patches (class, registers, …) get `fill`

The sides of the grid are those of a map that the tokens were made from, as the patch embedding is a convolution, or of
a map with channels last (N, h, w, C) on the way. Tokens that are no patches are found where they are joined to the
patches (`torch.cat`), first, last or in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from fei.core.dataflow import CONVOLUTIONS, Call, Flow, Value

_JOINS = frozenset({"cat", "concat", "concatenate"})


@dataclass(frozen=True)
class Grid:
    """The places of a value (N, places and channels in some order) in the image.

    Attributes:
        height: Rows of places.
        width: Columns of places.
        layout: "map" for (N, C, h, w), "last" for (N, h, w, C), "tokens" for (N, T, C).
        first: Of tokens, the number of the first patch.
        tokens: T, patches and others.
    """

    height: int
    width: int
    layout: str = "map"
    first: int = 0
    tokens: int = 0

    @property
    def patches(self) -> slice:
        """The tokens that are patches."""
        return slice(self.first, self.first + self.height * self.width)

    @property
    def class_token(self) -> int | None:
        """The number of the class token, the first token that is no patch; ``None`` where all are."""
        if self.tokens <= self.height * self.width:
            return None
        return 0 if self.first else self.patches.stop

    def to_map(self, values: Tensor) -> Tensor:
        """Values as a map (N, C, h, w), without the tokens that are no patches."""
        if self.layout == "map":
            return values
        if self.layout == "tokens":
            values = values[:, self.patches].unflatten(1, (self.height, self.width))
        return values.permute(0, 3, 1, 2)

    def from_map(self, maps: Tensor, fill: float = 0.0) -> Tensor:
        """A map (N, C, h, w) in the layout of the values; tokens that are no patches get `fill`."""
        if self.layout == "map":
            return maps
        values = maps.permute(0, 2, 3, 1)
        if self.layout == "last":
            return values
        all_tokens = maps.new_full((len(maps), self.tokens, maps.shape[1]), fill)
        all_tokens[:, self.patches] = values.flatten(1, 2)
        return all_tokens


def grid_of(flow: Flow, call: Call) -> Grid | None:
    """The grid that the value of a call forms, or ``None`` where it forms none that is known.

    Args:
        flow: The data flow of a network on images (N, C, H, W).
        call: A call in it whose value is (N, T, C), (N, h, w, C) or (N, C, h, w).
    """
    shape = call.shape
    if shape is None or not call.depends or shape[0] != flow.rows:
        return None
    before = list(ancestors(flow, call))
    height, width = next((c.shape[-2:] for c in before if c.function == "image" and c.shape), (0, 0))
    ratio = height / max(width, 1)
    if len(shape) == 4:
        if _fits(shape[2], shape[3], ratio):
            return Grid(shape[2], shape[3])
        return Grid(shape[1], shape[2], "last") if _fits(shape[1], shape[2], ratio) else None
    if len(shape) != 3:
        return None
    for sides in dict.fromkeys(_sides(before, ratio)):
        first = _first_patch(before, math.prod(sides), shape[1])
        if first is not None:
            return Grid(*sides, "tokens", first, shape[1])
    return None


def token_grid(flow: Flow, call: Call) -> Grid | None:
    """The grid of a value (N, T, C); ``None`` for anything else."""
    grid = grid_of(flow, call) if call.shape is not None and len(call.shape) == 3 else None
    return grid if grid is not None and grid.layout == "tokens" else None


def ancestors(flow: Flow, call: Call) -> Iterator[Call]:
    """A call and all that its value was made from, the latest first; the image is the last."""
    found, waiting = {id(call): call}, [call]
    while waiting:
        for source in waiting.pop().inputs:
            if id(source) not in found:
                found[id(source)] = source
                waiting.append(source)
    for known in reversed(flow.calls):
        if found.pop(id(known), None) is not None:
            yield known
    yield from found.values()


def _sides(before: list[Call], ratio: float) -> Iterator[tuple[int, int]]:
    """Sides of the maps that tokens may have been made from, the latest first."""
    for call in before:
        if call.shape is None or len(call.shape) != 4 or not call.depends:
            continue
        if call.function in CONVOLUTIONS:
            yield call.shape[2], call.shape[3]
        elif _fits(call.shape[1], call.shape[2], ratio):
            yield call.shape[1], call.shape[2]


def _first_patch(before: list[Call], patches: int, tokens: int) -> int | None:
    """The number of the first patch among the tokens, or ``None`` where the patches are not among them."""
    if patches == tokens:
        return 0
    for call in before:
        if call.function not in _JOINS or call.shape is None or len(call.shape) != 3 or call.shape[1] != tokens:
            continue
        parts = [part for part in (call.args or tuple(call.kwargs.values()))[0] if isinstance(part, Value)]
        lengths = [part.shape[1] if len(part.shape) == 3 else 0 for part in parts]
        if patches in lengths and sum(lengths) == tokens:
            return sum(lengths[: lengths.index(patches)])
    return None


def _fits(height: int, width: int, ratio: float) -> bool:
    """Whether sides are the image's, divided by one number and rounded."""
    if min(height, width) < 2 or ratio == 0:
        return False
    if ratio == 1:
        return height == width
    return (height - 1) / (width + 1) < ratio < (height + 1) / (width - 1)
