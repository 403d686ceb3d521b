"""The score groups of a map, each group whole or not at all, in as few forward passes as they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fei import metrics
from fei.bench.units import Score, StoredCurve
from fei.metrics import Curve, Metric, Subject

__all__ = ["Findings", "Subject", "measure"]


@dataclass
class Findings:
    """Numbers of complete groups, and what prevented the others."""

    scores: list[Score] = field(default_factory=list)
    curves: list[StoredCurve] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)


def measure(subject: Subject, groups: Sequence[str]) -> Findings:
    """Measure score groups; one that fails does not keep the others from being measured.

    Args:
        subject: The map.
        groups: Names of groups, see `fei.metrics.groups`, with "/" and the id of a protocol where they need one, and
            ":" and layers where the plan names some. Other names are left to others.

    Returns:
        The numbers, and what went wrong.
    """
    findings = Findings()
    known = metrics.groups()
    sharing: dict[str, list[str]] = {}  # those of one protocol share their passes
    for group in groups:
        name, _, protocol = group.partition("/")
        if name in known:
            sharing.setdefault(protocol.partition(":")[0] or name, []).append(group)
    for together in sharing.values():
        if not _add(findings, subject, together) and len(together) > 1:
            findings.errors.pop()
            for group in together:  # what fails inside the network need not fail outside of it
                _add(findings, subject, [group])
    return findings


def _add(findings: Findings, subject: Subject, groups: Sequence[str]) -> bool:
    """Measure groups in the same passes, and take in their numbers if none fails."""
    wanted = [metric for group in groups for metric in metrics.groups()[group.partition("/")[0]]]
    protocol = groups[0].partition("/")[2].partition(":")[0]
    layers = subject.layers if any("layers" in metric.needs for metric in wanted) else []
    of_all = replace(subject, protocol=protocol, layers=layers)
    found = Findings()
    try:
        for metric in wanted:
            _read(found, metric, of_all)
    except (Exception, SystemExit) as error:
        findings.errors.append(error)
        return False
    findings.scores += found.scores
    findings.curves += found.curves
    findings.groups += groups
    return True


def _read(found: Findings, metric: Metric, subject: Subject) -> None:
    value = metric.measure(subject) if metric.measure is not None else None
    protocol = subject.protocol if "protocol" in metric.needs else ""
    if isinstance(value, Curve):
        found.scores.append((metric.score, value.protocol, "", float(value.auc[0])))
        found.curves.append((value.protocol, metric.score, value.fractions.tolist(), value.scores[0].tolist()))
    elif value is not None:
        by_layer = {"": value} if not isinstance(value, dict) else value
        for layer, one in by_layer.items():
            found.scores.append((metric.score, protocol, layer.removeprefix("network."), float(one[0])))
