"""Iterated Integrated Attributions."""

from __future__ import annotations

import torch
from torch import Tensor

from fei.core.checks import check_count
from fei.core.scoring import Score, check_score
from fei.errors import InputError
from fei.methods._baseline import Baseline, Task
from fei.methods._head import Head
from fei.methods.cam import cam_site, upsample

INNER = ("zero", "min", "released")


class IIA(Baseline):
    """Iterated integrated attributions: Σ_i Σ_j Σ_k ReLU(A_k^{ij}) ⊙ ∂s/∂A_k^{ij}.

    Barkan et al. 2023, "Visual explanations via iterated integrated attributions". Images x_i = (i/n)·x go from black
    (zero) to the image; for each, activations A^{ij} = B + (j/m)·(A(x_i) − B) go from a baseline B to those of the last
    feature layer, and the head's gradient is taken there. n forward passes, and n·m forward and backward passes of the
    head. Written from the paper.

    Args:
        outer: n.
        inner_steps: m.
        inner: B: "zero"; "min", the smallest value of each channel; or "released", as in the authors' code, where B
            is A itself, so that every inner step is the same.
        layer: Module whose output is A; by default the last spatial feature map.
        score: s, "logit" or "softmax".
    """

    one_by_one = True
    parts = 10

    def __init__(
        self,
        *,
        outer: int = 10,
        inner_steps: int = 10,
        inner: str = "zero",
        layer: str | None = None,
        score: Score = "logit",
    ) -> None:
        check_score(score)
        check_count("outer", outer)
        check_count("inner_steps", inner_steps)
        if inner not in INNER:
            raise InputError(f"unknown inner baseline {inner!r}; choose one of {', '.join(INNER)}")
        self.outer, self.inner_steps, self.inner, self.layer, self.score = outer, inner_steps, inner, layer, score

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        site = cam_site(task, self.layer)
        total = torch.zeros((), device=task.images.device)
        for step in range(1, self.outer + 1):
            head = Head(task.model, task.images * (step / self.outer), site)
            for features in self._path(head.features).split(task.rows):
                leaf = features.detach().requires_grad_()
                (gradient,) = torch.autograd.grad(task.phi(head(leaf), copies=len(leaf)).sum(), leaf)
                total = total + (gradient * features.relu()).sum((0, 1))
            task.advance(step / self.outer)
        return upsample(total[None], task.images)

    def _path(self, features: Tensor) -> Tensor:
        baseline = {
            "zero": torch.zeros_like(features),
            "min": features.amin((2, 3), keepdim=True).expand_as(features),
            "released": features,
        }[self.inner]
        weights = torch.arange(1, self.inner_steps + 1, device=features.device).to(features) / self.inner_steps
        return torch.lerp(baseline, features, weights.view(-1, 1, 1, 1))
