"""Class activation maps: a weighted sum of the channels of one feature layer, upsampled to the image."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fei.core.dataflow import Flow, uncompiled
from fei.core.scoring import Score
from fei.core.sites import Site, find_layer, resolve_name, several_calls
from fei.errors import InputError, ModelError
from fei.methods._baseline import Baseline, Task
from fei.methods._head import Head, MapHead
from fei.methods._places import is_plain_map, no_places, places_at


def cam_head(task: Task, layer: str | None, images: Tensor, *, pooled: bool = False) -> MapHead:
    """The part of the network behind the named layer, or behind the last spatial feature map, on maps of features.

    Args:
        task: The images.
        layer: A module's name; the last spatial feature map if ``None``.
        images: What the head is recorded on.
        pooled: Whether the last spatial feature map is taken behind the max-pooling that follows it, where one does.
    """
    name = task.survey.feature_layer if layer is None else _checked(layer)
    site = find_layer(task.model, task.survey.flow, name)
    grid = places_at(task.survey.flow, site)
    if layer is None and (grid is None or grid.layout != "map"):
        name = task.survey.feature_layer = task.survey.token_layer
        site = find_layer(task.model, task.survey.flow, name)
        grid = places_at(task.survey.flow, site)
    if grid is None:
        raise no_places(name, "what forms no grid", task.survey.places)
    if layer is None and pooled:
        site = _pooled(task.survey.flow, site)
        grid = places_at(task.survey.flow, site) or grid
    return MapHead(Head(task.model, images, site), grid)


def _pooled(flow: Flow, site: Site) -> Site:
    """The value behind the max-pooling that alone reads a site's value; where there is none, the site itself."""
    (call,) = (call for call in flow.calls if call.key == site.key)
    if len(call.consumers) == 1 and call.consumers[0].function == "max_pool2d":
        pool = call.consumers[0]
        return Site(f"{site.name}:max_pool2d", site.index, pool.key, activation=False)
    return site


def _checked(layer: Any) -> str:
    if not isinstance(layer, str):
        raise InputError(f"`layer` must be the name of a module; got {layer!r}; see model.named_modules().")
    return layer


def features_at(task: Task, layer: str | None) -> Tensor:
    """Activations A of a layer, (n, C, h, w), from one forward pass without a gradient."""
    features, _, to_map = _observed(task, layer, differentiate=False)
    return to_map(features)


def features_and_gradients(task: Task, layer: str | None) -> tuple[Tensor, Tensor]:
    """Activations A of a layer and the gradient of the score with respect to them, (n, C, h, w) each.

    Up to the layer the pass keeps no graph: what is behind it is all that the gradient goes through.
    """
    features, output, to_map = _observed(task, layer, differentiate=True)
    (gradients,) = torch.autograd.grad(task.phi(output).sum(), features)
    if layer is not None and features.ndim == 3 and gradients.any() and not to_map(gradients).any():
        hint = f"name another, such as {task.survey.token_layer}"
        raise ModelError(f"Of the tokens of {layer!r} only those that are no patches matter to the score; {hint}.")
    return to_map(features.detach()), to_map(gradients)


def _observed(task: Task, layer: str | None, *, differentiate: bool) -> tuple[Tensor, Any, Callable[[Tensor], Tensor]]:
    """What one call of a layer returns in a pass on the images, the network's output, and what makes maps of it.

    A convolutional network is not traced for it; tokens, and maps with channels last, need to know their places.

    Args:
        task: The images.
        layer: A module's name, with "#call" where one call of several is meant; the last feature layer if ``None``.
        differentiate: Whether a graph begins at the value: the network goes on with a copy of what is kept.
    """
    name = task.survey.feature_layer if layer is None else _checked(layer)
    value, output = _watched(task, name, differentiate=differentiate)
    if is_plain_map(value, task.images):
        return value, output, lambda values: values
    if layer is None and name != task.survey.token_layer:
        task.survey.feature_layer = name = task.survey.token_layer
        value, output = _watched(task, name, differentiate=differentiate)
    grid = places_at(task.survey.flow, find_layer(task.model, task.survey.flow, name))
    if grid is None:
        raise no_places(name, f"shape {tuple(value.shape)}", task.survey.places)
    return value, output, grid.to_map


def _watched(task: Task, layer: str, *, differentiate: bool) -> tuple[Tensor, Any]:
    """What one call of a layer returns, and the network's output.

    A hook on the module itself: for one layer that is known by name it costs nothing, where tracing would take a pass.
    """
    name, mark, call = layer.partition("#")
    if mark and not call.isdecimal():
        raise InputError(
            f"The layer {name + mark + call!r} is no module's name, nor has it a call's number; change it."
        )
    name = resolve_name(name, [known for known, _ in task.model.named_modules()])
    calls, thread = 0, threading.get_ident()
    kept: list[Tensor] = []
    wrong: list[str] = []

    def keep(module: nn.Module, args: Any, output: Any) -> Tensor | None:
        nonlocal calls
        if threading.get_ident() != thread:  # somebody else uses the network
            return None
        number, calls = calls, calls + 1
        if kept or (mark and int(call) != number):
            return None
        if not isinstance(output, Tensor) or output.ndim not in (3, 4):
            wrong.append(f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}")
            return None
        kept.append(output.detach().clone())
        if not differentiate:
            return None
        torch.set_grad_enabled(True)  # until the pass is over
        return kept[0].requires_grad_().clone()  # what follows may work in place

    handle = task.model.get_submodule(name).register_forward_hook(keep)
    try:
        with torch.no_grad(), uncompiled():
            output = task.observe(lambda: task.model(task.images.clone()))
    finally:
        handle.remove()
    if not mark and calls > 1:
        raise several_calls(name, calls)
    if wrong:
        raise no_places(name, wrong[0], task.survey.places)
    if not kept:
        raise ModelError(
            f"The layer {name!r} ran {calls} time(s) and the call that is meant was not among them; name another layer."
        )
    return kept[0], output


def upsample(maps: Tensor, images: Tensor, mode: str = "bilinear") -> Tensor:
    """Maps (n, h, w) at the images' resolution, bilinear or bicubic."""
    return F.interpolate(maps[:, None], images.shape[2:], mode=mode, align_corners=False)[:, 0]


@dataclass(eq=False, kw_only=True)
class GradientCAM(Baseline):
    """What the CAMs that read the gradient g = ∂s/∂A share: one forward and one backward pass, then a rule.

    The final ReLU makes ties of everything at or below zero, so the map is returned before it unless `relu` asks for
    the published one.

    Args:
        layer: Module whose output is A, a map or tokens that form a grid; by default the last spatial feature map.
        relu: Apply the final ReLU.
        score: s, "logit" as in the originals, or "softmax".
    """

    layer: str | None = None
    relu: bool = False
    score: Score = "logit"

    observes = True

    @abc.abstractmethod
    def weights(self, features: Tensor, gradients: Tensor) -> Tensor:
        """What each channel, or each position of it, is weighted by; broadcastable to the features."""

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        features, gradients = features_and_gradients(task, self.layer)
        weighted = (self.weights(features, gradients) * features).sum(1)
        return upsample(weighted.relu() if self.relu else weighted, task.images)


class GradCAM(GradientCAM):
    """Grad-CAM: ReLU(Σ_k w_k A_k) with w_k = mean over positions of ∂s/∂A_k.

    Selvaraju et al. 2017, "Grad-CAM: visual explanations from deep networks via gradient-based localization". One
    forward and one backward pass. Written from the paper; options as in `GradientCAM`.
    """

    def weights(self, features: Tensor, gradients: Tensor) -> Tensor:
        """One weight per channel."""
        return gradients.mean((2, 3), keepdim=True)


class GradCAMPlusPlus(GradientCAM):
    """Grad-CAM++: ReLU(Σ_k w_k A_k) with w_k = Σ_ij α·ReLU(g), α = g²/(2g² + (Σ_ab A_k)·g³), 0 where g = 0.

    Chattopadhay et al. 2018, "Grad-CAM++: improved visual explanations for deep convolutional networks", equation 19.
    One forward and one backward pass. The paper derives α for the exponential of the score, whose gradient is g times
    a positive number per image: g itself gives the same ranking. Written from the paper; options as in `GradientCAM`.
    """

    def weights(self, features: Tensor, gradients: Tensor) -> Tensor:
        """One weight per channel."""
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
        """One weight per position of each channel."""
        return gradients.relu()


class XGradCAM(GradientCAM):
    """XGrad-CAM: ReLU(Σ_k w_k A_k) with w_k = Σ_ij (A_k,ij / Σ_ab A_k,ab)·g_k,ij, 0 for a channel that sums to 0.

    Fu et al. 2020, "Axiom-based Grad-CAM: towards accurate visualization and explanation of CNNs". One forward and one
    backward pass. Written from the paper; options as in `GradientCAM`.
    """

    def weights(self, features: Tensor, gradients: Tensor) -> Tensor:
        """One weight per channel."""
        total = features.sum((2, 3), keepdim=True)
        weighted = (features * gradients).sum((2, 3), keepdim=True)
        return torch.where(total != 0, weighted / total, 0)
