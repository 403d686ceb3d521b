"""Class activation maps: a weighted sum of the channels of one feature layer, upsampled to the image."""

from __future__ import annotations

import abc
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fei.core.dataflow import uncompiled
from fei.core.scoring import Score, check_score
from fei.core.sites import Site, find_layer, resolve_name
from fei.errors import InputError, ModelError
from fei.methods._baseline import Baseline, Task


def cam_site(task: Task, layer: str | None) -> Site:
    """Where the features are: the named layer, or the last spatial feature map of the network."""
    return find_layer(task.model, task.survey.flow, _layer_name(task, layer))


def _layer_name(task: Task, layer: str | None) -> str:
    if layer is not None:
        if not isinstance(layer, str):
            raise InputError(f"`layer` must be the name of a module; got {layer!r}; see model.named_modules()")
        return layer
    names = task.survey.feature_layers
    if not names:
        raise ModelError("the network has no spatial feature layer; name one with layer=, or use another method")
    return names[-1]


def features_at(task: Task, layer: str | None) -> Tensor:
    """Activations A of a layer, (n, C, h, w), from one forward pass without a gradient."""
    tap = _Tap(task, layer)
    with torch.no_grad(), tap:
        task.observe(lambda: task.model(task.images.clone()))
    return tap.features


def features_and_gradients(task: Task, layer: str | None) -> tuple[Tensor, Tensor]:
    """Activations A of a layer and the gradient of the score with respect to them, (n, C, h, w) each.

    Up to the layer the pass keeps no graph: what is behind it is all that the gradient goes through.
    """
    tap = _Tap(task, layer, differentiate=True)
    with torch.no_grad(), tap:
        output = task.observe(lambda: task.model(task.images.clone()))
        with torch.enable_grad():
            score = task.phi(output).sum()
    features = tap.features
    (gradients,) = torch.autograd.grad(score, features)
    return features.detach(), gradients


class _Tap:
    """Keeps what one call of a module returns, while it is entered.

    A hook on the module itself: for one layer that is known by name it costs nothing, where tracing would take a pass.

    Args:
        task: The images.
        layer: A module's name, with "#call" where one call of several is meant; the last feature layer if ``None``.
        differentiate: Whether a graph begins at the value: the network goes on with a copy of what is kept.
    """

    def __init__(self, task: Task, layer: str | None, *, differentiate: bool = False) -> None:
        name, mark, call = _layer_name(task, layer).partition("#")
        if mark and not call.isdecimal():
            raise InputError(f"layer {name + mark + call!r} is not a module's name, nor one with the number of a call")
        self._name = resolve_name(name, [known for known, _ in task.model.named_modules()])
        self._module, self._call = task.model.get_submodule(self._name), int(call) if mark else None
        self._differentiate = differentiate
        self._kept: list[Tensor] = []
        self._calls = 0
        self._until = ExitStack()

    def __enter__(self) -> _Tap:
        self._until.enter_context(uncompiled())
        self._until.callback(self._module.register_forward_hook(self._keep).remove)
        return self

    def __exit__(self, *error: object) -> None:
        self._until.close()

    def _keep(self, module: nn.Module, args: Any, output: Any) -> Tensor | None:
        number, self._calls = self._calls, self._calls + 1
        if self._call not in (None, number) or self._kept:
            return None
        if not isinstance(output, Tensor) or output.ndim != 4:
            got = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
            raise ModelError(
                f"layer {self._name!r} gives {got}; a CAM needs feature maps (N, C, h, w): name another layer"
            )
        self._kept.append(output.detach().clone())
        if not self._differentiate:
            return None
        torch.set_grad_enabled(True)  # until the pass is over
        return self._kept[0].requires_grad_().clone()  # what follows may work in place

    @property
    def features(self) -> Tensor:
        """What was kept."""
        if self._call is None and self._calls > 1:
            last = self._calls - 1
            raise InputError(
                f"layer {self._name!r} runs {self._calls} times; name one call as {self._name}#0 to {self._name}#{last}"
            )
        if not self._kept:
            raise ModelError(
                f"layer {self._name!r} ran {self._calls} time(s) and the call that is meant was not among them; name "
                "another layer"
            )
        return self._kept[0]


def upsample(maps: Tensor, images: Tensor) -> Tensor:
    """Maps (n, h, w) at the images' resolution, bilinear."""
    return F.interpolate(maps[:, None], images.shape[2:], mode="bilinear", align_corners=False)[:, 0]


class GradientCAM(Baseline):
    """What the CAMs that read the gradient g = ∂s/∂A share: one forward and one backward pass, then a rule.

    The final ReLU makes ties of everything at or below zero, so the map is returned before it unless `relu` asks for
    the published one.

    Args:
        layer: Module whose output is A; by default the last spatial feature map.
        relu: Apply the final ReLU.
        score: s, "logit" as in the originals, or "softmax".
    """

    observes = True

    def __init__(self, *, layer: str | None = None, relu: bool = False, score: Score = "logit") -> None:
        check_score(score)
        self.layer, self.relu, self.score = layer, relu, score

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
