r"""Masks α, their area, and the steps that move them (paper, section 3.3).

For each quantile q the mask α ∈ [0,1]^P should cover a given area a: Σα = a·P. Three ways to hold it there:
a penalty β·|Σα − aP| inside the loss, exact Euclidean projection on {0 ≤ α ≤ 1, Σα = aP}, or, for ablations, an L1
weight or nothing at all. Masks are tensors (images, quantiles, channels, H, W).
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

_ROUNDS = 100
_SETTLED = 1e-6
_MANY, _STRIDE, _FEW_ROUNDS = 4096, 13, 12
_UNASKED = 16  # rounds where nobody asks whether they are needed; masks of photographs took at most 3
_MOMENTUM = 0.8


def project(values: Tensor, area: Tensor, lower: Tensor | None = None) -> Tensor:
    """The point of {lower ≤ α ≤ 1, mean α = area} nearest to `values`, in the last dimension.

    The solution is ``clamp(values − τ, lower, 1)`` for the one τ that meets the area. The mean falls with τ, linearly
    as long as the same elements lie strictly between their bounds: Newton's steps, kept inside a bracket and halving it
    where they would leave it, settle which these are; τ is then solved for in double precision.

    Args:
        values: Points to project, shape (..., P).
        area: Mean of each projected point, shape (...), between the mean of `lower` and 1.
        lower: Lower bounds, shape (..., P); zero if not given.
    """
    values, area = values.contiguous(), area.to(values)[..., None]  # sums of other layouts round otherwise
    tau = _shift(values, area, lower)
    alpha = _bounded(values - tau, lower)
    for _ in range(2):  # the second round takes up what rounding left, or pushed over a bound, in the first
        free = _free(alpha, lower)
        missing = (area - _mean(alpha)) * alpha.shape[-1] / free.sum(-1, keepdim=True).clamp(min=1)
        alpha = _bounded(alpha.addcmul_(free, missing.to(alpha)), lower)
    return alpha


def _shift(values: Tensor, area: Tensor, lower: Tensor | None, rounds: int = _ROUNDS) -> Tensor:
    """The τ for which the mean of ``clamp(values − τ, lower, 1)`` is `area`, or near it if `rounds` are too few."""
    low = values.amin(-1, keepdim=True) - 1
    high = (values if lower is None else values - lower).amax(-1, keepdim=True)
    if values.shape[-1] > _MANY:  # a part of the elements knows about where to start
        few = slice(None, None, _STRIDE)
        start = _shift(values[..., few], area, None if lower is None else lower[..., few], _FEW_ROUNDS)
    else:
        start = values.mean(-1, keepdim=True) - area  # right if no bound is met
    tau = start.clamp(low, high)
    memory = torch.empty_like(values)  # new memory in each round would cost more than the round
    for number in range(rounds if values.is_cpu else min(rounds, _UNASKED)):
        alpha = _bounded(torch.sub(values, tau, out=memory), lower)
        excess = alpha.mean(-1, keepdim=True) - area
        settled = excess.abs() <= _SETTLED  # each row for itself: others must not change its bits
        if values.is_cpu and bool(settled.all()):  # to ask another device would wait for all that it has still to do
            break
        low, high = torch.where(excess > 0, tau, low), torch.where(excess > 0, high, tau)
        free = _free(alpha, lower).sum(-1, keepdim=True)
        newton = tau + excess * values.shape[-1] / free.clamp(min=1)
        # on flat ground, and now and then, the bracket is halved: a step between kinks may not get far
        inside = (free > 0) & (newton > low) & (newton < high) & (number % 4 != 3)
        tau = torch.where(settled, tau, torch.where(inside, newton, (low + high) / 2))
    return tau


def project_nested(values: Tensor, areas: Tensor) -> Tensor:
    """Project masks so that each lies on top of the next smaller one.

    The mask of the smallest area is projected first, each next one on {α of the smaller ≤ α ≤ 1, mean α = area}.

    Args:
        values: Shape (images, quantiles, P).
        areas: Shape (quantiles,).
    """
    order = areas.argsort()
    masks: list[Tensor] = []
    for mask, area in zip(values[:, order].unbind(1), areas[order].unbind(), strict=True):
        masks.append(project(mask, area.expand(len(values)), masks[-1] if masks else None))
    return torch.empty_like(values).index_copy_(1, order, torch.stack(masks, 1))


def _bounded(values: Tensor, lower: Tensor | None) -> Tensor:
    """`values`, which may be overwritten, between their bounds."""
    return values.clamp_(0, 1) if lower is None else torch.maximum(values, lower, out=values).clamp_(max=1)


def _free(alpha: Tensor, lower: Tensor | None) -> Tensor:
    """1 where a mask lies strictly between its bounds, else 0; in floating point, which is quicker than booleans."""
    if lower is None:
        return alpha.sign().sub_(alpha.floor())
    return (alpha - lower).sign_().sub_(alpha.floor()).clamp_(min=0)  # bounds may meet


def _mean(alpha: Tensor) -> Tensor:
    # a float32 sum of 50,000 pixels is off by more than the area may be; MPS has no float64
    return alpha.mean(-1, keepdim=True, dtype=None if alpha.device.type == "mps" else torch.float64)


class Update(Protocol):
    """One way of moving masks against a gradient while keeping an eye on their area."""

    alpha: Tensor

    def step(self, grad: Tensor, frozen: Tensor | None) -> None:
        """Move `alpha` against `grad`, the loss gradient without any penalty; masks marked `frozen` stay."""
        ...


class AdamUpdate:
    r"""Adam on −φ + β·penalty with α clamped to [0,1] after each step: the paper's optimiser.

    With `nested` the increments δ_i = α_{q_i} − α_{q_{i+1}} ≥ 0 are what Adam moves (paper, section 3.3).

    Args:
        alpha: The starting masks.
        areas: Area asked of each mask, shape (quantiles,); ``None`` for a plain weight on the area.
        lr: Step size.
        beta: Weight of the penalty.
        reduction: "sum" or "mean" of α in the penalty.
        nested: Keep the mask of a smaller area below that of a larger one.
    """

    def __init__(
        self, alpha: Tensor, areas: Tensor | None, *, lr: float, beta: float, reduction: str, nested: bool
    ) -> None:
        self.alpha = alpha
        self._areas = areas
        self._weight = beta / (alpha[0, 0].numel() if reduction == "mean" else 1)
        # from the largest area down to the smallest, so that α is the sum of the increments from there on
        self._order = areas.argsort(descending=True) if nested and areas is not None else None
        self._variable = self._increments()
        self._adam = torch.optim.Adam([self._variable], lr=lr)

    def step(self, grad: Tensor, frozen: Tensor | None) -> None:
        """Take one Adam step and project on the box."""
        grad = grad + self._penalty_gradient()
        self._variable.grad = grad if self._order is None else grad[:, self._order].cumsum(1)
        self._adam.step()
        self._variable.grad = None
        if self._order is None:
            alpha = self._variable.clamp(0, 1)
        else:
            total = self._variable.clamp(min=0).flip(1).cumsum(1).flip(1).clamp(max=1)
            alpha = torch.empty_like(total).index_copy_(1, self._order, total)
        self.alpha = alpha if frozen is None else torch.where(frozen[..., None, None, None], self.alpha, alpha)
        self._variable.copy_(self._increments())

    def _penalty_gradient(self) -> Tensor | float:
        if self._areas is None:
            return self._weight  # d/dα of β·Σα, as α ≥ 0
        excess = self.alpha.flatten(2).mean(-1) - self._areas
        return self._weight * excess.sign()[..., None, None, None]

    def _increments(self) -> Tensor:
        if self._order is None:
            return self.alpha.clone()
        ordered = self.alpha[:, self._order]
        return torch.cat([ordered[:, :-1] - ordered[:, 1:], ordered[:, -1:]], 1)


def _even(grad: Tensor) -> Tensor:
    """Gradients divided by their mean magnitude over the mask; zero stays zero."""
    scale = grad.abs().flatten(2).mean(-1)[..., None, None, None]
    return grad / scale.clamp(min=torch.finfo(grad.dtype).tiny)


class _Pace:
    """Directions averaged with momentum, and a step size that falls to zero along half a cosine."""

    def __init__(self, lr: float, steps: int) -> None:
        self._lr, self._steps, self._taken = lr, steps, 0
        self._average: Tensor | None = None

    def step(self, direction: Tensor) -> Tensor:
        """How far to go now."""
        before = torch.zeros_like(direction) if self._average is None else self._average
        self._average = torch.lerp(direction, before, _MOMENTUM)
        rate = self._lr * (1 + math.cos(math.pi * self._taken / self._steps)) / 2
        self._taken += 1
        return rate / (1 - _MOMENTUM**self._taken) * self._average


class ProjectedUpdate:
    """Steps proportional to the gradient, then exact projection on the area: the quantile always holds.

    Each gradient is divided by its mean magnitude over the mask, so that `lr` is how far an average pixel moves at the
    start. (Dividing elementwise, as Adam does, would move pixels that do not matter as far as the object.) Gradients
    are averaged with momentum, since a clipped gradient changes from step to step as units cross their reference, and
    the step size falls to zero along half a cosine, so that the mask settles.

    Args:
        alpha: The starting masks.
        areas: Area of each mask, shape (quantiles,).
        lr: Mean step of a pixel at the start.
        steps: How many steps there will be.
        nested: Keep the mask of a smaller area below that of a larger one.
    """

    def __init__(self, alpha: Tensor, areas: Tensor, *, lr: float, steps: int, nested: bool) -> None:
        self._areas, self._nested = areas, nested
        self._pace = _Pace(lr, steps)
        self.alpha = self._project(alpha)

    def step(self, grad: Tensor, frozen: Tensor | None) -> None:
        """Move against the averaged gradient and project."""
        alpha = self._project(self.alpha - self._pace.step(_even(grad)))
        self.alpha = alpha if frozen is None else torch.where(frozen[..., None, None, None], self.alpha, alpha)

    def _project(self, alpha: Tensor) -> Tensor:
        flat = alpha.flatten(2)
        if self._nested:
            return project_nested(flat, self._areas).view_as(alpha)
        return project(flat, self._areas.expand(flat.shape[:2])).view_as(alpha)


class SharedUpdate:
    """One field u for all masks of an image: a mask is the projection of u on its area.

    The gradients of the masks, each divided by its mean magnitude, are averaged into one direction for u, so that what
    is learnt at one area serves all of them, and masks lie inside one another. Momentum and step size are those of
    `ProjectedUpdate`. A mask whose gradient is zero, because it was not tried at this step, does not count.

    Args:
        alpha: The starting masks; u starts at 0, where each mask is uniform.
        areas: Area of each mask, shape (quantiles,).
        lr: Mean step of a pixel of u at the start.
        steps: How many steps there will be.
    """

    def __init__(self, alpha: Tensor, areas: Tensor, *, lr: float, steps: int) -> None:
        self._areas, self._shape = areas, alpha.shape
        self._pace = _Pace(lr, steps)
        self._field = torch.zeros_like(alpha[:, :1])
        self.alpha = self._masks()

    def step(self, grad: Tensor, frozen: Tensor | None) -> None:
        """Move the field against the averaged gradient and project it on every area; no mask is frozen by itself."""
        self._field = self._field - self._pace.step(_even(_even(grad).sum(1, keepdim=True)))
        self.alpha = self._masks()

    def _masks(self) -> Tensor:
        flat = self._field.flatten(2).expand(-1, self._shape[1], -1)
        return project(flat, self._areas.expand(flat.shape[:2])).view(self._shape)
