"""The numbers of an audit so far, by method and image, as they come from a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fei.auditing.questions import STEPS
from fei.bench.store import Store
from fei.bench.store.outcomes import stored_outcomes
from fei.bench.units import BLACK_IMAGE, Outcome

Values = NDArray[np.float64]


class Measured:
    """What is known.

    Attributes:
        scores: By method and image, the numbers by metric; those of layers are averaged, those of places are named.
        fired: By method, whether each trial found a class in its black image, by the trial's number.
        seconds: By method, what its maps took.
        groups: By method and image (or trial), the score groups that are complete.
        reasons: Why something could not be measured, by method and step.
        keys: The unit of each method and image, whose map was kept.
        facts: By image, what the network says of it: class, probability, and whether it is right.
        curves: By method and image, the curves of insertion and deletion.
    """

    def __init__(self) -> None:
        self.scores: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        self.fired: dict[str, dict[str, float]] = defaultdict(dict)
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.groups: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.reasons: dict[tuple[str, str], str] = {}
        self.keys: dict[tuple[str, str], str] = {}
        self.facts: dict[str, dict[str, object]] = {}
        self.curves: dict[tuple[str, str], list[tuple[str, list[float], list[float]]]] = defaultdict(list)

    @classmethod
    def of(cls, folder: Path) -> Measured:
        """All that a run has of its present plan."""
        found = cls()
        with Store.open(folder, readonly=True) as store:
            keys = [key for (key,) in store.rows("SELECT DISTINCT unit FROM plan_units")]
            complete = store.done_groups()  # with the maps that are kept, which outcomes are read without
            for outcome in stored_outcomes(store, keys):
                found.add(replace(outcome, groups=tuple(complete.get(outcome.key, ()))))
        return found

    def add(self, outcome: Outcome) -> None:
        """Take in what came of a unit, or of a part of one."""
        method, item = outcome.method, outcome.item
        trial = outcome.kind == BLACK_IMAGE
        place = (method, place_of(item, "black" if trial else "map"))
        self.groups[place].update(outcome.groups)
        if trial:
            for metric, _, _, value in outcome.scores:
                if metric == "fired":
                    self.fired[method][item] = value
            return
        self.keys[place] = outcome.key
        if outcome.seconds is not None and place not in self.scores:
            self.seconds[method].append(outcome.seconds)
        if outcome.target is not None:
            self.facts[item] = {
                "target": outcome.target,
                "label": outcome.label,
                "probability": outcome.probability,
                "correct": outcome.correct,
            }
            self.scores[place]["probability"] = outcome.probability or 0.0
        by_layer: dict[str, list[float]] = defaultdict(list)
        for metric, _, layer, value in outcome.scores:
            by_layer[f"{metric} {layer}" if metric in ("lost", "moved") else metric].append(value)
        self.scores[place] |= {metric: float(np.mean(values)) for metric, values in by_layer.items()}
        self.curves[place] += [(name, shares, values) for _, name, shares, values in outcome.curves]

    def has(self, method: str, item: str, step: str) -> bool:
        """Whether a step was done on an image, or on the black image of a trial."""
        return set(STEPS[step]) <= self.groups.get((method, place_of(item, step)), set())

    def values(self, method: str, items: Iterable[str], *metrics: str) -> Values:
        """The numbers of images that have all of these metrics, (images, metrics)."""
        rows = [row for item in items if (row := self.scores.get((method, item)))]
        found = [[row[metric] for metric in metrics] for row in rows if all(metric in row for metric in metrics)]
        return np.array(found, dtype=np.float64).reshape(len(found), len(metrics))

    def gains(self, method: str, items: Iterable[str]) -> dict[str, float]:
        """Insertion − deletion by image."""
        return {
            item: row["insertion"] - row["deletion"]
            for item in items
            if (row := self.scores.get((method, item))) and "insertion" in row and "deletion" in row
        }

    def kept(self, method: str, items: Iterable[str]) -> dict[str, float]:
        """The cosine inside by image, as a mean over layers."""
        return {item: row["cosine"] for item in items if (row := self.scores.get((method, item))) and "cosine" in row}

    def cost(self, method: str) -> float | None:
        """Seconds that a map takes, as a median."""
        found = self.seconds.get(method)
        return float(np.median(found)) if found else None


def place_of(item: str, step: str) -> str:
    """The name of an image, or of a trial, apart from each other."""
    return f"trial {item}" if step == "black" else item
