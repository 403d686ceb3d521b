"""What the paper dismisses in a sentence: a penalty on the change of activations, in place of clipped gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import fei
from fei.core.pathway import visit_sites
from fei.core.quantiles import ProjectedUpdate
from fei.core.settings import as_stored
from fei.core.sites import Site, find_sites
from fei.errors import InputError
from fei.methods import Baseline


@dataclass(frozen=True)
class Blends:
    """Images, references and masks (N, masks, 1, H, W)."""

    inputs: Tensor
    references: Tensor
    alphas: Tensor

    def perturbed(self) -> Tensor:
        """α⊙x + (1 − α)⊙R, (N, masks, C, H, W)."""
        x = self.inputs[:, None]
        return torch.lerp(self.references[:, None].expand_as(x), x, self.alphas)


class L2Penalty(Baseline):
    """Masks of fixed areas that keep the score and, as far as λ says, the activations.

    For each quantile q of FEI's default preset, L(α_q) = −φ(x̃) + λ·Σ over the clip sites of mean (h̃ − h)², with
    gradients as they are. Areas, steps, step sizes and the projection are those of `fei.FEI`, so that the two differ in
    nothing but what holds the network's inside.

    Args:
        weight: λ.
        steps: Optimisation steps; the preset's without.
    """

    one_by_one = True
    score = "softmax"

    def __init__(self, *, weight: float, steps: int | None = None) -> None:
        if not weight >= 0:
            raise InputError(f"`weight` must be a number of at least 0; got {weight!r}")
        self.weight, self.steps = float(weight), steps
        self._fei = fei.FEI(nn.Identity(), "none", steps=steps)
        if self._fei.settings.constraint != "projection":
            raise InputError("the default preset no longer projects; write the penalty for its constraint")
        self._masks: list[Tensor] = []

    @property
    def config(self) -> dict[str, Any]:
        """λ, and the settings of FEI that are shared."""
        return {"weight": self.weight, "fei": as_stored(self._fei.config, attends=False)}

    def explain(self, model: nn.Module, inputs: Tensor, target: Any = None, **options: Any) -> Blends:
        """The images that the masks end with, for the black-image test; the reference is given."""
        self._masks.clear()
        self(model, inputs, target, **options)
        return Blends(inputs, options["reference"], torch.stack(self._masks))

    def maps(self, task: Any) -> Tensor:
        """The map of one image: the mean of its masks."""
        settings, x = self._fei.settings, task.images
        sites = find_sites(task.model, task.survey.flow)
        areas = torch.tensor(settings.areas, dtype=x.dtype, device=x.device)
        start = areas.view(1, -1, 1, 1, 1).expand(1, -1, 1, *x.shape[2:])
        update = ProjectedUpdate(start, areas, lr=settings.lr, steps=settings.steps, nested=False)
        images = x.expand(len(areas), -1, -1, -1)
        kept: dict[int, Tensor] = {}
        with torch.no_grad():
            visit_sites(task.model, sites, images, lambda site, value: kept.update({site: value.clone()}))
        for step in range(settings.steps):
            alpha = update.alpha[0].detach().requires_grad_()
            blend = torch.lerp(task.reference.expand_as(images), images, alpha)
            loss = self._loss(task, sites, blend, kept)
            (gradient,) = torch.autograd.grad(loss, alpha)
            update.step(gradient[None], None)
            task.advance((step + 1) / settings.steps)
        self._masks.append(update.alpha[0])
        return update.alpha.mean((1, 2))

    def _loss(self, task: Any, sites: list[Site], blend: Tensor, kept: dict[int, Tensor]) -> Tensor:
        """The loss, summed over the masks, which do not depend on each other."""
        moved: list[Tensor] = []

        def compare(site: int, value: Tensor) -> None:
            moved.append((value - kept[site]).square().flatten(1).mean(1))

        output = visit_sites(task.model, sites, blend, compare)
        phi: Tensor = task.phi(output, len(blend))
        return (self.weight * torch.stack(moved).sum(0) - phi).sum()
