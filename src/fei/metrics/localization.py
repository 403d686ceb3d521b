"""Does a map point at the object? The pointing game, by its maximum and by its energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fei.core.checks import check_size
from fei.errors import InputError
from fei.metrics._maps import check_map_batch
from fei.metrics.declaration import Metric, Need, Subject

Box = Sequence[float] | Tensor
Objects = Tensor | Sequence[Box | Sequence[Box]]
_AT_ONCE, _EXACT = 4096, "donot_use_mm_for_euclid_dist"


def pointing_game(maps: Tensor, objects: Objects, tolerance: float = 15) -> Tensor:
    """1 where the maximum of a map is at most `tolerance` pixels (Euclidean) from the object, else 0.

    Zhang et al., "Top-down neural attention by excitation backprop", IJCV 2018, section 4.1; their tolerance is 15
    pixels on images of about 224. The mean over images is the published accuracy. Where several pixels share the
    maximum, the score is the share of them that hit, which is what a maximum drawn among them would score on average;
    a constant map scores the share of the image that the object and its surroundings take.

    Args:
        maps: Attribution maps (N, 1, H, W).
        objects: Where the object is. Boolean masks (N, H, W); or for each image one box (x0, y0, x1, y1), or several
            of them, in pixels from the top left corner. A box covers the pixels whose centre lies in it: with whole
            numbers the columns x0 … x1 − 1, so annotations that count the last pixel in need x1 + 1 and y1 + 1. What
            reaches over the edge of the image is cut off.
        tolerance: Largest distance in pixels between the maximum and the nearest pixel of the object.

    Returns:
        A share for each image, (N,); 0 or 1 where the maximum is one pixel.

    Examples:
        >>> point = torch.zeros(1, 1, 8, 8)
        >>> point[0, 0, 2, 3] = 1
        >>> fei.metrics.pointing_game(point, [(3, 2, 5, 4)], tolerance=0).tolist()
        [1.0]
    """
    m = check_map_batch(maps)
    check_size("tolerance", tolerance)
    shares = []
    for values, mask in zip(m, _object_masks(objects, m), strict=True):
        peaks = (values == values.max()).nonzero().double()
        border = _border(mask).nonzero().double()
        inside = mask[peaks[:, 0].long(), peaks[:, 1].long()]
        # a few peaks at a time: a constant map has as many as pixels
        nearest = torch.cat([torch.cdist(some, border, compute_mode=_EXACT).amin(1) for some in peaks.split(_AT_ONCE)])
        shares.append((inside | (nearest <= float(tolerance))).double().mean())
    return torch.stack(shares)


def energy_pointing_game(maps: Tensor, objects: Objects) -> Tensor:
    """The share of a map's positive energy inside the object: Σ_object max(M, 0) / Σ max(M, 0).

    Wang et al., "Score-CAM", CVPR Workshops 2020, section 4.3. Negative values, which speak against the class, do not
    count. A map without positive energy scores 0.

    Args:
        maps: Attribution maps (N, 1, H, W).
        objects: As for `pointing_game`.

    Returns:
        Shares in [0, 1], (N,).

    Examples:
        >>> fei.metrics.energy_pointing_game(torch.ones(1, 1, 8, 8), [(0, 0, 4, 8)]).tolist()
        [0.5]
    """
    m = check_map_batch(maps)
    # scaled by the maximum, which cancels: the sum of very large or very small values stays finite and above zero
    largest = m.amax((1, 2), keepdim=True).clamp(min=0)
    energy = torch.where(largest > 0, m.clamp(min=0) / largest, 0.0)
    inside = (energy * _object_masks(objects, m)).sum((1, 2))
    return torch.where(largest[:, 0, 0] > 0, inside / energy.sum((1, 2)), 0.0)


def _border(mask: Tensor) -> Tensor:
    """The pixels of an object that are not surrounded by it: the nearest ones from outside."""
    padded = F.pad(mask, (1, 1, 1, 1))
    within = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return mask & ~within


def _object_masks(objects: Objects, maps: Tensor) -> Tensor:
    if isinstance(objects, Tensor) and objects.dtype == torch.bool:
        masks = objects[:, 0] if objects.ndim == 4 and objects.shape[1] == 1 else objects
        if masks.shape != maps.shape:
            raise InputError(
                f"The masks have shape {tuple(objects.shape)}; expected {tuple(maps.shape)}, the shape of the maps."
            )
        empty = (~masks.flatten(1).any(1)).nonzero()
        if len(empty):
            raise InputError(f"The mask of image {empty[0].item()} is empty; leave out images without an object.")
        return masks.cpu()
    if not isinstance(objects, (Tensor, Sequence)) or isinstance(objects, str) or len(objects) != len(maps):
        raise InputError(
            f"`objects` must be boolean masks (N, H, W), or one entry of boxes (x0, y0, x1, y1) for each of the "
            f"{len(maps)} map(s); got {_described(objects)}."
        )
    return torch.stack([_boxes_mask(boxes, index, maps.shape[1:]) for index, boxes in enumerate(objects)])


def _boxes_mask(boxes: Any, index: int, size: torch.Size) -> Tensor:
    try:
        corners = torch.as_tensor(boxes, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError):
        corners = torch.empty(0)
    corners = corners[None] if corners.ndim == 1 else corners
    if corners.ndim != 2 or corners.shape[1] != 4 or not len(corners) or not corners.isfinite().all():
        raise InputError(
            f"The object of image {index} is {boxes!r}; give one box (x0, y0, x1, y1) or a list of them, all finite."
        )
    x0, y0, x1, y1 = corners[:, :, None].unbind(1)
    x, y = (torch.arange(length, dtype=torch.float64) + 0.5 for length in (size[1], size[0]))
    each = ((y0 <= y) & (y < y1))[:, :, None] & ((x0 <= x) & (x < x1))[:, None, :]
    empty = (~each.flatten(1).any(1)).nonzero()
    if len(empty):
        raise InputError(
            f"The box {corners[empty[0, 0]].tolist()} of image {index} covers no pixel of its map, which is {size[1]} "
            f"wide and {size[0]} high; give (x0, y0, x1, y1) in pixels of the map, with x0 < x1 and y0 < y1."
        )
    return each.any(0)


def _described(objects: Any) -> str:
    if isinstance(objects, Tensor):
        return f"a {objects.dtype} tensor of shape {tuple(objects.shape)}"
    return f"{len(objects)} entries" if isinstance(objects, (list, tuple)) else type(objects).__name__


def _play(game: Callable[[Tensor, Objects], Tensor]) -> Callable[[Subject], Tensor | None]:
    """None for an image without an object to point at, or with one that was cut off with the border."""
    return lambda subject: game(subject.maps, [subject.boxes]) if subject.boxes else None


_BOX: tuple[Need, ...] = ("boxes",)
METRICS = (
    Metric("pointing_game", "pointing game", True, "localization", _play(pointing_game), _BOX, "pointing", version=2),
    Metric("energy_pointing_game", "energy in box", True, "localization", _play(energy_pointing_game), _BOX, "energy"),
)
