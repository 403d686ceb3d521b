"""Class activation maps: a weighted sum of the channels of one feature layer, upsampled to the image."""

from __future__ import annotations

import abc

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F

from fei.core.pathway import visit_sites
from fei.core.scoring import Score, check_score
from fei.core.sites import Site, find_layer
from fei.errors import ModelError
from fei.methods._baseline import Baseline, Task


def cam_site(task: Task, layer: str | None) -> Site:
    """Where the features are: the named layer, or the last spatial feature map of the network."""
    if layer is None:
        names = task.survey.feature_layers
        if not names:
            raise ModelError("the network has no spatial feature layer; name one with layer=, or use another method")
        layer = names[-1]
    return find_layer(task.model, task.survey.flow, layer)


def features_at(task: Task, site: Site) -> Tensor:
    """Activations A of a site, (n, C, h, w), from one forward pass without a gradient."""
    kept: list[Tensor] = []
    with torch.no_grad():
        visit_sites(task.model, [site], task.images, lambda _, value: kept.append(value.clone()))
    return _spatial(kept[0], site)


def features_and_gradients(task: Task, site: Site) -> tuple[Tensor, Tensor]:
    """Activations A of a site and the gradient of the score with respect to them, (n, C, h, w) each.

    The gradient is taken at the value's place in the graph, so that what overwrites the value in place afterwards does
    not matter, and the pass backwards ends there.
    """
    kept: list[Tensor] = []
    places: list[GradientEdge] = []

    def keep(_: int, value: Tensor) -> None:
        kept.append(value.detach().clone())
        places.append(get_gradient_edge(value))

    images = task.images.detach().requires_grad_()
    score = task.own_phi(visit_sites(task.model, [site], images, keep))
    (gradients,) = torch.autograd.grad(score.sum(), places)
    return _spatial(kept[0], site), gradients


def upsample(maps: Tensor, images: Tensor) -> Tensor:
    """Maps (n, h, w) at the images' resolution, bilinear."""
    return F.interpolate(maps[:, None], images.shape[2:], mode="bilinear", align_corners=False)[:, 0]


def _spatial(features: Tensor, site: Site) -> Tensor:
    if features.ndim != 4:
        raise ModelError(
            f"layer {site.name!r} gives shape {tuple(features.shape)}; a CAM needs feature maps (N, C, h, w): name "
            "another layer"
        )
    return features


class GradientCAM(Baseline):
    """What the CAMs that read the gradient g = ∂s/∂A share: one forward and one backward pass, then a rule.

    The final ReLU makes ties of everything at or below zero, so the map is returned before it unless `relu` asks for
    the published one.

    Args:
        layer: Module whose output is A; by default the last spatial feature map.
        relu: Apply the final ReLU.
        score: s, "logit" as in the originals, or "softmax".
    """

    def __init__(self, *, layer: str | None = None, relu: bool = False, score: Score = "logit") -> None:
        check_score(score)
        self.layer, self.relu, self.score = layer, relu, score

    @abc.abstractmethod
    def weights(self, features: Tensor, gradients: Tensor) -> Tensor:
        """What each channel, or each position of it, is weighted by; broadcastable to the features."""

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        features, gradients = features_and_gradients(task, cam_site(task, self.layer))
        weighted = (self.weights(features, gradients) * features).sum(1)
        return upsample(weighted.relu() if self.relu else weighted, task.images)


class GradCAM(GradientCAM):
    """Grad-CAM: ReLU(Σ_k w_k A_k) with w_k = mean over positions of ∂s/∂A_k.

    Selvaraju et al. 2017, "Grad-CAM: visual explanations from deep networks via gradient-based localization". One
    forward and one backward pass. Written from the paper; options as in `GradientCAM`.
    """

    def weights(self, features: Tensor, gradients: Tensor) -> Tensor:
        """One weight a channel."""
        return gradients.mean((2, 3), keepdim=True)


class GradCAMPlusPlus(GradientCAM):
    """Grad-CAM++: ReLU(Σ_k w_k A_k) with w_k = Σ_ij α·ReLU(g), α = g²/(2g² + (Σ_ab A_k)·g³), 0 where g = 0.

    Chattopadhay et al. 2018, "Grad-CAM++: improved visual explanations for deep convolutional networks", equation 19.
    One forward and one backward pass. The paper derives α for the exponential of the score, whose gradient is g times
    a positive number an image: g itself gives the same ranking. Written from the paper; options as in `GradientCAM`.
    """

    def weights(self, features: Tensor, gradients: Tensor) -> Tensor:
        """One weight a channel."""
        # g² is cancelled from α: the square of a small gradient would underflow
        denominator = 2 + features.sum((2, 3), keepdim=True) * gradients
        # no α at a pole either, which only features below zero can reach
        alpha = torch.where((gradients != 0) & (denominator != 0), 1 / denominator, 0)
        return (alpha * gradients.relu()).sum((2, 3), keepdim=True)


class LayerCAM(GradientCAM):
    """LayerCAM: ReLU(Σ_k ReLU(g_k)⊙A_k), a weight for each position instead of each channel.

    Jiang et al. 2021, "LayerCAM: exploring hierarchical class activation maps for localization". One forward and one
    backward pass. Of one layer: the paper's fusion of several is not part of it. Written from the paper; options as in
    `GradientCAM`.
    """

    def weights(self, features: Tensor, gradients: Tensor) -> Tensor:
        """One weight a position of each channel."""
        return gradients.relu()


class XGradCAM(GradientCAM):
    """XGrad-CAM: ReLU(Σ_k w_k A_k) with w_k = Σ_ij (A_k,ij / Σ_ab A_k,ab)·g_k,ij, 0 for a channel that sums to 0.

    Fu et al. 2020, "Axiom-based Grad-CAM: towards accurate visualization and explanation of CNNs". One forward and one
    backward pass. Written from the paper; options as in `GradientCAM`.
    """

    def weights(self, features: Tensor, gradients: Tensor) -> Tensor:
        """One weight a channel."""
        total = features.sum((2, 3), keepdim=True)
        weighted = (features * gradients).sum((2, 3), keepdim=True)
        return torch.where(total != 0, weighted / total, 0)
