"""Questions that the paper does not ask, as comparisons judged by the same rule as its claims."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from studies import _protocols, mosaics, other_class
from studies._editions import FAST, PAPER, Place, Study, places, variants
from studies._hypotheses import CONSTRAINED, Comparisons, Hypothesis, avm_fires, difference
from studies._plans import SCORES
from studies._verdicts import Comparison, Values, paired_difference

from fei.bench.report.numbers import Quantity

CONTROLS = ("Random", "Smooth noise", "Centre", "Brightness", "Edges")
WITHOUT_NORMALISATION = ("AlexNet", "VGG16", "GoogLeNet", "SqueezeNet")
FRAGMENTS = "fragmentation.jsonl"
SMOOTHED = ("smoothed to 0.1", "smoothed to 0.03")
SANITY = (("sanity",), ("second-sanity",))
_CHANGED = 0.5  # rank correlation below which a map has changed
_AGREE = 0.5  # Kendall's τ above which two protocols agree
_RESAMPLES, _SEED = 1000, 0
Row = dict[str, Any]


class Extra(NamedTuple):
    """Scores that no plan can compute: of other classes in both editions, maps at equal fragmentation, mosaics."""

    asked: list[Row]
    asked_again: list[Row]
    fragments: list[Row]
    mosaics: Sequence[Row] = ()

    @classmethod
    def read(cls, folder: Path = SCORES) -> Extra:
        """What is there."""
        file = folder / FRAGMENTS
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        first, second = (other_class.rows(folder, name) for name in other_class.NAMES)
        return cls(first, second, [json.loads(line) for line in lines], mosaics.rows(folder / mosaics.NAME))

    def classes(self, network: str, method: str) -> tuple[list[float], bool]:
        """Rank correlations of a row, one per photograph, and whether they are of the second edition."""
        found = [
            [row["spearman"] for row in rows if (row["network"], row["method"]) == (network, method)]
            for rows in (self.asked, self.asked_again)
        ]
        second = len(found[1]) >= len(found[0]) > 0 or (bool(found[1]) and not found[0])
        return found[second], second


def _with_controls(study: Study, preset: str) -> list[Place]:
    """Networks on which more controls than chance alone were measured."""
    found = [(place, place.values("Centre", "insertion")) for place in variants(study, preset)]
    return [place for place, values in found if values is not None and np.isfinite(values).any()]


def _q1(study: Study, preset: str) -> Comparisons:
    for place in _with_controls(study, preset):
        for metric in ("mse", "cosine"):
            for control in CONTROLS:
                yield difference(place, "FEI-VM", control, metric)


def _q2(study: Study, preset: str) -> Comparisons:
    for place in _with_controls(study, preset):
        for control in CONTROLS:
            yield difference(place, "FEI-VM", control, "insertion")


def _q3(study: Study, preset: str) -> Comparisons:
    return avm_fires(study, preset, WITHOUT_NORMALISATION)


def _q4(extra: Extra, preset: str) -> Comparisons:
    if preset == FAST:
        for network in dict.fromkeys(row["network"] for row in extra.fragments):
            for kind in SMOOTHED:
                for metric, higher in (("mse", False), ("cosine", True), ("relevant_mse", False)):
                    ours, others = fragment_values(extra, network, kind, metric, ("fei-vm", "fei-none"))
                    what = f"{metric.replace('_', ' ').replace('mse', 'MSE')}, {kind}: FEI-VM against FEI-NONE"
                    yield paired_difference(network, what, ours, others, higher_is_better=higher)


def fragment_values(extra: Extra, network: str, kind: str, metric: str, methods: Sequence[str]) -> list[Values]:
    """Numbers of methods on the photographs that all of them have, each photographs × 1."""
    found: list[dict[str, float]] = [
        {
            row["photograph"]: row[metric]
            for row in extra.fragments
            if (row["network"], row["kind"], row["method"]) == (network, kind, method) and metric in row
        }
        for method in methods
    ]
    shared = sorted(set.intersection(*map(set, found)))
    return [np.array([each[name] for name in shared], dtype=float).reshape(-1, 1) for each in found]


def _q5(extra: Extra, preset: str) -> Comparisons:
    row = "fei-vm" + (", paper" if preset == PAPER else "")
    for network in other_class.NETWORKS:
        values, _ = extra.classes(network, row)
        where = network + (", preset=paper" if preset == PAPER else "")
        yield _below(where, "rank correlation of FEI-VM's maps of two classes below .5", values)


def _q6(study: Study, preset: str) -> Comparisons:
    for place in places(study, SANITY, preset):
        found = redrawn(place, "FEI-VM")
        if found is not None and (preset == FAST or place.label("FEI-VM") != "FEI-VM"):
            what = "rank correlation of FEI-VM's maps, classifier redrawn, below .5"
            yield _below(place.where, what, found[np.isfinite(found)].tolist())


def redrawn(place: Place, row: str) -> Values | None:
    """Rank correlation of a row's maps before and after the classifier's weights are drawn anew."""
    labels = [each.label for each in place.numbers.plan.methods]
    stages = place.numbers.layers(place.pair, "sanity", "spearman")
    if place.label(row) not in labels or not stages:
        return None
    return place.numbers.values(
        place.pair, labels.index(place.label(row)), Quantity("sanity", "spearman", "", stages[0])
    )


def _below(where: str, what: str, values: Sequence[float]) -> Comparison | None:
    if not values:
        return None
    each = np.array(values, dtype=float).reshape(-1, 1)
    return paired_difference(where, what, each, np.full_like(each, _CHANGED), higher_is_better=False)


def _q7(study: Study, preset: str) -> Comparisons:
    for place in variants(study, preset):
        for variant in CONSTRAINED:
            yield difference(place, "FEI-NONE", f"FEI-{variant}", "insertion", protocol="held-out")


def _q8(study: Study, preset: str) -> Comparisons:
    name = next((plan for plan in ("second-protocols", "protocols") if plan in study), None)
    if name is None or preset == PAPER:
        return
    numbers = study[name]
    _, protocols, values = _protocols.scores(numbers, "insertion")
    for one, two in combinations(range(len(protocols)), 2):
        tau, low, high = agreement(values[one], values[two])
        names = " and ".join(_protocols.plain(protocols[each]) for each in (one, two))
        what = f"insertion: Kendall's τ of {names}, less .5"
        ends = (tau - _AGREE, low - _AGREE, high - _AGREE)
        yield Comparison(numbers.plan.pairs[0].name, what, *ends, values.shape[2])


def agreement(one: Values, two: Values) -> tuple[float, float, float]:
    """Kendall's τ of the methods' means (methods × photographs), with a bootstrap interval over the photographs."""
    count = one.shape[1]
    tau = float(_kendall(one.mean(1)[None], two.mean(1)[None])[0])
    if count < 2:
        return tau, float("nan"), float("nan")
    drawn = np.random.default_rng(_SEED).integers(count, size=(_RESAMPLES, count))
    low, high = np.quantile(_kendall(one[:, drawn].mean(2).T, two[:, drawn].mean(2).T), [0.025, 0.975])
    return tau, float(low), float(high)


def _kendall(one: Values, two: Values) -> Values:
    """Kendall's τ (b) of each row."""
    first, second = np.triu_indices(one.shape[1], 1)
    a, b = (np.sign(each[:, first] - each[:, second]) for each in (one, two))
    taus: Values = (a * b).sum(1) / np.sqrt(np.abs(a).sum(1) * np.abs(b).sum(1))
    return taus


def questions(extra: Extra) -> tuple[Hypothesis, ...]:
    """Our questions, with the scores that no plan has."""
    ours = "The paper does not ask this."
    everywhere = "On every network where the variants and more controls than a random map were measured."
    return (
        Hypothesis("Q1", "VM keeps the inside nearer than every map that never looks at the network.",
                   "MSE and cosine at the last feature layer against random, smooth noise, centre, brightness and "
                   f"edges. {everywhere}", ours, _q1),
        Hypothesis("Q2", "VM inserts better than every map that never looks at the network.",
                   f"As Q1, by insertion. {everywhere}", ours, _q2),
        Hypothesis("Q3", "On black images AVM fires on networks without batch normalisation only.",
                   "The other explanation of H6: AlexNet, VGG16, SqueezeNet and the original GoogLeNet have none; the "
                   "others have it.", "It takes the shape of the network for the reason.", _q3),
        Hypothesis("Q4", "At equal fragmentation VM is still nearer inside than NONE.",
                   "Both maps smoothed to the same rank variation (.1 and .03), where they are rougher; references "
                   "that nothing was optimised with.", ours, lambda _, preset: _q4(extra, preset)),
        Hypothesis("Q5", "VM's map is about the class.",
                   "Rank correlation with the map of a class drawn at random is below .5.", ours,
                   lambda _, preset: _q5(extra, preset)),
        Hypothesis("Q6", "VM's map changes when the classifier's weights are drawn anew.",
                   "Rank correlation of the maps before and after is below .5.",
                   "It shows the test with IBM alone, as a picture.", _q6),
        Hypothesis("Q7", "NONE's lead in insertion stays with references that it was not optimised with.",
                   "H1 under `held-out`: the mean colour and another photograph.", ours, _q7),
        Hypothesis("Q8", "Protocols agree on the order of the methods.",
                   "Kendall's τ between the methods' mean insertions under two protocols is above .5; intervals by a "
                   "bootstrap over the photographs.", ours, _q8),
    )  # fmt: skip
