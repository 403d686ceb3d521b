"""Where the features of a layer lie in the image."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fei.core.dataflow import Flow
from fei.core.sites import Site
from fei.core.tokens import Grid, grid_of
from fei.errors import ModelError


def is_plain_map(values: Tensor, images: Tensor) -> bool:
    """Whether values are a map (N, C, h, w) beyond doubt, and no map with channels last."""
    if values.ndim != 4:
        return False
    _, second, height, width = values.shape
    tall, wide = images.shape[2:]
    # a row or column more or less: not all networks pad
    like = abs(height * wide - width * tall) <= max(tall, wide)
    last = abs(second * wide - height * tall) <= max(tall, wide)
    return like or not last


def places_at(flow: Flow, site: Site) -> Grid | None:
    """The grid that the value at a site forms."""
    call = next(call for call in flow.calls if call.key == site.key)
    grid = grid_of(flow, call)
    # a map whose sides are not the image's is one all the same
    return Grid(*call.shape[2:]) if grid is None and call.shape is not None and len(call.shape) == 4 else grid


def no_places(layer: str, got: str, known: Sequence[str]) -> ModelError:
    """What is said of a layer that holds no map; `known` are layers that hold one."""
    hint = f"name another, such as {', '.join(known)}" if known else "name another"
    return ModelError(
        f"The layer {layer!r} gives {got}; a CAM needs feature maps (N, C, h, w) or tokens that form a grid, {hint}."
    )
