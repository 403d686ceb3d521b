"""How much there is to read in a map: how concentrated it is, and how ragged."""

from __future__ import annotations

import torch
from torch import Tensor

from fei.metrics._maps import check_map_batch, mean_ranks, unit_scale
from fei.metrics.declaration import Metric, of_maps


def gini(maps: Tensor) -> Tensor:
    """Sparseness: the Gini index of a map's absolute values, from 0 (all equal) to 1 − 1/P (one pixel has it all).

    G = 1 − 2 Σ_k (c_k / ‖c‖₁) (P − k + ½) / P with c = |M| in ascending order and P pixels (Hurley & Rickard,
    "Comparing measures of sparsity", IEEE Trans. Inf. Theory 2009; for attributions Chalasani et al., ICML 2020). A
    map of zeros is as equal as any other constant map: 0.

    Args:
        maps: Attribution maps (N, 1, H, W).

    Returns:
        (N,).

    Examples:
        >>> point = torch.zeros(1, 1, 2, 2)
        >>> point[..., 0, 0] = 1
        >>> fei.metrics.gini(torch.cat([torch.ones(1, 1, 2, 2), point])).tolist()  # spread out evenly, and in one pixel
        [0.0, 0.75]
    """
    sizes = check_map_batch(maps).flatten(1).abs().sort(1).values
    # scaled by the largest, which cancels: sums of very large or very small values stay finite and above zero
    largest = sizes[:, -1:]
    sizes = torch.where(largest > 0, sizes / largest, 1.0)
    pixels = sizes.shape[1]
    weights = (pixels - torch.arange(1, pixels + 1, dtype=torch.float64) + 0.5) / pixels
    return (1 - 2 * (sizes * weights).sum(1) / sizes.sum(1)).clamp(min=0)  # round-off alone goes below


def rank_total_variation(maps: Tensor) -> Tensor:
    """Raggedness: how far the ranks of neighbouring pixels are apart, in the mean.

    TV = mean |r_i − r_j| over all horizontal and vertical neighbours i, j, with r the rank of a pixel scaled to [0, 1]
    and equal values sharing their mean rank. Ranks make it the same for all maps that order pixels alike, as insertion
    and deletion do. Two pixels drawn at random from P distinct ranks 1 … P are (P + 1)/3 apart, so a random map has
    (P + 1) / (3 (P − 1)), about 1/3; a smooth map is near 0, and a constant one at 0. It puts a number on the "noisy,
    fragmented" maps of the paper; the definition is this package's own.

    Args:
        maps: Attribution maps (N, 1, H, W).

    Returns:
        (N,); 0 for a map of one pixel.

    Examples:
        >>> smooth = torch.arange(64.0).reshape(1, 1, 8, 8)
        >>> bool(fei.metrics.rank_total_variation(smooth) < fei.metrics.rank_total_variation(maps[:1, :, :8, :8]))
        True
    """
    ranks = mean_ranks(check_map_batch(maps))
    steps = torch.cat([ranks.diff(dim=1).flatten(1), ranks.diff(dim=2).flatten(1)], 1).abs()
    pixels = ranks[0].numel()
    return steps.mean(1) / (pixels - 1) if pixels > 1 else torch.zeros(len(ranks), dtype=torch.float64)


def histogram_entropy(maps: Tensor, bins: int = 100) -> Tensor:
    """Entropy −Σ p ln p of the histogram of a map's values, in equal bins from its lowest to its highest, (N,).

    0 for a constant map, ln(bins) where all bins hold as many pixels.

    Args:
        maps: Attribution maps (N, 1, H, W).
        bins: How many.
    """
    counts = torch.stack([torch.histc(each, bins, 0, 1) for each in unit_scale(check_map_batch(maps))])
    shares = counts / counts.sum(1, keepdim=True)
    entropy: Tensor = torch.special.entr(shares).sum(1)
    return entropy


# A map of one pixel is as sparse as can be, and a ramp as smooth: neither number says whether a map is faithful.
METRICS = (
    Metric("gini", "Gini", True, "complexity", of_maps(gini)),
    Metric("rank_total_variation", "rank variation", False, "complexity", of_maps(rank_total_variation), (), "rank_tv"),
)
