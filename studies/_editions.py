"""Where each number of the page comes from: of two editions of the study, the one that counts for a network.

The second edition takes the place of the first on a network once it has as many photographs (or trials) there, or all
that it was planned with. Verdicts and effect sizes rest on what this module says, and the page names the edition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from studies._verdicts import Values

from fei.bench.report.numbers import Numbers, Quantity

Study = Mapping[str, Numbers]
"""The numbers of each plan that was computed."""

FAST, PAPER = "fast", "paper"
PRESETS = (FAST, PAPER)
_SECOND = "second-"
# Plans with the variants, by preset: of the first edition, and of the second.
VARIANTS = {
    FAST: (
        ("twenty", "resnet50", "googlenet", "cub"),
        ("second-cheap", "second-resnet50", "second-cub", "second-cub-vgg16"),
    ),
    PAPER: (("paper",), ("second-paper",)),
}
ALL_METHODS = {
    FAST: (("main", "resnet50", "cub"), ("second-cheap", "second-resnet50", "second-cub", "second-cub-vgg16")),
    PAPER: ((), ("second-paper",)),
}
BLACK = {
    FAST: (("black-image", "black-image-more"), ("second-black", "second-black-vgg16", "second-black-resnet50")),
    PAPER: ((), ("second-black-paper",)),
}
ABLATIONS = (("ablation", "ablation-chain"), ("second-ablation",))
SCOPES = (("ablation", "ablation-chain"), ("second-scope-vgg16",))


@dataclass(frozen=True)
class Place:
    """A network in a plan.

    Attributes:
        plan: The plan's name.
        numbers: Its numbers.
        pair: The network's place in it.
        preset: Of the rows that are meant.
    """

    plan: str
    numbers: Numbers
    pair: int
    preset: str = FAST

    @property
    def network(self) -> str:
        """The network, by the same name in both editions."""
        return self.numbers.plan.pairs[self.pair].name.replace("CUB-200-2011", "CUB")

    @property
    def where(self) -> str:
        """The network, and the preset where it is the paper's."""
        return self.network + (", preset=paper" if self.preset == PAPER else "")

    @property
    def is_second(self) -> bool:
        """Whether it is of the second edition."""
        return self.plan.startswith(_SECOND)

    def label(self, row: str) -> str:
        """The label of a row of FEI with this preset: a plan with both presets names the paper's."""
        known = {each.label for each in self.numbers.plan.methods}
        named = f"{row}, paper"
        return named if self.preset == PAPER and named in known else row

    def values(self, row: str, metric: str, protocol: str = "") -> Values | None:
        """Numbers of a row, see `values`."""
        return values(self.numbers, self.pair, self.label(row), metric, protocol)


def values(numbers: Numbers, pair: int, label: str, metric: str, protocol: str = "") -> Values | None:
    """A row's numbers, photographs × seeds; at the last feature layer where the metric has layers.

    Args:
        numbers: Those of a plan.
        pair: The network's place in it.
        label: The row.
        metric: Such as "mse", or "fired" for trials on black images.
        protocol: How the name of the protocol begins; the plan's first one without.
    """
    labels = [row.label for row in numbers.plan.methods]
    if label not in labels:
        return None
    if metric == "fired":
        return numbers.values(pair, labels.index(label), Quantity("black-image", "fired"))
    known = [each for each in numbers.protocols("map", metric) if each.startswith(protocol)]
    if protocol and not known:
        return None
    which = next(iter(known), "")
    layers = numbers.layers(pair, "map", metric, which)
    return numbers.values(pair, labels.index(label), Quantity("map", metric, which, layers[-1])) if layers else None


@cache
def measured(numbers: Numbers, pair: int) -> int:
    """How many photographs, or trials, all rows have that have any."""
    if numbers.plan.sanity is not None:
        return len(numbers.items(pair, "sanity"))
    for metric in ("insertion", "mse", "stability") if numbers.plan.pairs[pair].data is not None else ("fired",):
        found = [values(numbers, pair, row.label, metric) for row in numbers.plan.methods]
        known = [np.isfinite(each).all(1) for each in found if each is not None and np.isfinite(each).any()]
        if known:
            return int(np.logical_and.reduce(known).sum())
    return 0


def planned(numbers: Numbers, pair: int) -> int:
    """How many photographs, or trials, the plan asks for."""
    plan = numbers.plan
    if plan.sanity is not None:
        return plan.sanity.images
    if plan.pairs[pair].data is None:
        return plan.black_image.trials if plan.black_image is not None else 0
    return plan.pairs[pair].sample or 0


def places(study: Study, editions: Sequence[Sequence[str]], preset: str = FAST) -> list[Place]:
    """Every network of these plans once, in the edition that counts."""
    found: dict[str, tuple[Place, int]] = {}
    for plan in (name for edition in editions for name in edition if name in study):
        numbers = study[plan]
        for pair in range(len(numbers.plan.pairs)):
            place, count = Place(plan, numbers, pair, preset), measured(numbers, pair)
            _, before = found.get(place.network, (None, 0))
            if count and count >= min(before, planned(numbers, pair) or before):
                found[place.network] = place, count
    return [place for place, _ in found.values()]


def variants(study: Study, preset: str) -> list[Place]:
    """Every network with the variants of FEI."""
    return places(study, VARIANTS[preset], preset)


def black_images(study: Study, preset: str) -> list[Place]:
    """Every network on which black images were tried."""
    return places(study, BLACK[preset], preset)


def editions(used: Iterator[Place] | Sequence[Place]) -> str:
    """Which edition these places are of, in words."""
    kinds = {place.is_second for place in used}
    return {0: "–", 1: "second" if True in kinds else "first"}.get(len(kinds), "both")
