"""The grid pointing game: in a mosaic of photographs, does the map of a class point at the photograph of that class?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fei.core.checks import check_between, check_call, check_count, default_rows
from fei.core.randomness import generator_for, image_digest, seed_of
from fei.errors import InputError
from fei.metrics._attribution import UNITS, AnyMethod, attribution, class_logits
from fei.metrics.declaration import Metric
from fei.metrics.localization import energy_pointing_game
from fei.progress import Progress, part, reporter
from fei.protocols import jittered
from fei.references import ReferenceSpec

METRICS = (
    Metric("grid_energy", "energy in the cell", True, "grid_pointing_game"),
    Metric("grid_rank", "top pixels in the cell", True, "grid_pointing_game"),
)


@dataclass(frozen=True)
class GridPointing:
    """How well the maps of M mosaics point at their cells; higher is better. Cells are counted row by row.

    Attributes:
        energy: Share of the positive attribution that lies in the cell of the explained class, (M, size²).
        rank: Share of the highest pixels, as many as the cell has, that lie in it.
        chance: What a map that knows nothing has in the mean, in both: 1/size².
        classes: The class of each cell, (M, size²).
        photographs: The number of the photograph in each cell.
        mosaics: The images, (M, C, H, W).

    Examples:
        >>> network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()
        >>> colours = torch.eye(4)[:, :, None, None].expand(4, 4, 8, 8)
        >>> found = fei.metrics.grid_pointing_game(network, "random", colours, confidence=0.4)
        >>> found.chance, sorted(found.classes[0].tolist()), tuple(found.mosaics.shape)
        (0.25, [0, 1, 2, 3], (1, 4, 8, 8))
    """

    energy: Tensor
    rank: Tensor
    chance: float
    classes: Tensor
    photographs: Tensor
    mosaics: Tensor


def grid_pointing_game(
    model: nn.Module,
    method: AnyMethod,
    inputs: Tensor,
    *,
    size: int = 2,
    confidence: float = 0.9,
    reference: ReferenceSpec = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
    progress: bool | Progress = False,
) -> GridPointing:
    """Explain mosaics of confident photographs for the class of each of their cells.

    Böhle et al., "Convolutional dynamic alignment networks", CVPR 2021, and Rao et al., "Towards better understanding
    attribution methods", CVPR 2022: `energy` is their localisation score, Σ_cell max(M, 0) / Σ max(M, 0). `rank` is the
    same question asked of the order of the pixels alone. They enlarge the input; here a mosaic is as large as one
    photograph, since not every network takes a larger one, and so a cell is `size` times smaller than what the network
    was trained on. Compare methods by it on one network, not networks.

    A photograph is in at most one mosaic, the classes of a mosaic are distinct, and their order is drawn. Equal values
    of a map are ordered at random.

    Args:
        model: The classifier, in evaluation mode; left as it is if `method` leaves it so.
        method: A name, a method, or any callable on (model, inputs, target) that returns maps (N, 1, H, W).
        inputs: Photographs (N, C, H, W).
        size: Cells per side.
        confidence: The least probability that the network must give its top class for a photograph to be used.
        reference: R, for methods that replace pixels.
        generator: Supplies the seed of the draws (0 without) and of the method.
        batch_size: Rows in one forward pass.
        progress: ``True`` for a progress bar, or a callable on (done, in all).

    Examples:
        >>> network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()
        >>> colours = torch.eye(4)[:, :, None, None].expand(4, 4, 8, 8)  # four pictures, each of its own class
        >>> def brightness(model, inputs, target):
        ...     return torch.stack([image[one][None] for image, one in zip(inputs, target)])
        >>> fei.metrics.grid_pointing_game(network, brightness, colours, confidence=0.4).energy.tolist()
        [[1.0, 1.0, 1.0, 1.0]]
    """
    x, rows = check_call(model, inputs, batch_size)
    check_count("size", size, 2)
    check_between("confidence", confidence)
    if min(x.shape[2:]) < size:
        raise InputError(f"A grid of {size} × {size} does not fit images of shape {tuple(x.shape)}; give a lower size.")
    attribute, seed = attribution(method, reference, generator, rows), seed_of(generator)
    probabilities, top = class_logits(model, x, rows or default_rows(x)).softmax(1).max(1)
    sure = (probabilities >= confidence).nonzero()[:, 0].tolist()
    groups = _groups([(number, int(top[number])) for number in sure], size**2)
    if not groups:
        distinct = len({int(top[number]) for number in sure})
        raise InputError(
            f"A mosaic needs {size**2} photographs of distinct classes, each with a probability of at least "
            f"{confidence:g}, and {len(x)} photograph(s) have {distinct}; give more of them, or a lower confidence."
        )
    groups = [_shuffled(group, x, seed) for group in groups]
    cells = _cells(size, x)
    mosaics = torch.stack([_mosaic(x[group], cells) for group in groups])
    energy, rank = [], []
    with reporter(progress, len(groups) * UNITS) as tick:
        for group, mosaic in zip(groups, mosaics, strict=True):
            with part(tick, UNITS) as report:
                maps = attribute(model, mosaic.expand(size**2, -1, -1, -1).clone(), top[group], report)
            energy.append(energy_pointing_game(maps, cells))
            digest = image_digest(mosaic)
            rank.append(torch.stack([_top_share(m, c, digest, seed) for m, c in zip(maps.cpu(), cells, strict=True)]))
    return GridPointing(
        energy=torch.stack(energy),
        rank=torch.stack(rank),
        chance=1 / size**2,
        classes=torch.stack([top[group] for group in groups]).cpu(),
        photographs=torch.tensor(groups),
        mosaics=mosaics,
    )


def _groups(photographs: Sequence[tuple[int, int]], count: int) -> list[list[int]]:
    """As many groups of `count` photographs of distinct classes as there can be; each is given with its class."""
    waiting: dict[int, list[int]] = {}
    for number, kind in photographs:
        waiting.setdefault(kind, []).append(number)
    groups = []
    while len(waiting) >= count:
        fullest = sorted(waiting, key=lambda kind: len(waiting[kind]), reverse=True)[:count]
        groups.append([waiting[kind].pop(0) for kind in fullest])
        waiting = {kind: numbers for kind, numbers in waiting.items() if numbers}
    return groups


def _shuffled(group: list[int], x: Tensor, seed: int) -> list[int]:
    order = torch.randperm(len(group), generator=generator_for(seed, image_digest(x[group]), "places in a mosaic"))
    return [group[place] for place in order.tolist()]


def _cells(size: int, x: Tensor) -> Tensor:
    """The pixels of each cell, (size², H, W)."""
    rows, columns = (torch.arange(length) * size // length for length in x.shape[2:])
    numbers = rows[:, None] * size + columns
    return numbers == torch.arange(size**2)[:, None, None]


def _mosaic(photographs: Tensor, cells: Tensor) -> Tensor:
    """Each photograph in its cell, (C, H, W)."""
    made = torch.empty_like(photographs[0])
    for photograph, cell in zip(photographs, cells.to(made.device), strict=True):
        shape = int(cell.any(1).sum()), int(cell.any(0).sum())
        wide = photograph[None].to(torch.promote_types(made.dtype, torch.float32))
        small = F.interpolate(wide, shape, mode="bilinear", antialias=True)[0]
        made[:, cell] = small.to(made).flatten(1)
    return made


def _top_share(maps: Tensor, cell: Tensor, digest: str, seed: int) -> Tensor:
    inside = cell.flatten()
    return inside[jittered(maps.flatten(), digest, seed, 1)[: inside.sum()]].double().mean()
