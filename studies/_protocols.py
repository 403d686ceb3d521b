"""What the protocol does to the ranking of methods: the same maps under all of them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau, rankdata, spearmanr

from fei.bench.report.numbers import Numbers, Quantity

_METRICS = {"insertion": True, "deletion": False}


def scores(numbers: Numbers, metric: str) -> tuple[list[str], list[str], NDArray[np.float64]]:
    """Labels of methods, protocols, and the numbers: protocols × methods × photographs (of the first pair)."""
    protocols = numbers.protocols("map", metric)
    values = np.array(
        [[numbers.values(0, row, Quantity("map", metric, each))[:, 0] for row in numbers.rows] for each in protocols]
    )
    complete = np.isfinite(values).all(axis=(0, 2))  # a method that failed somewhere has no place in a ranking
    labels = [numbers.plan.methods[row].label for row, whole in zip(numbers.rows, complete, strict=True) if whole]
    return labels, protocols, values[:, complete]


def correlation_table(numbers: Numbers) -> str:
    """Rank correlation of the methods' means between each two protocols, for insertion and for deletion."""
    lines = [
        "| protocols | "
        + " | ".join(f"{metric}: Kendall's τ | Spearman's ρ | τ on one photograph" for metric in _METRICS)
        + " |",
        "| :-- |" + " --: | --: | --: |" * len(_METRICS),
    ]
    found = {metric: scores(numbers, metric) for metric in _METRICS}
    _, protocols, _ = found["insertion"]
    for one, two in combinations(range(len(protocols)), 2):
        cells = []
        for _, _, values in found.values():
            means = values.mean(2)
            single = [kendalltau(a, b).statistic for a, b in zip(values[one].T, values[two].T, strict=True)]
            tau, rho = kendalltau(means[one], means[two]).statistic, spearmanr(means[one], means[two]).statistic
            cells += [f"{tau:.2f}", f"{rho:.2f}", f"{min(single):.2f} to {max(single):.2f}"]
        lines.append(f"| {plain(protocols[one])}, {plain(protocols[two])} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rank_table(numbers: Numbers) -> str:
    """The place of each method under each protocol, 1 being the best."""
    places: dict[str, list[str]] = {}
    heads = []
    for metric, higher in _METRICS.items():
        labels, protocols, values = scores(numbers, metric)
        heads += [f"{metric}<br>{plain(protocol)}" for protocol in protocols]
        for means in values.mean(2):
            for label, place in zip(labels, rankdata(-means if higher else means), strict=True):
                places.setdefault(label, []).append(f"{place:g}")
    lines = ["| method | " + " | ".join(heads) + " |", "| :-- |" + " --: |" * len(heads)]
    lines += [f"| {label} | {' | '.join(cells)} |" for label, cells in places.items()]
    return "\n".join(lines) + "\n"


def plain(protocol: str) -> str:
    """A protocol without its version."""
    return protocol.partition("/")[0]
