"""Images in groups that are optimised together, and what was found of all groups as one explanation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from fei.core.explanation import Explanation, Trace
from fei.core.optimization import Group, Result
from fei.core.scoring import Target
from fei.core.settings import Settings
from fei.core.sites import Site
from fei.errors import ModelError
from fei.references import References


def groups_of(
    x: Tensor,
    references: References,
    target: Target,
    chosen: Tensor | None,
    rows: int,
    settings: Settings,
    channels: int,
) -> Iterator[tuple[Group, int]]:
    """Groups of images whose masks fill `rows`, the last one filled up with its last image, and how many are real."""
    images, masks = max(1, rows // settings.tried), settings.masks
    for first in range(0, len(x), images):
        numbers = [min(number, len(x) - 1) for number in range(first, first + images)]
        index = torch.tensor(numbers, device=x.device)

        def reference(step: int, rows: Sequence[int], numbers: Sequence[int] = numbers) -> Tensor:
            return references.of_rows(step, [(numbers[row // masks], row % masks) for row in rows])

        of_group = None if chosen is None else chosen.to(x.device)[index]
        group = Group(x[index], reference, target, of_group, rows, channels)
        yield group, min(images, len(x) - first)


def collected(
    results: list[tuple[Result, int]],
    sites: list[Site],
    x: Tensor,
    reference: Tensor,
    config: dict[str, Any],
    prior: float,
) -> Explanation:
    """What was found of the images of all groups, as one explanation; `prior` is the share of the evidence in maps."""

    def together(field: str) -> Tensor:
        return torch.cat([getattr(result, field)[:real] for result, real in results])

    phi, alphas = together("phi"), together("alphas")
    if not (phi.isfinite().all() and alphas.isfinite().all()):
        raise ModelError("The score became NaN or infinite during the optimisation; check the network's precision.")
    clipped = {
        site.name: torch.cat([result.shares[i][:real] for result, real in results])
        for i, site in enumerate(sites)
        if i in results[0][0].shares
    }
    trace = Trace(phi, together("area"), together("stopped"), clipped)
    maps = alphas.mean((1, 2)).unsqueeze(1)
    if prior and results[0][0].ranks is not None:
        maps = (maps + prior * together("ranks").to(maps)) / (1 + prior)
    constant = int((maps.flatten(1) == maps.flatten(1)[:, :1]).all(1).sum())
    if constant:
        config["notes"].append(
            f"the map of {constant} of {len(maps)} image(s) is constant: no gradient of the score moved its masks, as "
            "where the softmax is saturated; score='logit' has one"
        )
    return Explanation(maps, alphas, together("chosen"), x, reference, trace, config)
