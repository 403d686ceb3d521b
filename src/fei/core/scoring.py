"""From a network's output to φ: the number an attribution explains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fei.core.checks import check_choice
from fei.errors import InputError, ModelError

Target = int | str | Sequence[int | str] | Tensor | Callable[[Any], Tensor] | None
Score = str | Callable[[Tensor, Tensor], Tensor]
SCORES = ("softmax", "sigmoid", "logit")


def logits_of(output: Any, rows: int) -> Tensor:
    """The logits (rows, classes) in a network's output: the output itself or its ``.logits``."""
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise ModelError(
            f"The model returned {type(output).__name__}; expected a tensor of logits (N, classes) or an object with "
            "`.logits`; wrap the model in a module that returns them."
        )
    if logits.ndim == 1 and len(logits) == rows:
        logits = logits[:, None]
    if logits.ndim != 2 or len(logits) != rows:
        raise ModelError(
            f"The model's output has shape {tuple(logits.shape)}; expected (N, classes) with N = {rows}; "
            "wrap the model in a module that returns one row of logits per image."
        )
    return logits if logits.dtype == torch.float64 else logits.float()


def top_classes(probabilities: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values of the last dimension and their classes, of equal ones the first class first."""
    values, classes = probabilities.sort(dim=-1, descending=True, stable=True)
    return values[..., :count], classes[..., :count]


def check_score(score: Score, classes: int | None = None) -> None:
    """Refuse an unknown score, and a softmax over a single logit."""
    if not callable(score):
        check_choice("score", score, SCORES, ", or pass a callable")
    if score == "softmax" and classes == 1:
        raise InputError(
            "The softmax of a single logit is always 1; pass score='sigmoid' or score='logit' for this network."
        )


def named_target(model: nn.Module, target: Target) -> Target:
    """A target whose names of classes have become indices, by the model's own `index`.

    Raises:
        InputError: If the model has no names for its classes, or not this one.
    """
    several = isinstance(target, (list, tuple))
    words: list[Any] = list(target) if several else [target]  # type: ignore[arg-type]
    if not any(isinstance(word, str) for word in words):
        return target
    index = getattr(model, "index", None)
    if not callable(index):
        raise InputError(
            f"The target {target!r} is a name, and this network has no names of classes; give an index, or wrap it in "
            "fei.models.Classifier with labels."
        )
    found = [index(word) if isinstance(word, str) else word for word in words]
    return found if several else found[0]


def check_target(target: Target, images: int, classes: int | None = None) -> Tensor | None:
    """An explicit target as a long tensor, one class per image; ``None`` if the network is to choose or decide.

    Where the number of classes is not known yet, `check_range` is left to the caller.
    """
    if target is None or callable(target):
        return None
    values = class_indices(target, "`target` must be a class index, one index per image, or a callable")
    if values.ndim == 1 and len(values) not in {1, images}:
        raise InputError(
            f"`target` has {len(values)} entries for {images} image(s); give one for each, or one for all."
        )
    values = values.long().expand(images) if values.numel() == 1 else values.long()
    if classes is not None:
        check_range(values, classes)
    return values


def class_indices(target: Any, expected: str) -> Tensor:
    """Class indices as an integer tensor of at most one dimension; else an error that begins with what was expected."""
    try:
        values = torch.as_tensor(target)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"{expected}; got {type(target).__name__}, which is not made of whole numbers.") from error
    if values.ndim > 1 or values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise InputError(f"{expected}; got {values.dtype} of shape {tuple(values.shape)}.")
    return values


def check_range(values: Tensor, classes: int) -> None:
    """Refuse class indices that the network does not have."""
    outside = values[(values < 0) | (values >= classes)]
    if len(outside):
        raise InputError(f"The target {outside[0].item()} is out of range; the network has classes 0 to {classes - 1}.")


def evaluate(output: Any, target: Target, chosen: Tensor, score: Score) -> Tensor:
    """φ for each row of a network's output.

    Args:
        output: What the network returned.
        target: A callable target scores the output itself; anything else has been resolved into `chosen`.
        chosen: Class index of each row.
        score: "softmax" probability, "sigmoid" probability, raw "logit", or a callable on (logits, class indices).
    """
    rows = len(chosen)
    if callable(target):
        phi, source = target(output), "`target`"
    else:
        logits = logits_of(output, rows)
        if callable(score):
            phi, source = score(logits, chosen), "`score`"
        else:
            if score != "logit":
                logits = logits.softmax(1) if score == "softmax" else logits.sigmoid()
            return logits.gather(1, chosen[:, None])[:, 0]
    if not isinstance(phi, Tensor) or phi.shape != (rows,):
        got = tuple(phi.shape) if isinstance(phi, Tensor) else type(phi).__name__
        raise InputError(f"The callable {source} must return one number per row, shape ({rows},); got {got}.")
    return phi


def relative_score(output: Any, target: Target, chosen: Tensor, score: Score, rivals: float = 1.0) -> Tensor:
    """A number whose gradient has the direction of φ's, also where a softmax is so near 1 that 1 − φ vanishes.

    ∂φ_c/∂z is φ_c·Σ_{j≠c} p_j at c and −φ_c·p_j at j ≠ c: up to its scale that of z_c − Σ_{j≠c} s_j·z_j, where s, held
    fixed, is the softmax over the other classes. With `rivals` below 1 these count for less; at 0 it is the logit.
    Other arguments as for `evaluate`.
    """
    if callable(target) or score != "softmax":
        return evaluate(output, target, chosen, score)
    logits, own = logits_of(output, len(chosen)), chosen[:, None]
    others = logits.detach().scatter(1, own, -torch.inf).softmax(1)
    return logits.gather(1, own)[:, 0] - rivals * (others * logits).sum(1)
