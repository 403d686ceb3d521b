"""Numbers in the words of prose.toml, which are written there as what they are, and read from the scores.

    {{n | PLAN | NETWORKS}}                         photographs, or trials, that all rows have
    {{mean | PLAN | NETWORKS | ROWS | METRIC}}      means over the photographs: .353
    {{interval | PLAN | NETWORKS | ROWS | METRIC}}  with their 95 % intervals: .353 [.281, .427]
    {{gap | PLAN | NETWORKS | ROWS | ROW | METRIC}} how much higher the rows are than that one: +.049 [.017, .085]
    {{times | PLAN | NETWORKS | ROWS | ROW | METRIC}}  how many times as high their means are: 1.63
    {{seeds | PLAN | NETWORKS | ROWS | METRIC}}     standard deviation of the mean over the seeds
    {{place | PLAN | NETWORKS | ROWS | METRIC}}     by their means among all methods of the plan: 2
    {{tau | PLAN | NETWORKS | METRIC | PROTOCOL}}   Kendall's τ of the methods' means under two protocols
    {{fires | PLAN | NETWORKS | ROWS}}              black images in which a class was found: 3 of 6
    {{redrawn | PLAN | NETWORKS | ROWS}}            rank correlation of maps when the classifier is drawn anew
    {{class | NETWORKS | ROWS}}                     rank correlation of the maps of two classes, with their intervals
    {{asked | NETWORK | ROW}}                       on how many photographs that is
    {{flat | ROWS}}                                 deviation of the other class's map over the first's: median (range)
    {{vivid | ROWS}}                                rank correlation of each two maps of which the other is not flat
    {{grid | NETWORKS | METHODS | rank}}            how much of the map lies on its photograph of a mosaic; or `energy`
    {{mosaics | NETWORKS}}                          how many mosaics those are
    {{ever | PRESET | ROWS}}                        black images as above, on all networks of the edition that counts
    {{ever | PRESET | ROWS | without}}              on those trained without batch normalisation; `with`: on the others
    {{verdict | CLAIM}}                             over all comparisons; with `| PRESET` over those with it
    {{effect | CLAIM | PRESET}}                     the claim's first effect over all networks: 1.70 [1.60, 1.85]
    {{effect | CLAIM | PRESET | TOP / BOTTOM}}      that of these two rows
    {{sizes | CLAIM}}                               photographs, or trials, behind a single comparison: 2 to 40

Networks and rows may be several, with semicolons; * is every network of the plan; `best baseline` and `best control`
are the rows of that kind with the best mean. How the protocol's name begins may follow a metric (`insertion held-out`);
else it is the plan's first one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import kendalltau, rankdata
from studies import _effects, _protocols, mosaics, other_class
from studies._editions import PRESETS, Place, Study, black_images, measured
from studies._effects import over_seeds
from studies._hypotheses import BETTER, HYPOTHESES, Hypothesis
from studies._plans import ORDER, SECOND, plan_of
from studies._questions import CONTROLS, WITHOUT_NORMALISATION, Extra, questions, redrawn
from studies._summary import sizes
from studies._verdicts import Values, paired_difference

from fei.bench.report.numbers import is_reduced
from fei.metrics import bootstrap_interval

_PLACE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_NOTHING = "–"
_OWN = ("FEI", "no constraint", "control")
_ONCE = {"n": "", "fires": " each"}  # equal ones are said once


def spoken(prose: Any, study: Study, extra: Extra) -> Any:
    """Words with their numbers, wherever they are in a table of tables."""
    if isinstance(prose, dict):
        return {name: spoken(part, study, extra) for name, part in prose.items()}
    return _PLACE.sub(lambda found: number(found[1], study, extra), prose)


def number(asked: str, study: Study, extra: Extra) -> str:
    """What stands for one place in the words; a dash where there are no scores yet."""
    kind, *parts = (" ".join(part.split()) for part in asked.split("|"))
    try:
        if kind in _OF_ALL:
            return _listed(_OF_ALL[kind](study, extra, *parts))
        plan, networks, *rest = parts
        found = _places(study, plan, networks)
        texts = [text for place in found for text in _OF_PLANS[kind](place, *rest)] or [_NOTHING]
        same = len(set(texts)) == 1 < len(texts)
        return texts[0] + _ONCE[kind] if same and kind in _ONCE else _listed(texts)
    except (KeyError, TypeError, ValueError) as error:
        raise SystemExit(f"prose.toml asks for {{{{{asked}}}}}: {error!r}") from error


def plain(value: float, places: int = 3) -> str:
    """A number as the words have it: three places, fewer where it is large, and no 0 before the point."""
    if not math.isfinite(value):
        return _NOTHING
    text = f"{abs(value):.{places if abs(value) < 10 else 1}f}".removeprefix("0")
    return ("−" if value < 0 and float(text) else "") + text


def _several(text: str) -> list[str]:
    return [part.strip() for part in text.split(";")]


def _listed(texts: Iterable[str]) -> str:
    *most, last = texts
    return f"{', '.join(most)} and {last}" if most else last


def _places(study: Study, plan: str, networks: str) -> list[Place]:
    if plan not in (*ORDER, *SECOND):
        raise ValueError(f"there is no plan {plan!r}")
    if plan not in study:
        return []
    names = [pair.name for pair in study[plan].plan.pairs]
    asked = names if networks == "*" else _several(networks)
    return [Place(plan, study[plan], names.index(network)) for network in asked]


def _values(place: Place, row: str, metric: str) -> Values:
    """A row's numbers, photographs × seeds, of which some may be missing."""
    name, _, protocol = metric.partition(" ")
    if row in ("best baseline", "best control"):
        row = _best(place, row.removeprefix("best "), metric)
    found = place.values(row, name, protocol)
    if found is None:
        raise ValueError(f"there is no {metric!r} of {row!r} in {place.plan}")
    return found


def _best(place: Place, kind: str, metric: str) -> str:
    rows = [
        each.label
        for each in place.numbers.plan.methods
        if (each.label in CONTROLS if kind == "control" else each.group not in _OWN and not is_reduced(each.label))
    ]
    sign = 1 if BETTER[metric.partition(" ")[0]] else -1
    means = {row: sign * _mean(_values(place, row, metric)) for row in rows}
    return max(means, key=lambda row: -math.inf if math.isnan(means[row]) else means[row])


def _by_photograph(values: Values) -> Values:
    """Means over the seeds, of the photographs that have any."""
    means = over_seeds(values)
    known: Values = means[np.isfinite(means)]
    return known


def _mean(values: Values) -> float:
    each = _by_photograph(values)
    return float(each.mean()) if len(each) else math.nan


def _with_interval(each: Sequence[float] | Values) -> str:
    values = [float(value) for value in each]
    return plain(sum(values) / len(values)) + _interval(*bootstrap_interval(values)) if values else _NOTHING


def _interval(low: float, high: float, places: int = 3) -> str:
    return "" if math.isnan(low) else f" [{plain(low, places)}, {plain(high, places)}]"


def _signed(value: float) -> str:
    text = plain(value)
    return text if text.startswith("−") else f"+{text}"


def _means(place: Place, rows: str, metric: str) -> Iterator[str]:
    yield from (plain(_mean(_values(place, row, metric))) for row in _several(rows))


def _intervals(place: Place, rows: str, metric: str) -> Iterator[str]:
    yield from (_with_interval(_by_photograph(_values(place, row, metric))) for row in _several(rows))


def _gaps(place: Place, rows: str, other: str, metric: str) -> Iterator[str]:
    for row in _several(rows):
        found = paired_difference(place.where, metric, _values(place, row, metric), _values(place, other, metric))
        yield _NOTHING if found is None else _signed(found.difference) + _interval(found.low, found.high)


def _times(place: Place, rows: str, other: str, metric: str) -> Iterator[str]:
    for row in _several(rows):
        one, two = _values(place, row, metric), _values(place, other, metric)
        both = np.isfinite(one) & np.isfinite(two)
        yield f"{one[both].mean() / two[both].mean():.2f}".removeprefix("0") if both.any() else _NOTHING


def _seeds(place: Place, rows: str, metric: str) -> Iterator[str]:
    for row in _several(rows):
        whole = _values(place, row, metric)
        whole = whole[np.isfinite(whole).all(1)]
        yield plain(float(whole.mean(0).std(ddof=1))) if len(whole) else _NOTHING


def _rows_places(place: Place, rows: str, metric: str) -> Iterator[str]:
    labels, means = _ranked(place, metric)
    ranks = rankdata(-means)
    yield from (f"{ranks[labels.index(row)]:g}" for row in _several(rows))


def _taus(place: Place, metric: str, protocol: str) -> Iterator[str]:
    one, two = (_ranked(place, each)[1] for each in (metric, f"{metric.partition(' ')[0]} {protocol}"))
    yield f"{kendalltau(one, two).statistic:.2f}".removeprefix("0")


def _ranked(place: Place, metric: str) -> tuple[list[str], Values]:
    """The methods that have all photographs, and their means, signed so that higher is better."""
    if place.pair != 0:
        raise ValueError("places are known on the plan's first network")
    name, _, protocol = metric.partition(" ")
    labels, protocols, values = _protocols.scores(place.numbers, name)
    found = [number for number, each in enumerate(protocols) if each.startswith(protocol)]
    if not found:
        raise ValueError(f"there is no protocol {protocol!r} in {place.plan}")
    return labels, values[found[0]].mean(1) * (1 if BETTER[name] else -1)


def _fires(place: Place, rows: str) -> Iterator[str]:
    for row in _several(rows):
        values = _values(place, row, "fired")
        known = values[np.isfinite(values)]
        yield f"{known.sum():.0f} of {len(known)}" if len(known) else _NOTHING


def _redrawn(place: Place, rows: str) -> Iterator[str]:
    for row in _several(rows):
        values = redrawn(place, row)
        if values is None:
            raise ValueError(f"there is no row {row!r} in {place.plan}")
        yield plain(_mean(values))


def _classes(_: Study, extra: Extra, networks: str, rows: str) -> Iterator[str]:
    for network in _several(networks):
        for row in _several(rows):
            yield _with_interval([each["spearman"] for each in _asked(extra, network, row)])


def _asked(extra: Extra, network: str, row: str) -> list[other_class.Row]:
    if row not in other_class.SECOND or network not in other_class.NETWORKS:
        raise ValueError(f"other classes were not asked of {row!r} on {network!r}")
    return [each for each in extra.asked_again if (each["network"], each["method"]) == (network, row)]


def _flat(_: Study, extra: Extra, rows: str) -> Iterator[str]:
    for row in _several(rows):
        ratios = other_class.flatness(_everywhere(extra, row), row)
        if not ratios:
            yield _NOTHING
            continue
        middle, low, high = (plain(value, 2) for value in (median(ratios), min(ratios), max(ratios)))
        yield f"{middle} ({low} to {high})"


def _vivid(_: Study, extra: Extra, rows: str) -> Iterator[str]:
    for row in _several(rows):
        found = other_class.vivid(_everywhere(extra, row), row)
        yield from [plain(value, 2) for value in found] or [_NOTHING]


def _everywhere(extra: Extra, row: str) -> list[other_class.Row]:
    return [each for network in other_class.NETWORKS for each in _asked(extra, network, row)]


def _grid(_: Study, extra: Extra, networks: str, methods: str, name: str) -> Iterator[str]:
    for network in _several(networks):
        for method in _several(methods):
            yield _with_interval(_mosaic(extra, network, method)[name])


def _mosaics(_: Study, extra: Extra, networks: str) -> Iterator[str]:
    yield from (str(len(_mosaic(extra, network, mosaics.METHODS[0])["rank"])) for network in _several(networks))


def _mosaic(extra: Extra, network: str, method: str) -> mosaics.Row:
    if method not in mosaics.METHODS or network not in (pair.name for pair in plan_of(mosaics.PLAN).pairs):
        raise ValueError(f"there are no mosaics of {method!r} on {network!r}")
    found = [row for row in extra.mosaics if (row["network"], row["method"]) == (network, method)]
    return found[-1] if found else {name: [] for name in mosaics.TITLES}


def _ever(study: Study, _: Extra, preset: str, rows: str, normalised: str = "") -> Iterator[str]:
    if preset not in PRESETS or normalised not in ("", "with", "without"):
        raise ValueError(f"there is no preset {preset!r}, or no networks {normalised!r} batch normalisation")
    for row in _several(rows):
        places = [
            place
            for place in black_images(study, preset)
            if not normalised or (place.network in WITHOUT_NORMALISATION) == (normalised == "without")
        ]
        found = [values for place in places if (values := place.values(row, "fired")) is not None]
        known = [value for each in found for value in each.ravel() if math.isfinite(value)]
        yield f"{sum(known):.0f} of {len(known)}" if known else _NOTHING


def _claim(extra: Extra, name: str) -> Hypothesis:
    return {each.name: each for each in (*HYPOTHESES, *questions(extra))}[name]


def _verdicts(study: Study, extra: Extra, name: str, *presets: str) -> Iterator[str]:
    yield _claim(extra, name).verdict(study, presets or PRESETS)


def _sizes(study: Study, extra: Extra, name: str) -> Iterator[str]:
    yield sizes(_claim(extra, name).comparisons(study))


def _effect(study: Study, _: Extra, name: str, preset: str, rows: str = "") -> Iterator[str]:
    effects = [each for each in _effects.EFFECTS[name] if rows in ("", f"{each.top} / {each.bottom}")]
    if not effects:
        raise ValueError(f"{name} has no effect {rows!r}")
    found = effects[0].over(_effects.WHERE[name][preset](study))
    yield _NOTHING if found is None else plain(found.ratio, 2) + _interval(found.low, found.high, 2)


_OF_ALL: dict[str, Callable[..., Iterator[str]]] = {
    "class": _classes,
    "asked": lambda _, extra, network, row: iter([str(len(_asked(extra, network, row)))]),
    "flat": _flat,
    "vivid": _vivid,
    "grid": _grid,
    "mosaics": _mosaics,
    "ever": _ever,
    "verdict": _verdicts,
    "effect": _effect,
    "sizes": _sizes,
}
_OF_PLANS: dict[str, Callable[..., Iterator[str]]] = {
    "n": lambda place: iter([str(measured(place.numbers, place.pair))]),
    "mean": _means,
    "interval": _intervals,
    "gap": _gaps,
    "times": _times,
    "seeds": _seeds,
    "place": _rows_places,
    "tau": _taus,
    "fires": _fires,
    "redrawn": _redrawn,
}
