"""Methods that run the part of a network behind a feature layer, the head, on features of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fei.core.checks import check_count, one_of
from fei.core.dataflow import ACTIVATIONS
from fei.core.scoring import Score
from fei.errors import InputError
from fei.methods._baseline import Baseline, Task, checked
from fei.methods._head import MapHead
from fei.methods.cam import cam_head, upsample
from fei.references import normalised_zero

_FLAT = 1e-7  # below this difference from the baseline a nonlinearity passes its plain derivative


def _check_even(name: str, value: Any) -> None:
    if not isinstance(value, int) or value < 2 or value % 2:
        raise InputError(f"`{name}` must be an even whole number of at least 2; got {value!r}.")


@dataclass(eq=False, kw_only=True)
class FGVCE(Baseline):
    """Shapley value of each position of the last feature map: φ_p = E over orders of s(A_{S∪p}) − s(A_S).

    The saliency part of Zhang, Yin & Lee (CVPR 2025), labelled "Shapley saliency after FG-VCE": their counterfactual
    search needs a partner image and is not part of it, and their own code is not public. S are the positions before p
    in a random order, absent positions hold the zero vector. Sampled with antithetic permutations (each order and its
    reverse), exactly complete: every permutation's contributions sum to s(A) − s(0). One forward pass, and
    permutations × positions forward passes of the head. Written from the definition of the Shapley value.

    Args:
        permutations: Orders to sample, an even number.
        layer: Module whose output is A; by default the last spatial feature map.
        score: s, "logit" or "softmax".
    """

    permutations: int = checked(64, _check_even)
    layer: str | None = None
    score: Score = "logit"

    one_by_one = True
    parts = 100

    @torch.no_grad()
    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        head = cam_head(task, self.layer, task.images)
        size = head.features.shape[2:]
        points = size[0] * size[1]
        generator = task.generator("permutations")
        values = torch.zeros(points, device=task.images.device)
        for pair in range(self.permutations // 2):
            order = torch.randperm(points, generator=generator).to(task.images.device)
            for one in (order, order.flip(0)):
                values[one] += self._contributions(task, head, one) / self.permutations
            task.advance(2 * (pair + 1) / self.permutations)
        return upsample(values.view(1, *size), task.images)

    def _contributions(self, task: Task, head: MapHead, order: Tensor) -> Tensor:
        """What each point in an order adds to the score of those before it."""
        points = len(order)
        rank = torch.empty_like(order).scatter_(0, order, torch.arange(points, device=order.device))
        scores = []
        for present in torch.arange(points + 1, device=order.device).split(task.rows):
            mask = (rank < present[:, None]).view(-1, 1, *head.features.shape[2:])
            scores.append(task.phi(head(head.features * mask), copies=len(present)))
        return torch.cat(scores).diff().to(torch.float32)


@dataclass(eq=False, kw_only=True)
class IIA(Baseline):
    """Iterated integrated attributions: Σ_i Σ_j Σ_k ReLU(A_k^{ij}) ⊙ ∂s/∂A_k^{ij}.

    Barkan et al. 2023, "Visual explanations via iterated integrated attributions". Images x_i = (i/n)·x, i = 0 … n, go
    from zero in the network's normalised space, its mean colour, to the image; for each, activations
    A^{ij} = B + (j/m)·(A(x_i) − B), j = 0 … m, go from a baseline B to those of a feature layer, and the head's
    gradient is taken there. The map is enlarged bicubically. As in the authors' code, n and m are 10, which makes 11
    points. n + 1 forward passes, and (n + 1)·(m + 1) forward and backward passes of the head. Written from the paper.

    Args:
        outer: n.
        inner_steps: m.
        inner: B: "zero"; "min", the smallest value of each channel; or "released", as in the authors' code, where B
            is A itself, so that every inner step is the same.
        layer: Module whose output is A; by default the last spatial feature map, behind the max-pooling that follows it
            where one does, as on VGG16.
        score: s, "logit" or "softmax".
    """

    outer: int = checked(10, check_count)
    inner_steps: int = checked(10, check_count)
    inner: str = checked("zero", one_of("zero", "min", "released"))
    layer: str | None = None
    score: Score = "logit"

    one_by_one = True
    parts = 11
    version = 2  # from zero in normalised space, both ends of each path, behind the last pooling, bicubic

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        total = torch.zeros((), device=task.images.device)
        origin = normalised_zero(task.images, task.model)
        for step in range(self.outer + 1):
            images = torch.lerp(origin, task.images, step / self.outer)
            head = cam_head(task, self.layer, images, pooled=True)
            for features in self._path(head.features).split(task.rows):
                leaf = features.detach().requires_grad_()
                (gradient,) = torch.autograd.grad(task.phi(head(leaf), copies=len(leaf)).sum(), leaf)
                total = total + (gradient * features.relu()).sum((0, 1))
            task.advance((step + 1) / (self.outer + 1))
        return upsample(total[None], task.images, "bicubic")

    def _path(self, features: Tensor) -> Tensor:
        baseline = {
            "zero": torch.zeros_like(features),
            "min": features.amin((2, 3), keepdim=True).expand_as(features),
            "released": features,
        }[self.inner]
        weights = torch.arange(self.inner_steps + 1, device=features.device).to(features) / self.inner_steps
        return torch.lerp(baseline, features, weights.view(-1, 1, 1, 1))


@dataclass(eq=False, kw_only=True)
class LiftCAM(Baseline):
    """Lift-CAM: ReLU(Σ_k c_k A_k), c_k = Σ over positions of the DeepLIFT contributions of A_k to s, from A = 0.

    Jung & Oh 2021, "Towards better explanations of class activation mapping". DeepLIFT with the Rescale rule (Shrikumar
    et al. 2017) through the head: a nonlinearity y = f(z) passes the multiplier Δy/Δz between the features and the zero
    baseline instead of its derivative; everything else passes its gradient, which is exact for what is linear, and for
    max-pooling of non-negative features over a zero baseline, but not for attention and LayerNorm behind tokens. On a
    head of pooling and one linear layer, c_k = w_k·mean(A_k). One forward pass, and one forward and backward pass of
    the head. Written from the papers: captum's DeepLift needs modules that are used once.

    Args:
        layer: Module whose output is A; by default the last spatial feature map.
        relu: Apply the final ReLU, as published; without it ties at zero are avoided.
        score: s, "logit" as published, or "softmax".
    """

    layer: str | None = None
    relu: bool = False
    score: Score = "logit"

    one_by_one = True

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        head = cam_head(task, self.layer, task.images)
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
