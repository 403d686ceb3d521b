"""Multinomial logistic regression on features, and its weights for features as they are."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

_GRADIENT_TOLERANCE, _CHANGE_TOLERANCE = 1e-7, 1e-12


@dataclass(frozen=True)
class Fit:
    """A linear classifier.

    Attributes:
        weight: One row for each class, (classes, features), in double precision.
        bias: One for each class, or None.
        weight_decay: The λ it was fitted with.
        scale: What the features were divided by when their weights were penalised.
        steps: How many times the objective was evaluated.
        interrupted: Whether Ctrl-C ended the work.
    """

    weight: Tensor
    bias: Tensor | None
    weight_decay: float
    scale: float
    steps: int
    interrupted: bool

    def logits(self, features: Tensor) -> Tensor:
        """The logits (N, classes) of features (N, features)."""
        return F.linear(features.to(self.weight), self.weight, self.bias)


def fit_logistic(
    features: Tensor,
    labels: Tensor,
    classes: int,
    weight_decay: float,
    *,
    bias: bool = True,
    steps: int = 500,
    on_step: Callable[[], None] = lambda: None,
) -> Fit:
    """Minimise (1/N) Σ cross-entropy + λ/2 ‖W‖² by L-BFGS on all features at once; the bias is free.

    It starts at zero, so nothing is random, and the logits of any features average to zero over the classes. Ctrl-C
    ends it with the lowest objective so far.

    Args:
        features: (N, features), on the CPU.
        labels: (N,) indices of classes.
        classes: How many there are.
        weight_decay: λ.
        bias: Whether there is one.
        steps: The most iterations; it ends before when it has converged.
        on_step: Called after each evaluation of the objective, of which an iteration takes one or a few.

    Returns:
        The fit, with a scale of 1.
    """
    x = features.double()
    weight = torch.zeros(classes, x.shape[1], dtype=torch.float64, requires_grad=True)
    offset = torch.zeros(classes, dtype=torch.float64, requires_grad=bias)
    solver = torch.optim.LBFGS(
        [weight, offset] if bias else [weight],
        max_iter=steps,
        tolerance_grad=_GRADIENT_TOLERANCE,
        tolerance_change=_CHANGE_TOLERANCE,
        history_size=20,
        line_search_fn="strong_wolfe",
    )
    best, lowest, evaluations, interrupted = (weight.detach().clone(), offset.detach().clone()), float("inf"), 0, False

    def objective() -> Tensor:
        nonlocal best, lowest, evaluations
        solver.zero_grad()
        loss = F.cross_entropy(F.linear(x, weight, offset), labels) + weight_decay / 2 * weight.square().sum()
        torch.autograd.backward(loss)
        if loss.item() < lowest:
            best, lowest = (weight.detach().clone(), offset.detach().clone()), loss.item()
        evaluations += 1
        on_step()
        return loss

    try:
        solver.step(objective)
    except KeyboardInterrupt:
        interrupted = True
    return Fit(best[0], best[1] if bias else None, weight_decay, 1.0, evaluations, interrupted)


def fit_standardized(
    features: Tensor,
    labels: Tensor,
    classes: int,
    weight_decay: float,
    *,
    bias: bool = True,
    steps: int = 500,
    on_step: Callable[[], None] = lambda: None,
) -> Fit:
    """Fit on features that are centred and divided by one common scale; the weights are for those as given.

    One scale, the root mean variance, and not one for each feature: from one image a class these are mere noise.
    Without a bias the features cannot be centred, and the scale is their root mean square.

    Args:
        features: As for `fit_logistic`, and so are the others.
        labels: (N,) indices of classes.
        classes: How many there are.
        weight_decay: λ, for the weights of the scaled features.
        bias: Whether there is one.
        steps: The most iterations.
        on_step: Called after each evaluation of the objective.

    Returns:
        The fit.
    """
    x = features.double()
    mean = x.mean(0) if bias else torch.zeros(x.shape[1], dtype=torch.float64)
    scale = (x - mean).square().mean().sqrt().item() or 1.0
    fit = fit_logistic((x - mean) / scale, labels, classes, weight_decay, bias=bias, steps=steps, on_step=on_step)
    weight = fit.weight / scale
    return replace(fit, weight=weight, bias=None if fit.bias is None else fit.bias - weight @ mean, scale=scale)
