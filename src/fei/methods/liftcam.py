"""Lift-CAM: channels weighted by their DeepLIFT contribution to the logit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fei.core.dataflow import ACTIVATIONS
from fei.core.scoring import Score, check_score
from fei.methods._baseline import Baseline, Task
from fei.methods._head import Head
from fei.methods.cam import cam_site, upsample

_FLAT = 1e-7  # below this difference from the baseline a nonlinearity passes its plain derivative


class LiftCAM(Baseline):
    """Lift-CAM: ReLU(Σ_k c_k A_k), c_k = Σ over positions of the DeepLIFT contributions of A_k to s, from A = 0.

    Jung & Oh 2021, "Towards better explanations of class activation mapping". DeepLIFT with the Rescale rule (Shrikumar
    et al. 2017) through the head: a nonlinearity y = f(z) passes the multiplier Δy/Δz between the features and the zero
    baseline instead of its derivative; everything else passes its gradient, which is exact for what is linear, and for
    max-pooling of non-negative features over a zero baseline. On a head of pooling and one linear layer,
    c_k = w_k·mean(A_k). One forward pass, and one forward and backward pass of the head. Written from the papers:
    captum's DeepLift needs modules that are used once.

    Args:
        layer: Module whose output is A; by default the last spatial feature map.
        relu: Apply the final ReLU, as published; without it ties at zero are avoided.
        score: s, "logit" as published, or "softmax".
    """

    one_by_one = True

    def __init__(self, *, layer: str | None = None, relu: bool = False, score: Score = "logit") -> None:
        check_score(score)
        self.layer, self.relu, self.score = layer, relu, score

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        head = Head(task.model, task.images, cam_site(task, self.layer))
        features = head.features
        # the features and their baseline go through the head together, so that each nonlinearity sees both
        pair = torch.cat([features, torch.zeros_like(features)]).requires_grad_()
        score = task.phi(head(pair, _rescale), copies=2)[0]
        (multipliers,) = torch.autograd.grad(score, pair)
        coefficients = (multipliers[:1] * features).sum((2, 3), keepdim=True)
        weighted = (coefficients * features).sum(1)
        return upsample(weighted.relu() if self.relu else weighted, task.images)


def _rescale(name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """DeepLIFT's Rescale rule as a linear stand-in with the value of the nonlinearity and the slope Δy/Δz."""
    if name not in ACTIVATIONS:
        return func(*args, **kwargs)
    z: Tensor = args[0]
    inner = z.detach().requires_grad_()
    y = func(inner.clone(), *args[1:], **kwargs)  # on a copy: it may work in place
    (derivative,) = torch.autograd.grad(y.sum(), inner)
    with torch.no_grad():
        dz, dy = z[:1] - z[1:], y[:1] - y[1:]
        near = dz.abs() < _FLAT
        slope = torch.where(near, derivative[:1], dy / torch.where(near, 1.0, dz))
    return y.detach() + slope * (z - z.detach())
