"""The numbers of a run for its page: every image's, as compressed arrays, and the table's estimates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fei.bench.report._cells import Cell, decimals, known
from fei.bench.report._statistics import Estimate, proportion
from fei.bench.report.numbers import COSTS, Numbers, Quantity
from fei.bench.store import Store
from fei.bench.store.outcomes import curve_values, stored_json
from fei.bench.units import BATCH_ROWS, BLACK_IMAGE, DONE, MAP
from fei.metrics import declared
from fei.report.shell import packed

_KEY = 16  # digits of a unit's key: enough to name it
_MOST_REASONS = 60_000  # of what 16 bits tell apart
_MOST_POINTS = 33  # of a curve
_MISSING = 65535
_FIRED = Quantity(BLACK_IMAGE, "fired")


def protocols(numbers: Numbers) -> list[str]:
    """The protocols among which a reader chooses, the plan's first one first."""
    return list(dict.fromkeys(protocol for metric in _under_protocols() for protocol in numbers.protocols(MAP, metric)))


def _under_protocols() -> list[str]:
    return [metric.score for metric in declared().values() if "protocol" in metric.needs]


def table_columns(numbers: Numbers) -> list[tuple[str, str]]:
    """What the columns of the table are: metrics with their protocols, in the order of the table."""
    found = {(q.metric, q.protocol) for some in numbers.quantities for q in some if q.kind == MAP}
    costs = [(metric, "") for metric in COSTS] if found else []
    places = {metric: place for place, metric in enumerate(_under_protocols())}
    order = sorted(found, key=lambda one: (places.get(one[0], len(places)), known(one[0]).title, one[1]))
    return [one for one in [*order, *costs] if one[0] != BATCH_ROWS and not known(*one).detail]


def column_documents(numbers: Numbers, columns: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """The columns as the page reads them, with the number of decimals that the tables of the report would give."""
    documents = []
    for metric, protocol in columns:
        cells = [
            Cell(found)
            for pair in range(len(numbers.plan.pairs))
            for row in numbers.rows
            if (quantity := _at_last_layer(numbers, pair, metric, protocol)) is not None
            and (found := numbers.estimate(pair, row, quantity)) is not None
        ]
        documents.append(
            {
                "metric": metric,
                "protocol": protocol,
                "heading": known(metric, protocol).heading,
                "better": known(metric, protocol).higher_is_better,
                "digits": 0 if known(metric).format == "d" else decimals(cells),
                "cost": metric in COSTS,
                "layered": "layers" in known(metric).needs,
            }
        )
    return documents


@dataclass(frozen=True)
class Units:
    """The units of a pair as the page numbers them: methods × images × seeds.

    Attributes:
        rows: The methods, by their places in the plan.
        items: The images.
        seeds: The seeds.
    """

    rows: list[int]
    items: list[str]
    seeds: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many of each."""
        return len(self.rows), len(self.items), len(self.seeds)

    def places(self, links: Iterable[Sequence[Any]]) -> Iterable[tuple[int, Sequence[Any]]]:
        """The place of each row of a query that begins with method, image and seed, and the rest of that row."""
        rows, items, seeds = ({each: i for i, each in enumerate(some)} for some in (self.rows, self.items, self.seeds))
        for method, item, seed, *rest in links:
            if method in rows and item in items and seed in seeds:
                yield (rows[method] * len(items) + items[item]) * len(seeds) + seeds[seed], rest


def units_of(numbers: Numbers, pair: int) -> Units:
    """The units of a pair."""
    planned = numbers.planned(pair, MAP)
    return Units([row for row in numbers.rows if row in planned], numbers.items(pair, MAP), numbers.plan.seeds)


def pair_document(store: Store, numbers: Numbers, pair: int, columns: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """A pair as the page reads it: its images, its units, and all their numbers."""
    plan, units = numbers.plan.pairs[pair], units_of(numbers, pair)
    document: dict[str, Any] = {
        "name": plan.name,
        "model": plan.model,
        "data": plan.data,
        "rows": units.rows,
        "images": len(units.items),
        "fired": {
            row: _ends(found)
            for row in sorted(numbers.planned(pair, BLACK_IMAGE))
            if (found := proportion(numbers.values(pair, row, _FIRED))) is not None
        },
    }
    if not units.items:
        return document
    quantities = sorted(
        (q for q in numbers.quantities[pair] if q.kind == MAP and q.metric != BATCH_ROWS),
        key=lambda q: (q.metric, q.protocol, numbers.layers(pair, MAP, q.metric, q.protocol).index(q.layer)),
    )
    quantities += [Quantity(MAP, metric) for metric in COSTS]
    chosen = [_at_last_layer(numbers, pair, *column) for column in columns]
    values = np.stack([[numbers.values(pair, row, q) for row in units.rows] for q in quantities])
    return document | {
        "items": _packed_lines(units.items),
        **_images(store, pair, units),
        **_keys(store, pair, units),
        "quantities": [[q.metric, q.protocol, q.layer.removeprefix("network.")] for q in quantities],
        "columns": [None if q is None or q not in quantities else quantities.index(q) for q in chosen],
        "values": packed(values.astype(np.float32)),
        "estimates": [
            [None if q is None or (found := numbers.estimate(pair, row, q)) is None else _ends(found) for q in chosen]
            for row in units.rows
        ],
        "settings": _settings(store, pair, units),
        "curves": _curves(store, pair, units),
    }


def _at_last_layer(numbers: Numbers, pair: int, metric: str, protocol: str) -> Quantity | None:
    """The quantity of a column: where a metric has layers, at the deepest."""
    if metric in COSTS:
        return Quantity(MAP, metric)
    layers = numbers.layers(pair, MAP, metric, protocol)
    return Quantity(MAP, metric, protocol, layers[-1]) if layers else None


def _ends(found: Estimate) -> list[float | int | None]:
    """Mean, ends of the 95 % interval and number of images or trials."""
    low, high = (None if np.isnan(end) else _number(end) for end in (found.low, found.high))
    return [_number(found.mean), low, high, found.images]


def _images(store: Store, pair: int, units: Units) -> dict[str, Any]:
    """What is known of each image: the explained class, its probability, and whether the network predicts it right."""
    found = store.rows(
        "SELECT p.item, max(u.label), max(u.target), max(u.probability), max(u.correct) FROM plan_units p "
        "JOIN units u ON u.key = p.unit WHERE p.pair = ? AND p.kind = ? GROUP BY p.item",
        (pair, MAP),
    )
    facts = {item: rest for item, *rest in found}
    labels = [_label(*facts.get(item, [None] * 4)[:2]) for item in units.items]
    known = sorted(set(labels))
    places = {label: place for place, label in enumerate(known)}
    probabilities = [facts.get(item, [None] * 4)[2] for item in units.items]
    correct = [facts.get(item, [None] * 4)[3] for item in units.items]
    return {
        "classes": known,
        "class": packed(np.array([places[label] for label in labels], np.uint16)),
        "probability": packed(np.array([np.nan if p is None else p for p in probabilities], np.float32)),
        "correct": packed(np.array([2 if c is None else int(c) for c in correct], np.uint8)),
    }


def _label(label: str | None, target: int | None) -> str:
    if label is not None:
        return label
    return "not known yet" if target is None else f"class {target}"


def _keys(store: Store, pair: int, units: Units) -> dict[str, Any]:
    """The key of each unit, and its state: 0 done, 1 not computed yet, 2 and more failed, for this reason."""
    links = store.rows(
        "SELECT p.method, p.item, p.seed, p.unit, u.status, u.error FROM plan_units p "
        "LEFT JOIN units u ON u.key = p.unit WHERE p.pair = ? AND p.kind = ?",
        (pair, MAP),
    )
    size = int(np.prod(units.shape))
    keys, states, reasons = [""] * size, np.ones(size, np.uint16), dict[str, int]()
    for place, (key, status, error) in units.places(links):
        keys[place] = key[:_KEY]
        if status == DONE:
            states[place] = 0
        elif status is not None:
            reason = error or "no reason was given"
            reason = reason if reason in reasons or len(reasons) < _MOST_REASONS else "one of many other reasons"
            states[place] = 2 + reasons.setdefault(reason, len(reasons))
    return {"keys": _packed_lines(keys), "states": packed(states), "reasons": list(reasons)}


def _settings(store: Store, pair: int, units: Units) -> list[Any]:
    """The settings of each method, as they were used."""
    rows = store.rows(
        "SELECT p.method, max(u.config) FROM plan_units p JOIN units u ON u.key = p.unit "
        "WHERE p.pair = ? AND p.kind = ? GROUP BY p.method",
        (pair, MAP),
    )
    found = {method: stored_json(config or "{}") for method, config in rows}
    return [found.get(row, {}) for row in units.rows]


def _curves(store: Store, pair: int, units: Units) -> list[dict[str, Any]]:
    """The curves of all units, in 16 bits between their lowest and their highest value; long ones are thinned."""
    links = store.rows(
        'SELECT p.method, p.item, p.seed, c.protocol, c.name, c.fractions, c."values" FROM plan_units p '
        "JOIN curves c ON c.unit = p.unit WHERE p.pair = ? AND p.kind = ?",
        (pair, MAP),
    )
    sets: dict[tuple[str, str, str], dict[int, str]] = {}
    for place, (protocol, name, fractions, values) in units.places(links):
        sets.setdefault((protocol, name, fractions), {})[place] = values
    documents = []
    for (protocol, name, text), found in sorted(sets.items(), key=lambda one: (one[0][1] != "insertion", one[0])):
        fractions = np.asarray(curve_values(text), np.float64)
        kept = np.unique(np.linspace(0, len(fractions) - 1, min(len(fractions), _MOST_POINTS)).round().astype(int))
        scores = np.full((int(np.prod(units.shape)), len(kept)), np.nan)
        for place, values in found.items():
            scores[place] = np.asarray(curve_values(values), np.float64)[kept]
        low, high, levels = _levels(scores)
        documents.append(
            {
                "protocol": protocol,
                "name": name,
                "title": known(name, protocol).document()["heading"],
                "fractions": [_number(fraction) for fraction in fractions[kept]],
                "points": len(fractions),
                "low": low,
                "high": high,
                "levels": packed(levels),
            }
        )
    return documents


def _levels(scores: NDArray[np.float64]) -> tuple[float, float, NDArray[np.uint16]]:
    known = np.isfinite(scores)
    low, high = (float(scores[known].min()), float(scores[known].max())) if known.any() else (0.0, 1.0)
    share = np.where(known, scores - low, 0) / ((high - low) or 1)
    return low, high, np.where(known, np.rint(share * (_MISSING - 1)), _MISSING).astype(np.uint16)


def _packed_lines(lines: Sequence[str]) -> str:
    return packed(np.frombuffer("\n".join(lines).encode() or b"\n", np.uint8))


def _number(value: float) -> float:
    return float(f"{value:.7g}")
