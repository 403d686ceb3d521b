"""A method as the metrics call it that ask it for maps: of other classes, seeds, weights and pictures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fei.core.checks import check_finite, explained_failure
from fei.core.scoring import Target, check_target, logits_of, named_target
from fei.errors import InputError
from fei.methods import Method, create
from fei.metrics.perturbation import check_maps
from fei.progress import Progress
from fei.references import ReferenceSpec

AnyMethod = str | Method | Callable[..., Tensor]
Attribute = Callable[[nn.Module, Tensor, Target, Progress], Tensor]
UNITS = 100  # ticks of a progress bar for each call of a method


def attribution(
    method: AnyMethod, reference: ReferenceSpec, generator: torch.Generator | None, rows: int | None
) -> Attribute:
    """A method as a function of (model, inputs, target, progress) whose maps (N, 1, H, W) have been checked.

    Args:
        method: A name, a method, or any callable on (model, inputs, target), which gets the keywords it takes.
        reference: R.
        generator: Supplies the method's seed.
        rows: Rows in one forward pass.
    """
    made: Callable[..., Tensor] = create(method) if isinstance(method, str) else method
    if not callable(made):
        raise InputError(f"`method` must be a name or a callable on (model, inputs, target); got {method!r}.")
    parameters = inspect.signature(made).parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    known = {parameter.name for parameter in parameters}
    if reference is not None and not takes_all and "reference" not in known:
        raise InputError("This method takes no reference; leave `reference` out.")

    def attribute(model: nn.Module, inputs: Tensor, target: Target, progress: Progress) -> Tensor:
        offered: dict[str, Any] = {
            "reference": reference,
            # a fresh one each time: every call is to draw the same
            "generator": None if generator is None else torch.Generator().manual_seed(generator.initial_seed()),
            "batch_size": rows,
            "progress": progress,
        }
        taken = offered if takes_all else {name: value for name, value in offered.items() if name in known}
        with torch.inference_mode(False), torch.enable_grad():
            return check_maps(made(model, inputs, target, **taken), inputs)[:, None]

    return attribute


@torch.no_grad()
def class_logits(model: nn.Module, x: Tensor, rows: int) -> Tensor:
    """The logits of images, (N, classes)."""
    with explained_failure(x):
        parts = [logits_of(model(chunk.clone()), len(chunk)) for chunk in x.split(rows)]
    logits: Tensor = check_finite(torch.cat(parts))
    return logits


def chosen_classes(model: nn.Module, logits: Tensor, target: Target) -> Tensor:
    """The class of each image that is explained: the top one where none is given."""
    given = check_target(named_target(model, target), len(logits), logits.shape[1])
    return logits.argmax(1) if given is None else given.to(logits.device)
