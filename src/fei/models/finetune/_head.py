"""The weights of a new last layer: fitted to features, and put into the network."""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fei.data import Dataset
from fei.models.classifier import Classifier
from fei.models.finetune._features import Features
from fei.models.finetune._logistic import Fit, fit_standardized
from fei.models.layers import find_head
from fei.progress import Progress, reporter

WEIGHT_DECAY = 1e-3
"""λ where there are too few images to choose it. From one image a class, accuracy hardly depends on it."""

WEIGHT_DECAYS = (1e-1, 1e-2, 1e-3, 1e-4)
"""What λ is chosen from where there are enough."""

_UNTRAINED = -30.0  # the logit of a class without an image, where those of the others average to zero


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

    Args:
        features: What it sees of each image.
        held: Those of the images that choose λ by their cross-entropy, if there are any.
        weight_decay: λ; chosen if not given.
        bias: Whether the layer has one.
        refit: Whether the images held out are fitted as well in the end.
        steps: The most iterations.
        progress: Show a bar, or call this on (done, total).

    Returns:
        The fit.
    """
    x, labels, classes = features.values, features.labels, len(features.classes)
    choices = WEIGHT_DECAYS if weight_decay is None and held is not None else (weight_decay or WEIGHT_DECAY,)
    held_ids = {item.id for item in held or ()}
    out = torch.tensor([item.id in held_ids for item in features.items])
    with reporter(progress, (len(choices) + refit) * steps) as tick:

        def fit(chosen: Tensor, choice: float) -> Fit:
            return fit_standardized(x[chosen], labels[chosen], classes, choice, bias=bias, steps=steps, on_step=tick)

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


def install(classifier: Classifier, features: Features, fit: Fit, classes: int) -> bool:
    """Put a fit into a network's last layer.

    Args:
        classifier: The network, changed in place.
        features: What was fitted.
        fit: For the classes that occur.
        classes: How many outputs the layer has; those of classes that do not occur are made negligible.

    Returns:
        Whether the network's logits are then those of the fit, but for a constant that all classes of an image share.
    """
    _, head = find_head(classifier)
    mean = features.values.double().mean(0)
    weight = torch.zeros(classes, len(mean), dtype=torch.float64)
    if fit.bias is None:  # what is far from zero on images is all that can set a class apart
        weight += _UNTRAINED * mean / mean.square().sum().clamp_min(1e-12)
    weight[features.classes] = fit.weight
    _set(head.weight, weight.view_as(head.weight))
    if head.bias is None or fit.bias is None:
        return _agrees(classifier, features, fit)
    bias = torch.full((classes,), _UNTRAINED, dtype=torch.float64)
    bias[features.classes] = fit.bias
    _set(head.bias, bias)
    if _agrees(classifier, features, fit):
        return True
    lowest = _lowest_output(classifier, head, features.sample)
    _set(head.bias, bias + 2 * max(-lowest, 0.0))  # a ReLU after the layer then has nothing to cut off
    if _agrees(classifier, features, fit):
        return True
    _set(head.bias, bias)
    return False


@torch.no_grad()
def _set(parameter: Tensor, values: Tensor) -> None:
    parameter.copy_(values)


@torch.no_grad()
def _agrees(classifier: Classifier, features: Features, fit: Fit) -> bool:
    logits = classifier(features.sample).double().cpu()[:, features.classes]
    expected = fit.logits(features.values[: len(features.sample)])
    difference = logits - expected
    apart = (difference - difference.mean(1, keepdim=True)).abs().max()
    return bool(apart <= 0.02 * (1 + expected.abs().max()))


@torch.no_grad()
def _lowest_output(classifier: Classifier, layer: nn.Module, sample: Tensor) -> float:
    lowest: list[float] = []
    handle = layer.register_forward_hook(lambda _, __, output: lowest.append(output.min().item()))
    try:
        classifier(sample)
    finally:
        handle.remove()
    return lowest[-1]
