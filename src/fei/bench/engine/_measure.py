"""The score groups of a map, each group whole or not at all, in as few forward passes as they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from fei import metrics
from fei.bench.units import COMPLEXITY, CONFIDENCE, EXTERNAL, INTERNAL, LOCALIZATION, StoredCurve, Score
from fei.data import Box
from fei.models import Classifier


@dataclass
class Subject:
    """A map and all that its scores depend on.

    Attributes:
        model: The network.
        inputs: The image, (1, C, H, W).
        maps: Its map, (1, 1, H, W).
        target: The explained class.
        boxes: The object's, in pixels of `inputs`.
        layers: Where to look inside; None for the network's feature layers.
        seed: Of the reference and of whatever is random.
        batch_size: Rows in one forward pass.
    """

    model: Classifier
    inputs: Tensor
    maps: Tensor
    target: int
    boxes: Sequence[Box]
    layers: Sequence[str] | None
    seed: int
    batch_size: int | None

    @property
    def generator(self) -> torch.Generator:
        """A fresh generator: every measurement is to draw the same R."""
        return torch.Generator().manual_seed(self.seed)


@dataclass
class Findings:
    """Numbers of complete groups, and what prevented the others."""

    scores: list[Score] = field(default_factory=list)
    curves: list[StoredCurve] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def add(self, groups: Sequence[str], measured: tuple[list[Score], list[StoredCurve]]) -> None:
        """Take in the numbers of some groups."""
        self.scores += measured[0]
        self.curves += measured[1]
        self.groups += groups


Measurement = Callable[[Subject], tuple[list[Score], list[StoredCurve]]]


def measure(subject: Subject, groups: Sequence[str]) -> Findings:
    """Measure score groups; one that fails does not keep the others from being measured.

    Args:
        subject: The map.
        groups: Names of groups, see `fei.bench.units`.

    Returns:
        The numbers, and what went wrong.
    """
    findings = Findings()
    for together in _by_protocol(groups):
        try:
            findings.add(together, _along_curves(subject, together))
        except Exception as error:
            if len(together) == 1:
                findings.errors.append(error)
                continue
            for group in together:  # what fails inside the network need not fail outside of it
                _try(findings, group, subject, partial(_along_curves, groups=[group]))
    for group, function in _PLAIN.items():
        if group in groups:
            _try(findings, group, subject, function)
    return findings


def _try(findings: Findings, group: str, subject: Subject, function: Measurement) -> None:
    try:
        findings.add([group], function(subject))
    except Exception as error:
        findings.errors.append(error)


def _by_protocol(groups: Sequence[str]) -> list[list[str]]:
    """The groups that are read off curves, those of one protocol together."""
    together: dict[str, list[str]] = {}
    for group in groups:
        kind, _, rest = group.partition("/")
        if kind in {EXTERNAL, INTERNAL} and rest:
            together.setdefault(rest.partition(":")[0], []).append(group)
    return list(together.values())


def _along_curves(subject: Subject, groups: Sequence[str]) -> tuple[list[Score], list[StoredCurve]]:
    """Insertion, deletion and internal faithfulness under one protocol.

    Both curves pass the network even where only the inside is asked for: with other batches the last digits would
    depend on what was asked for together.
    """
    kinds = {group.partition("/")[0] for group in groups}
    protocol = groups[0].partition("/")[2].partition(":")[0]
    result = metrics.evaluate(
        subject.model,
        subject.inputs,
        subject.maps,
        subject.target,
        layers=subject.layers if INTERNAL in kinds else [],
        protocol=protocol,
        generator=subject.generator,
        batch_size=subject.batch_size,
    )
    scores: list[Score] = []
    curves: list[StoredCurve] = []
    if EXTERNAL in kinds:
        for name, curve in (("insertion", result.insertion), ("deletion", result.deletion)):
            scores.append((name, curve.protocol, "", float(curve.auc[0])))
            curves.append((curve.protocol, name, curve.fractions.tolist(), curve.scores[0].tolist()))
        scores.append(("ties", protocol, "", float(result.insertion.ties[0])))
    if INTERNAL in kinds:
        for layer, similar in result.internal.items():
            name = layer.removeprefix("network.")
            scores += [(metric, protocol, name, float(values[0])) for metric, values in vars(similar).items()]
    return scores, curves


def _complexity(subject: Subject) -> tuple[list[Score], list[StoredCurve]]:
    return [
        ("gini", "", "", float(metrics.gini(subject.maps)[0])),
        ("rank_tv", "", "", float(metrics.rank_total_variation(subject.maps)[0])),
    ], []


def _localization(subject: Subject) -> tuple[list[Score], list[StoredCurve]]:
    if not subject.boxes:  # an image without an object to point at, or one that was cut off with the border
        return [], []
    return [
        ("pointing", "", "", float(metrics.pointing_game(subject.maps, [subject.boxes])[0])),
        ("energy", "", "", float(metrics.energy_pointing_game(subject.maps, [subject.boxes])[0])),
    ], []


def _confidence(subject: Subject) -> tuple[list[Score], list[StoredCurve]]:
    given = (subject.model, subject.inputs, subject.maps, subject.target)
    size = subject.batch_size
    drop = metrics.average_drop(*given, generator=subject.generator, batch_size=size)
    increase = metrics.average_increase(*given, generator=subject.generator, batch_size=size)
    scores: list[Score] = [("drop", "", "", float(drop[0])), ("increase", "", "", float(increase[0]))]
    curves: list[StoredCurve] = []
    for order in ("morf", "lerf"):
        curve = metrics.road(*given, order=order, generator=subject.generator, batch_size=size)
        scores.append(("road", curve.protocol, "", float(curve.auc[0])))
        curves.append((curve.protocol, "road", curve.fractions.tolist(), curve.scores[0].tolist()))
    return scores, curves


_PLAIN: dict[str, Measurement] = {
    COMPLEXITY: _complexity,
    LOCALIZATION: _localization,
    CONFIDENCE: _confidence,
}
