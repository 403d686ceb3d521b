"""Methods that read the input gradient: of the image, of noisy copies, along paths, or with guided ReLUs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from captum import attr
from torch import Tensor, nn

from fei.core.checks import check_count, is_number
from fei.core.dataflow import Call
from fei.core.pathway import visit_sites
from fei.core.scoring import Score
from fei.core.sites import Site, unreachable
from fei.errors import InputError, ModelError
from fei.methods._baseline import Baseline, Survey, Task, checked
from fei.references import Reference, References

_RELUS = frozenset({"relu", "relu_", "relu6"})
_CLAMPS = frozenset({"hardtanh", "hardtanh_"})  # what nn.ReLU6 calls


def _check_noise(name: str, value: Any) -> None:
    if not is_number(value) or value < 0:
        raise InputError(f"`{name}` must be a share of the image's range, 0 or more; got {value!r}.")


def _row_gradients(task: Task, rows: Tensor) -> Tensor:
    """∂s/∂x of each row, all rows being versions of the task's one image."""
    rows = rows.detach().requires_grad_()
    (gradients,) = torch.autograd.grad(task.phi(task.run(rows), copies=len(rows)).sum(), rows)
    return gradients


@dataclass(eq=False, kw_only=True)
class Saliency(Baseline):
    """Saliency: the largest absolute gradient over the colour channels, max_c |∂s/∂x_c|.

    Simonyan, Vedaldi & Zisserman 2013, "Deep inside convolutional networks"; computed by captum (BSD-3). One forward
    and one backward pass.

    Args:
        score: s, "logit" as in the original, or "softmax".
    """

    score: Score = "logit"

    observes = True

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        gradient: Tensor = attr.Saliency(
            lambda images: task.phi(task.observe(lambda: task.model(images.clone())))
        ).attribute(task.images.requires_grad_(), abs=True)
        return gradient.amax(1)


@dataclass(eq=False, kw_only=True)
class SmoothGrad(Baseline):
    """SmoothGrad: max_c |mean_j ∂s(x + ε_j)/∂x_c|, ε_j ~ N(0, σ²) with σ = noise·(max x − min x).

    Smilkov et al. 2017, "SmoothGrad: removing noise by adding noise". `samples` forward and backward passes. The mean
    is taken over signed gradients and the absolute value afterwards, as in the original; so with no noise this is
    `Saliency`. Written from the paper: each image has a generator of its own, where captum's NoiseTunnel draws from the
    global one.

    Args:
        samples: Noisy copies of the image.
        noise: σ as a share of the image's own range; the original recommends .1 to .2.
        score: s, "logit" as in the original, or "softmax".
    """

    samples: int = checked(50, check_count)
    noise: float = checked(0.15, _check_noise)
    score: Score = "logit"

    one_by_one = True
    parts = 10

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        image = task.images[0]
        sigma = self.noise * (image.amax() - image.amin())
        generator = task.generator("smoothgrad")
        total = torch.zeros_like(image, dtype=torch.promote_types(image.dtype, torch.float32))
        for first in range(0, self.samples, task.rows):
            count = min(task.rows, self.samples - first)
            # drawn copy by copy: the draws then do not depend on how many copies share a pass
            noise = torch.stack([torch.randn(image.shape, generator=generator) for _ in range(count)])
            total += _row_gradients(task, image + sigma * noise.to(image)).to(total).sum(0)
            task.advance((first + count) / self.samples)
        return (total / self.samples).abs().amax(0, keepdim=True)


@dataclass(eq=False, kw_only=True)
class IntegratedGradients(Baseline):
    """Integrated gradients: Σ_c (x − R)_c · ∫₀¹ ∂s(R + t(x − R))/∂x_c dt, by the Gauss-Legendre rule.

    Sundararajan, Taly & Yan 2017, "Axiomatic attribution for deep networks"; computed by captum (BSD-3). `steps`
    forward and backward passes. The path starts at the reference R of the call; zero in a normalised input space would
    be the mean colour, not black.

    Args:
        steps: Points of the integral.
        score: s, "logit" or "softmax".
    """

    steps: int = checked(50, check_count)
    score: Score = "logit"

    one_by_one = True
    parts = 10

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        attribution: Tensor = attr.IntegratedGradients(task.scored(self.steps)).attribute(
            task.images,
            baselines=task.reference.expand_as(task.images),
            n_steps=self.steps,
            internal_batch_size=task.rows,
        )
        return attribution.sum(1)


@dataclass(eq=False, kw_only=True)
class GradientShap(Baseline):
    """GradientSHAP: Σ_c mean_j (x − R_j)_c · ∂s(R_j + t_j(x − R_j))/∂x_c, t_j ~ U(0, 1), R_j a random colour each.

    Lundberg & Lee 2017, "A unified approach to interpreting model predictions"; Erion et al. 2021 as expected
    gradients. `samples` forward and backward passes. The method needs a distribution of baselines and not one
    reference, so every sample draws a colour as the default reference R is drawn (R_1 is that R), and the reference
    of the call is not used. The map sums to s(x) − mean_j s(R_j) up to the error of sampling t. Written from the
    papers.

    Args:
        samples: Pairs (R_j, t_j); fewer than 20 colours are a poor distribution.
        score: s, "logit" or "softmax".
    """

    samples: int = checked(50, check_count)
    score: Score = "logit"

    one_by_one = True
    parts = 10

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        image = task.images[0]
        drawn = References(Reference("color", resample=True), task.images, task.digests, task.model, task.seed)
        colours = torch.cat([drawn.at(j) for j in range(self.samples)])
        places = torch.rand((self.samples, 1, 1, 1), generator=task.generator("gradient-shap")).to(image)
        total = torch.zeros_like(image, dtype=torch.promote_types(image.dtype, torch.float32))
        batches = zip(colours.split(task.rows), places.split(task.rows), strict=True)
        for number, (colour, place) in enumerate(batches, start=1):
            difference = image - colour
            total += (difference * _row_gradients(task, colour + place * difference)).to(total).sum(0)
            task.advance(min(1.0, number * task.rows / self.samples))
        return (total / self.samples).sum(0, keepdim=True)


@dataclass(eq=False, kw_only=True)
class GuidedBackprop(Baseline):
    """Guided backpropagation: max_c |∂s/∂x_c| where every ReLU also blocks negative gradients, γ → max(γ, 0)·[h > 0].

    Springenberg et al. 2015, "Striving for simplicity: the all convolutional net". Two forward passes and a backward
    pass. ReLU and ReLU6 are found in the data flow, so in-place, reused and functional ones count (captum's method
    sees nn.ReLU modules only). Other activations, among them a clamp at zero written by hand, keep their gradient.
    The map is known to depend little on the class and the upper layers (Adebayo et al. 2018). Written from the paper.

    Args:
        score: s, "logit" as in the original, or "softmax".
    """

    score: Score = "logit"

    observes = True

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        images = task.images.detach().requires_grad_()
        sites = _relu_sites(task.survey)
        output = task.observe(lambda: visit_sites(task.model, sites, images, _block_negative_gradients))
        (gradients,) = torch.autograd.grad(task.phi(output).sum(), images)
        return gradients.abs().amax(1)


def _relu_sites(survey: Survey) -> list[Site]:
    """Every value that comes out of a ReLU and has a gradient, in execution order."""
    relus = [call for call in survey.flow.calls if is_relu(survey.model, call) and call.differentiable]
    hidden = unreachable(survey.flow)
    if not relus:
        seen = f" ({'; '.join(hidden)})" if hidden else ""
        raise ModelError(
            f"Guided backpropagation found no ReLU in the network{seen}, so its map would be the plain gradient; use "
            "the method saliency."
        )
    if hidden:
        warnings.warn(f"not covered by guided backpropagation: {'; '.join(hidden)}", stacklevel=4)
    return [Site(call.owner[0], rank, call.key, activation=True) for rank, call in enumerate(relus)]


def is_relu(model: nn.Module, call: Call) -> bool:
    """Whether a call of a network computes a ReLU or ReLU6, as a module or as a function."""
    if call.function in _CLAMPS:
        module = model.get_submodule(call.owner[0])
        return isinstance(module, nn.Hardtanh) and module.min_val == 0
    return call.function in _RELUS


def _block_negative_gradients(_: int, value: Tensor) -> None:
    if value.requires_grad:
        value.register_hook(lambda gradient: gradient.clamp(min=0))
