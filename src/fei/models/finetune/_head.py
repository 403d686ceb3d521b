"""The weights of a new last layer: multinomial logistic regression on its features, put into the network."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fei.data import Dataset
from fei.models.classifier import Classifier
from fei.models.finetune._features import Features
from fei.models.structure import find_head
from fei.progress import Progress, reporter

WEIGHT_DECAY = 1e-3
"""λ where there are too few images to choose it. From one image per class, accuracy hardly depends on it."""

WEIGHT_DECAYS = (1e-1, 1e-2, 1e-3, 1e-4)
"""What λ is chosen from where there are enough."""

_GRADIENT_TOLERANCE, _CHANGE_TOLERANCE = 1e-7, 1e-12
_UNTRAINED = -30.0  # the logit of a class without an image, where those of the others average to zero


@dataclass(frozen=True)
class Fit:
    """A linear classifier."""

    weight: Tensor  # one row for each class, (classes, features), in double precision
    bias: Tensor | None  # one for each class, or None
    weight_decay: float  # the λ it was fitted with
    scale: float  # what the features were divided by when their weights were penalised
    steps: int  # how many times the objective was evaluated
    interrupted: bool  # whether Ctrl-C ended the work

    def logits(self, features: Tensor) -> Tensor:
        """The logits (N, classes) of features (N, features)."""
        return F.linear(features.to(self.weight), self.weight, self.bias)

    def accuracy(self, features: Features) -> float:
        """The share of images that it gets right."""
        return (self.logits(features.values).argmax(1) == features.labels).double().mean().item()


def fit_logistic(
    features: Tensor,
    labels: Tensor,
    classes: int,
    weight_decay: float,
    *,
    standardize: bool = False,
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
        standardize: Fit on features that are centred and divided by one common scale, the root mean variance; the
            weights returned are for those as given. One scale for each feature would be only noise where there is one
            image per class. Without a bias the features cannot be centred, and the scale is their root mean square.
        bias: Whether there is one.
        steps: The most iterations; it ends before when it has converged.
        on_step: Called after each evaluation of the objective, of which an iteration takes one or a few.
    """
    x = features.double()
    mean = x.mean(0) if standardize and bias else x.new_zeros(x.shape[1])
    scale = (x - mean).square().mean().sqrt().item() or 1.0 if standardize else 1.0
    x = (x - mean) / scale
    weight = x.new_zeros(classes, x.shape[1]).requires_grad_()
    offset = x.new_zeros(classes).requires_grad_(bias)
    solver = torch.optim.LBFGS(
        [weight, offset] if bias else [weight],
        max_iter=steps,
        tolerance_grad=_GRADIENT_TOLERANCE,
        tolerance_change=_CHANGE_TOLERANCE,
        history_size=20,
        line_search_fn="strong_wolfe",
    )
    best, lowest, evaluations, interrupted = (weight.detach().clone(), offset.detach().clone()), math.inf, 0, False

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
    rows = best[0] / scale
    return Fit(rows, best[1] - rows @ mean if bias else None, weight_decay, scale, evaluations, interrupted)


def fit_head(
    features: Features,
    held: Dataset | None,
    weight_decay: float | None,
    *,
    bias: bool,
    refit: bool,
    steps: int,
    progress: bool | Progress,
) -> Fit:
    """Fit the last layer for the classes that occur.

    If λ is not given, the images held out choose it by their cross-entropy; with `refit` they are fitted as well in the
    end.
    """
    x, labels, classes = features.values, features.labels, len(features.classes)
    choices = WEIGHT_DECAYS if weight_decay is None and held is not None else (weight_decay or WEIGHT_DECAY,)
    held_ids = {item.id for item in held or ()}
    out = torch.tensor([item.id in held_ids for item in features.items])
    with reporter(progress, (len(choices) + refit) * steps) as tick:

        def fit(chosen: Tensor, choice: float) -> Fit:
            given = (x[chosen], labels[chosen], classes, choice)
            return fit_logistic(*given, standardize=True, bias=bias, steps=steps, on_step=tick)

        if held is None:
            return fit(~out, choices[0])
        best, lowest = None, math.inf
        for choice in choices if len(choices) > 1 or not refit else ():
            found = fit(~out, choice)
            loss = F.cross_entropy(found.logits(x[out]), labels[out]).item()
            if best is None or loss < lowest:
                best, lowest = found, loss
            if found.interrupted:
                return replace(best, interrupted=True)
        if best is not None and not refit:
            return best
        return fit(torch.ones_like(out), choices[0] if best is None else best.weight_decay)


@torch.no_grad()
def install(classifier: Classifier, features: Features, fit: Fit, classes: int) -> bool:
    """Put a fit into a network's last layer; the outputs of classes that do not occur are made negligible.

    Returns whether the network's logits are then the fit's, but for a constant that all classes of an image share.
    """
    head = find_head(classifier)[1]
    mean = features.values.double().mean(0)
    weight = torch.zeros(classes, len(mean), dtype=torch.float64)
    if fit.bias is None:  # only what is far from zero on images can set a class apart
        weight += _UNTRAINED * mean / mean.square().sum().clamp_min(1e-12)
    weight[features.classes] = fit.weight
    head.weight.copy_(weight.view_as(head.weight))
    if head.bias is None or fit.bias is None:
        return _agrees(classifier, features, fit)
    bias = torch.full((classes,), _UNTRAINED, dtype=torch.float64)
    bias[features.classes] = fit.bias
    head.bias.copy_(bias)
    lowest: list[float] = []
    with head.register_forward_hook(lambda _, __, output: lowest.append(output.min().item())):
        if _agrees(classifier, features, fit):
            return True
    head.bias.copy_(bias + 2 * max(-lowest[-1], 0.0))  # a ReLU after the layer then has nothing to cut off
    if _agrees(classifier, features, fit):
        return True
    head.bias.copy_(bias)
    return False


def _agrees(classifier: Classifier, features: Features, fit: Fit) -> bool:
    logits = classifier(features.sample).double().cpu()[:, features.classes]
    expected = fit.logits(features.values[: len(features.sample)])
    difference = logits - expected
    apart = (difference - difference.mean(1, keepdim=True)).abs().max()
    return bool(apart <= 0.02 * (1 + expected.abs().max()))
