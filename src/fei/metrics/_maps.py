"""Batches of maps on their own, without the images they belong to: checked at the door, and ranked."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fei.common.packages import need
from fei.errors import InputError


def check_real(maps: Any, name: str) -> None:
    """Refuse what is no dense tensor of real numbers."""
    if not isinstance(maps, Tensor):
        raise InputError(f"`{name}` must be a tensor (N, 1, H, W); got {type(maps).__name__}.")
    if maps.is_complex() or maps.is_nested or maps.layout is not torch.strided:
        raise InputError(f"`{name}` must be a dense tensor of real numbers; got {maps.dtype}, {maps.layout}.")


def unit_scale(maps: Tensor) -> Tensor:
    """Maps (N, H, W) from 0 to 1 each; a constant one is 0."""
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    # the extremes may be further apart than the largest number
    half = torch.where((high - low).isfinite(), 1.0, 0.5).to(maps)
    span = high * half - low * half
    return torch.where(high > low, (maps * half - low * half) / span, 0.0)


def check_map_batch(maps: Tensor, name: str = "maps") -> Tensor:
    """Maps (N, H, W) in double precision on the CPU, detached; a channel dimension of 1 is dropped."""
    check_real(maps, name)
    flat = maps[:, 0] if maps.ndim == 4 and maps.shape[1] == 1 else maps
    if flat.ndim != 3 or not flat.numel():
        hint = "; add a batch dimension with maps[None]" if maps.ndim == 2 else ""
        raise InputError(
            f"`{name}` must have shape (N, 1, H, W) or (N, H, W), and a pixel at least; got {tuple(maps.shape)}{hint}."
        )
    flat = flat.detach().to("cpu", torch.float64).contiguous()  # sums are rounded in the order of memory
    if not flat.isfinite().all():
        raise InputError(f"`{name}` holds NaN or infinite values; a map must rank every pixel.")
    return flat


def check_map_pair(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two batches of maps of the same images."""
    first, second = check_map_batch(a, "a"), check_map_batch(b, "b")
    if first.shape != second.shape:
        raise InputError(
            f"`a` and `b` must be maps of the same images; got shapes {tuple(a.shape)} and {tuple(b.shape)}; "
            "upsample the smaller maps first."
        )
    return first, second


def mean_ranks(maps: Tensor) -> Tensor:
    """Ranks 1 … HW of each map's pixels (N, H, W); equal values share the mean of their ranks."""
    need("A rank correlation", "bench", "scipy")
    from scipy.stats import rankdata  # slower to import than torch

    return torch.from_numpy(rankdata(maps.flatten(1).numpy(), axis=1)).view_as(maps)
