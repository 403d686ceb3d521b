"""How far maps agree: of two methods, of two seeds, of a method before and after a change."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fei.errors import InputError
from fei.metrics._maps import check_map_pair, mean_ranks
from fei.metrics.declaration import Metric


def rank_correlation(a: Tensor, b: Tensor, absolute: bool = False) -> Tensor:
    """Spearman's ρ: Pearson's correlation of the pixels' ranks, equal values sharing their mean rank.

    A constant map ranks nothing and correlates with nothing, itself included: 0.

    Args:
        a: Maps (N, 1, H, W).
        b: Maps of the same images.
        absolute: Compare |a| with |b|, for methods whose sign means little (Adebayo et al., "Sanity checks for
            saliency maps", NeurIPS 2018).

    Returns:
        ρ in [−1, 1], (N,).

    Examples:
        >>> fei.metrics.rank_correlation(maps, 2 * maps + 1).round(decimals=6).tolist()
        [1.0, 1.0]
    """
    first, second = check_map_pair(a, b)
    if absolute:
        first, second = first.abs(), second.abs()
    ranks_a, ranks_b = (mean_ranks(maps).flatten(1) for maps in (first, second))
    ranks_a, ranks_b = ranks_a - ranks_a.mean(1, keepdim=True), ranks_b - ranks_b.mean(1, keepdim=True)
    norms = ranks_a.norm(dim=1) * ranks_b.norm(dim=1)
    return torch.where(norms > 0, (ranks_a * ranks_b).sum(1) / norms, 0.0)


def iou_at(a: Tensor, b: Tensor, fraction: float) -> Tensor:
    """Overlap of the most important pixels: |A ∩ B| / |A ∪ B|, A and B the top n = round(fraction · HW) of each map.

    Equal values are taken in raster order, so maps with many ties (a class activation map after its ReLU) overlap in
    them; choose a fraction smaller than the untied part.

    Args:
        a: Maps (N, 1, H, W).
        b: Maps of the same images.
        fraction: Share of pixels that count as important, above 0 and at most 1.

    Returns:
        Overlap in [0, 1], (N,).

    Examples:
        >>> first = torch.tensor([[[[4.0, 3.0], [2.0, 1.0]]]])
        >>> second = torch.tensor([[[[4.0, 1.0], [3.0, 2.0]]]])
        >>> round(fei.metrics.iou_at(first, second, 0.5).item(), 3)  # one of three pixels
        0.333
    """
    first, second = check_map_pair(a, b)
    pixels = first[0].numel()
    if not (isinstance(fraction, (int, float)) and 0 < fraction <= 1 and round(fraction * pixels)):
        raise InputError(
            f"`fraction` must be above 0, at most 1, and come to at least one of {pixels} pixels; got {fraction!r}."
        )
    top_a, top_b = _top(first, round(fraction * pixels)), _top(second, round(fraction * pixels))
    return (top_a & top_b).sum(1).double() / (top_a | top_b).sum(1)


def agreement_matrix(
    maps: Mapping[str, Tensor], measure: Callable[[Tensor, Tensor], Tensor] = rank_correlation
) -> Tensor:
    """Agreement of each method with each other.

    Args:
        maps: For each method its maps (N, 1, H, W) of the same images.
        measure: A symmetric measure of two batches of maps that returns (N,), for example
            ``functools.partial(iou_at, fraction=0.1)``.

    Returns:
        (N, K, K) for K methods in the order of `maps`, symmetric; its mean over the first dimension is the matrix of a
        dataset.

    Examples:
        >>> fei.metrics.agreement_matrix({"one": maps, "its negative": -maps}).mean(0).round().tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    if not isinstance(maps, Mapping):
        raise InputError(f"`maps` must be a dictionary of maps by the method's name; got {type(maps).__name__}.")
    if not maps:
        raise InputError("`maps` is empty; give the maps of at least one method.")
    batches = list(maps.values())
    rows: list[list[Tensor]] = []
    for i, first in enumerate(batches):
        rows.append([*(rows[j][i] for j in range(i)), *(measure(first, second) for second in batches[i:])])
    return torch.stack([torch.stack(row, -1) for row in rows], 1)


def _top(maps: Tensor, count: int) -> Tensor:
    order = maps.flatten(1).argsort(dim=1, descending=True, stable=True)
    return torch.zeros_like(order, dtype=torch.bool).scatter_(1, order[:, :count], True)


# Agreement is no virtue in itself: methods may be wrong together, and sanity checks want it low.
METRICS = (Metric("rank_correlation", "rank correlation", None), Metric("iou_at", "overlap", None))
