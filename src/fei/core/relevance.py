"""What units have to say about a class: their activation times the gradient of its score, on the photograph itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fei.core.checks import image_gradient
from fei.core.pathway import visit_sites
from fei.core.sites import Site


def relevance(model: nn.Module, sites: Sequence[Site], images: Tensor, score: Callable[[Any], Tensor]) -> list[Tensor]:
    """h·∂s/∂h of every unit at each site; positive where a unit speaks for the class.

    Args:
        model: The network.
        sites: Where to look.
        images: What it looks at, (N, C, H, W).
        score: s of each row of its output.
    """
    values: dict[int, Tensor] = {}
    gradients: dict[int, Tensor] = {}

    def watch(site: int, value: Tensor) -> None:
        values[site] = value.detach().clone()  # what follows may work in place
        if value.requires_grad:
            value.register_hook(lambda gradient: gradients.__setitem__(site, gradient))

    with torch.enable_grad():
        leaf = images.detach().requires_grad_()
        output = visit_sites(model, sites, leaf, watch)
        image_gradient(score(output).sum(), leaf)
    zero = torch.zeros((), dtype=images.dtype, device=images.device)
    return [values[i] * gradients.get(i, zero) for i in range(len(sites))]


def evidence_places(relevant: Tensor) -> Tensor:
    """How much of a class's evidence each place of a feature map holds beyond the average place, with mean 1.

    W(p) = max(0, E(p) − mean E), where E(p) is the sum of the relevance of the units at place p; all 1 where no place
    holds more than another.

    Args:
        relevant: The relevance of units, (N, channels, h, w), or of tokens, (N, tokens, channels).

    Returns:
        Weights that broadcast to the units: (N, 1, h, w) or (N, tokens, 1).
    """
    evidence = relevant.sum(1 if relevant.ndim == 4 else -1, keepdim=True)
    places = tuple(range(1, evidence.ndim))
    above = (evidence - evidence.mean(places, keepdim=True)).clamp(min=0)
    mean = above.mean(places, keepdim=True)
    return torch.where(mean > 0, above / mean.clamp(min=torch.finfo(mean.dtype).tiny), 1.0)
