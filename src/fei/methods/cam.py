"""Class activation maps: a weighted sum of the channels of one feature layer, upsampled to the image."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fei.core.dataflow import trace
from fei.core.pathway import visit_sites
from fei.core.scoring import Score, check_score
from fei.core.sites import Site, find_sites
from fei.errors import InputError, ModelError
from fei.methods._baseline import Baseline, Task
from fei.models.layers import feature_layers


def cam_site(model: nn.Module, images: Tensor, layer: str | None) -> Site:
    """Where the features are: the named layer, or the last spatial feature map of the network."""
    if layer is None:
        names: Sequence[str] = feature_layers(model, images)
        if not names:
            raise ModelError("the network has no spatial feature layer; name one with layer=, or use another method")
        layer = names[-1]
    flow, _ = trace(model, images[:1])
    sites = find_sites(model, flow, [layer])
    if len(sites) != 1:
        raise InputError(
            f"layer {layer!r} runs {len(sites)} times; name one call as {layer}#0 to {layer}#{len(sites) - 1}"
        )
    return sites[0]


def features_and_gradients(task: Task, site: Site) -> tuple[Tensor, Tensor]:
    """Activations A of a site and the gradient of the score with respect to them, (n, C, h, w) each.

    A hook on the value takes the gradient, so that what overwrites the value in place afterwards does not matter.
    """
    kept: list[Tensor] = []
    gradients: list[Tensor] = []

    def keep(_: int, value: Tensor) -> None:
        kept.append(value.detach().clone())
        value.register_hook(lambda grad: gradients.append(grad))

    images = task.images.detach().requires_grad_()
    score = task.phi(visit_sites(task.model, [site], images, keep))
    torch.autograd.grad(score.sum(), images)
    if kept[0].ndim != 4:
        raise ModelError(
            f"layer {site.name!r} gives shape {tuple(kept[0].shape)}; a CAM needs feature maps (N, C, h, w): name "
            "another layer"
        )
    return kept[0], gradients[0]


def upsample(maps: Tensor, images: Tensor) -> Tensor:
    """Maps (n, h, w) at the images' resolution, bilinear."""
    return F.interpolate(maps[:, None], images.shape[2:], mode="bilinear", align_corners=False)[:, 0]


class GradCAM(Baseline):
    """Grad-CAM: ReLU(Σ_k w_k A_k) with w_k = mean over positions of ∂s/∂A_k.

    Selvaraju et al. 2017. One forward and one backward pass. The ReLU makes ties of everything at or below zero, so the
    map is returned before it unless `relu` asks for the published one.

    Args:
        layer: Module whose output is A; by default the last spatial feature map.
        relu: Apply the final ReLU.
        score: s, "logit" as in the original, or "softmax".
    """

    def __init__(self, *, layer: str | None = None, relu: bool = False, score: Score = "logit") -> None:
        check_score(score)
        self.layer, self.relu, self.score = layer, relu, score

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        features, gradients = features_and_gradients(task, cam_site(task.model, task.images, self.layer))
        weighted = (gradients.mean((2, 3), keepdim=True) * features).sum(1)
        return upsample(weighted.relu() if self.relu else weighted, task.images)
