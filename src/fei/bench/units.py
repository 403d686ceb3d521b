"""The pieces that a run is made of: units of work, and what came of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fei.data import Box

if TYPE_CHECKING:
    from fei.bench.plan import Plan

MAP, BLACK_IMAGE, SANITY = "map", "black-image", "sanity"
KINDS = (MAP, BLACK_IMAGE, SANITY)

# Score groups are those of `fei.metrics.groups`, with "/" before the id of a protocol or the version, and these.
KEPT = "kept"
"""The group of a map that is kept as a file."""

DONE, FAILED = "done", "failed"

BATCH_ROWS = "batch_rows"
"""The score of a unit for which memory ran out: with how many rows in a forward pass it went on."""

Score = tuple[str, str, str, float]
"""Metric, protocol, layer and value; an empty protocol or layer where it has none."""

StoredCurve = tuple[str, str, list[float], list[float]]
"""Protocol, name, fractions and values."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One piece of work, small and picklable: a map with its scores, a trial on a black image, or a sanity check.

    Attributes:
        kind: One of `KINDS`.
        key: What it is called, see `fei.bench.plan.keys`.
        pair: Index of its network and data set in the plan.
        method: Index of its method.
        item: The image's id in the data set; the number of the trial on a black image.
        path: The image file; empty for a black image.
        target: The class to explain; None for the predicted one.
        truth: The class that the data set names, if it does.
        boxes: Where the object is, in pixels of the image.
        seed: Of the reference and of whatever is random.
        scores: The score groups that are wanted.

    Examples:
        >>> (first, *_) = fei.bench.expand(fei.bench.load_plan("plan.toml"))
        >>> first.kind, first.item, first.seed
        ('map', 'a.png', 0)
    """

    kind: str
    key: str
    pair: int
    method: int
    item: str
    path: str
    target: int | None
    truth: int | None
    boxes: tuple[Box, ...]
    seed: int
    scores: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a unit: a row of the store's table `units`, and its scores.

    A failed unit may have scores too: those of the groups that were complete before the one that failed.

    Attributes:
        key: The unit's key.
        kind: Its kind.
        model: The network's specification.
        data: The data set's; empty for a black image.
        item: The image's id, or the trial's number.
        method: The method's name.
        config: Its settings as JSON.
        seed: Of whatever is random.
        status: "done" or "failed".
        error: Why it failed, in one sentence.
        attempts: How often it was tried.
        target: The explained class.
        label: Its name.
        probability: The network's probability of it on the image.
        correct: Whether the network predicts the class that the data set names; None where that is not known.
        seconds: What the map took; None, like the three below, where a kept map was read instead.
        forwards: Rows through the network for the map.
        backwards: Rows whose gradient came back.
        peak_bytes: Memory, see `fei.metrics.Cost`.
        threads: How many the work was done with.
        finished: When, in UTC.
        scores: The numbers.
        curves: The curves behind insertion and deletion.
        groups: The score groups that are complete by this.
        map: Where the plan keeps maps, the map (H, W); of a sanity check those of all stages, the original first.

    Examples:
        >>> seen = []
        >>> _ = fei.bench.run(fei.bench.load_plan("plan.toml"), "a fourth", on_outcome=seen.append)
        >>> seen[0].status, seen[0].method
        ('done', 'saliency')
    """

    key: str
    kind: str
    model: str
    data: str
    item: str
    method: str
    config: str
    seed: int
    status: str
    error: str | None = None
    attempts: int = 1
    target: int | None = None
    label: str | None = None
    probability: float | None = None
    correct: bool | None = None
    seconds: float | None = None
    forwards: int | None = None
    backwards: int | None = None
    peak_bytes: int | None = None
    threads: int | None = None
    finished: str | None = None
    scores: tuple[Score, ...] = ()
    curves: tuple[StoredCurve, ...] = ()
    groups: tuple[str, ...] = ()
    map: NDArray[np.float32] | None = None


def expand(plan: Plan) -> Iterator[Unit]:
    """The units of a plan, pair by pair, each with all its score groups; units that two rows share come for each.

    Every network of the plan is loaded once for its fingerprint, and every image file is read.

    Args:
        plan: The plan.

    Yields:
        The units, those that cannot be computed (an unreadable image, say) included.

    Examples:
        >>> [unit.item for unit in fei.bench.expand(fei.bench.load_plan("plan.toml"))]
        ['a.png', 'b.png']
    """
    from fei.bench.plan.catalog import Catalog

    for entry in Catalog(plan).entries():
        yield entry.unit


def storable(text: Any) -> str:
    """A text on one line that a database takes: a file's name need not be text."""
    return " ".join(str(text).split()).encode("utf-8", "backslashreplace").decode("utf-8")
