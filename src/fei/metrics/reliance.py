"""Where a network reads, whatever any method says: what it loses when a place is painted over.

It asks the network alone, so it can be held against maps. It is coarse on purpose: a few places, each the same in every
photograph, tell whether the network ignores a part of its image and whether one place decides in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fei.core.checks import check_call, check_count, default_rows
from fei.core.scoring import Target
from fei.errors import InputError
from fei.metrics._attribution import chosen_classes, class_logits
from fei.metrics.declaration import Metric, Subject
from fei.references import normalised_zero

CELLS = 4


@dataclass(frozen=True)
class Reliance:
    """What a network loses with each place of a grid of k × k cells.

    Attributes:
        lost: The share of the target's probability that is gone without the cell, (N, k, k); below 0 where it rises.
        moved: The largest change of a logit, as a share of the range of the logits on the image, (N, k, k).
        interaction: How far the changes of the target's logit are from adding up, (N,): the difference between the sum
            over all cells, each painted over alone, and what is lost with all of them at once, as a share of the sum of
            the sizes. 0 for a linear network.

    Examples:
        >>> found = fei.metrics.reliance(model, images, cells=2)
        >>> bool((found.moved >= 0).all()), tuple(found.interaction.shape)
        (True, (2,))
    """

    lost: Tensor
    moved: Tensor
    interaction: Tensor


def reliance(
    model: nn.Module, inputs: Tensor, target: Target = None, *, cells: int = CELLS, batch_size: int | None = None
) -> Reliance:
    """Paint over each cell of a grid with the mean colour of the network's images, and all of them at once.

    Args:
        model: The classifier, in evaluation mode; only called.
        inputs: Images (N, C, H, W), of at least `cells` pixels per side.
        target: A class, or one per image; ``None`` for the model's top class.
        cells: How many along each side.
        batch_size: Rows in one forward pass.

    Examples:
        >>> found = fei.metrics.reliance(model, images, cells=2)
        >>> tuple(found.lost.shape)
        (2, 2, 2)
    """
    x, rows = check_call(model, inputs, batch_size)
    height, width = x.shape[2:]
    if callable(target):
        raise InputError("A callable target is no class whose score can fall; give class indices.")
    check_count("cells", cells)
    if min(height, width) < cells:
        raise InputError(f"Images of {height} × {width} pixels have no {cells} cells per side; give fewer cells.")
    count = rows or default_rows(x)
    logits = class_logits(model, x, count)
    chosen = chosen_classes(model, logits, target)
    vertical, horizontal = (torch.arange(side, device=x.device) * cells // side for side in (height, width))
    place = vertical[:, None] * cells + horizontal
    # the last row has everything painted over
    gone = torch.cat([place[None] == torch.arange(cells * cells, device=x.device)[:, None, None], place[None] >= 0])
    found = []
    for image, filling, own, index in zip(x, normalised_zero(x, model), logits, chosen, strict=True):
        painted = class_logits(model, torch.where(gone[:, None], filling, image), count)
        found.append(_read(own.double(), painted.double(), int(index)))
    lost, moved, interaction = (torch.stack(each).cpu() for each in zip(*found, strict=True))
    return Reliance(lost.unflatten(1, (cells, cells)), moved.unflatten(1, (cells, cells)), interaction)


def _read(own: Tensor, painted: Tensor, target: int) -> tuple[Tensor, Tensor, Tensor]:
    score = own.softmax(0)[target]
    lost = (score - painted[:-1].softmax(1)[:, target]) / score
    spread = (own.max() - own.min()).clamp_min(torch.finfo(own.dtype).tiny)
    moved = (painted[:-1] - own).abs().amax(1) / spread
    changes, whole = own[target] - painted[:-1, target], own[target] - painted[-1, target]
    size = changes.abs().sum().clamp_min(torch.finfo(own.dtype).tiny)
    return lost, moved, (changes.sum() - whole).abs() / size


def _surveyed(subject: Subject) -> Reliance:
    return reliance(subject.model, subject.inputs, subject.target, batch_size=subject.batch_size)


def _by_cell(name: str) -> Callable[[Subject], dict[str, Tensor]]:
    def measure(subject: Subject) -> dict[str, Tensor]:
        grid = getattr(subject.once(_surveyed), name)
        return {cell_name(y, x): grid[:, y, x] for y in range(grid.shape[1]) for x in range(grid.shape[2])}

    return measure


def cell_name(row: int, column: int) -> str:
    """What a cell of the grid is called in runs."""
    return f"row {row + 1}, column {column + 1}"


METRICS = (
    Metric("lost", "score lost with a place", None, "reliance", _by_cell("lost"), ("network",), detail=True),
    Metric("moved", "logits moved by a place", None, "reliance", _by_cell("moved"), ("network",), detail=True),
    Metric(
        "interaction",
        "places that do not add up",
        None,
        "reliance",
        lambda subject: subject.once(_surveyed).interaction,
        ("network",),
        detail=True,
    ),
)
