"""What units have to say about a class: their activation times the gradient of its score, on the photograph itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F

from fei.core.checks import gradients
from fei.core.pathway import visit_sites
from fei.core.sites import Site

_LEVELS = 1e9  # of evidence that are told apart when it is ranked


def relevance(model: nn.Module, sites: Sequence[Site], images: Tensor, score: Callable[[Any], Tensor]) -> list[Tensor]:
    """h·∂s/∂h of every unit at each site; positive where a unit speaks for the class.

    Args:
        model: The network.
        sites: Where to look.
        images: What it looks at, (N, C, H, W).
        score: s of each row of its output.
    """
    values: dict[int, Tensor] = {}
    edges: dict[int, GradientEdge] = {}

    def watch(site: int, value: Tensor) -> None:
        values[site] = value.detach().clone()  # what follows may work in place
        if value.requires_grad:
            edges[site] = get_gradient_edge(value)

    with torch.enable_grad():
        leaf = images.detach().requires_grad_()
        output = visit_sites(model, sites, leaf, watch)
        # no further back than to the first of the sites: the way from there to the image is long
        arrived = dict(zip(edges, gradients(score(output).sum(), list(edges.values())), strict=True))
    zero = torch.zeros((), dtype=images.dtype, device=images.device)
    found = [arrived.get(site) for site in range(len(sites))]
    return [values[site] * (zero if gradient is None else gradient) for site, gradient in enumerate(found)]


def evidence_of(relevant: Tensor) -> Tensor:
    """The evidence E of each place of a feature map, (N, 1, h, w): the sum of the relevance of its units.

    Args:
        relevant: The relevance of units, (N, channels, h, w); that of tokens is made a map by `fei.core.tokens.Grid`.
    """
    return relevant.sum(1, keepdim=True)


def evidence_weights(evidence: Tensor) -> Tensor:
    """How much of a class's evidence each place holds beyond the average place, with mean 1.

    W(p) = max(0, E(p) − mean E); all 1 where no place holds more than another.
    """
    places = tuple(range(1, evidence.ndim))
    above = (evidence - evidence.mean(places, keepdim=True)).clamp(min=0)
    mean = above.mean(places, keepdim=True)
    return torch.where(mean > 0, above / mean.clamp(min=torch.finfo(mean.dtype).tiny), 1.0)


def evidence_ranks(evidence: Tensor, size: Sequence[int]) -> Tensor:
    """The ranks of all pixels, from 0 to 1, in evidence brought to the size of the image, (N, 1, H, W).

    Of equal values the first in raster order has the lower rank.
    """
    wide = evidence if evidence.device.type == "mps" else evidence.double()  # MPS has no float64
    large = F.interpolate(wide, tuple(size), mode="bilinear", align_corners=False).flatten(1)
    span = large.abs().amax(1, keepdim=True).clamp(min=torch.finfo(large.dtype).tiny)
    # what differs by round-off alone is equal, as at the edges, where places are repeated
    order = (large / span * _LEVELS).round().argsort(dim=1, stable=True)
    places = torch.arange(large.shape[1], dtype=large.dtype, device=large.device) / max(large.shape[1] - 1, 1)
    return torch.empty_like(large).scatter_(1, order, places.expand_as(large)).view(len(evidence), 1, *size)
