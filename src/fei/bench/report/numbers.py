"""The numbers of a run, read from its store as arrays of images × seeds."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fei.bench.report._statistics import Estimate, Values, estimate
from fei.bench.store.outcomes import curve_values
from fei.errors import DataError

if TYPE_CHECKING:
    from fei.bench.store import Store

COSTS = ("seconds", "forwards", "backwards", "peak_bytes")
_CONTROL = "fei-none"
_OURS = "ours"
_MOST_QUANTITIES = 20_000  # of all pairs: each is a column of a table
# Places for numbers, of which a plan with many seeds and few units has too many; and bytes of numbers that are kept.
_MOST_PLACES, _TIMES_PLACES, _MOST_BYTES = 1_000_000, 100, 1 << 28


@dataclass(frozen=True)
class Quantity:
    """What was measured: a metric, under a protocol and at a layer where it has them."""

    kind: str
    metric: str
    protocol: str = ""
    layer: str = ""


def is_reduced(label: str) -> bool:
    """Whether a row's label says that it does less work than its authors' settings ask for."""
    return label.endswith("]")


@dataclass(frozen=True)
class Failure:
    """A unit that failed, by the places of its pair and method in the plan."""

    pair: int
    method: int
    kind: str
    item: str
    seed: int
    error: str


@dataclass(frozen=True)
class MeanCurve:
    """A mean curve over images and seeds."""

    fractions: NDArray[np.float64]
    scores: NDArray[np.float64]


class Numbers:
    """What a run measured.

    Pairs and methods go by their place in the plan; what two rows of the plan share counts for both. Of a unit that
    failed, what was complete before counts.

    Args:
        store: The run.

    Attributes:
        plan: Its plan.
        rows: The methods in the order of tables: groups in the order in which the plan names them.
        ours: The methods that are compared with the others: those of the group "ours" or, where there is no such group,
            FEI with a clipping rule, `fei` among them.
        controls: FEI without a clipping rule: it optimises the external metrics alone and takes no place among methods.
        reduced: Baselines that do less work than their authors' settings ask for, which the label says in brackets at
            its end, "RISE [400 masks]". They take no place, and nothing is compared with them.
        left_out: How many numbers of what was read so far are NaN or infinite, and count as missing.
    """

    def __init__(self, store: Store) -> None:
        self.plan = store.plan
        self._store = store
        methods = self.plan.methods
        groups = list(dict.fromkeys(method.group for method in methods))
        self.rows = sorted(range(len(methods)), key=lambda row: groups.index(methods[row].group))
        self.controls = {row for row in self.rows if methods[row].name == _CONTROL} if len(methods) > 1 else set()
        named = any(method.group.casefold() == _OURS for method in methods)
        self.ours = {
            row
            for row in set(self.rows) - self.controls
            if (methods[row].group.casefold() == _OURS if named else methods[row].name.split("-")[0] == "fei")
        }
        weak = {row for row in self.rows if is_reduced(methods[row].label)}
        self.reduced = weak - self.ours - self.controls
        self.left_out: Counter[Quantity] = Counter()
        self._values: dict[Quantity, dict[tuple[int, int], Values]] = {}
        self._check_places()
        self._estimates: dict[tuple[int, int, Quantity], Estimate | None] = {}

    def _check_places(self) -> None:
        """Refuse a run whose units are spread over far more images × seeds × methods than there are units."""
        rows = self._store.rows(
            "SELECT count(DISTINCT item) * count(DISTINCT method), count(*) FROM plan_units GROUP BY pair, kind"
        )
        for places, units in rows:
            if places * len(self.plan.seeds) > _MOST_PLACES + _TIMES_PLACES * units:
                raise DataError(
                    f"The run in '{self._store.folder}' has {units} units for {places} × {len(self.plan.seeds)} "
                    "places; restore the database."
                )

    @cached_property
    def quantities(self) -> list[set[Quantity]]:
        """For each pair, all that was measured and that the plan asks for.

        What was taken over from other runs may have scores under protocols that this plan does not name.
        """
        found: list[set[Quantity]] = [set() for _ in self.plan.pairs]
        rows = self._store.rows(
            "SELECT DISTINCT p.pair, p.kind, s.metric, s.protocol, s.layer FROM plan_units p "
            "JOIN scores s ON s.unit = p.unit"
        )
        if len(rows) > _MOST_QUANTITIES:
            raise DataError(
                f"The run in '{self._store.folder}' has measured {len(rows)} things, of which at most "
                f"{_MOST_QUANTITIES} are told; take a plan with fewer layers."
            )
        asked = {"", *map(_unversioned, self.plan.metrics.protocols)}
        for pair, *quantity in rows:
            measured = Quantity(*quantity)
            if _unversioned(measured.protocol) in asked:
                found[pair].add(measured)
        return found

    def layers(self, pair: int, kind: str, metric: str, protocol: str = "") -> list[str]:
        """The layers at which a metric was measured, from shallow to deep; stages of a sanity check in their order."""
        names = {q.layer for q in self.quantities[pair] if (q.kind, q.metric, q.protocol) == (kind, metric, protocol)}
        return sorted(names, key=lambda name: (self._depths.get((pair, name), math.inf), natural(name)))

    def protocols(self, kind: str, metric: str) -> list[str]:
        """The protocols under which a metric was measured; the plan's first one first."""
        found = {q.protocol for some in self.quantities for q in some if (q.kind, q.metric) == (kind, metric)}
        named = list(self.plan.metrics.protocols)
        return sorted(found, key=lambda name: (named.index(name) if name in named else len(named), name))

    def at_layers(self, pair: int, metric: str) -> list[Quantity]:
        """A metric of maps under its first protocol, at each layer from shallow to deep; once if it has no layers."""
        return [
            Quantity("map", metric, protocol, layer)
            for protocol in self.protocols("map", metric)[:1]
            for layer in self.layers(pair, "map", metric, protocol)
        ]

    def deepest(self, pair: int, metric: str) -> Quantity | None:
        """A metric of maps under its first protocol, at the last layer if it has any; None if there are no numbers."""
        return next(reversed(self.at_layers(pair, metric)), None)

    def values(self, pair: int, row: int, quantity: Quantity) -> Values:
        """The numbers of a method on a pair: images × seeds, in the same order for all methods."""
        if quantity not in self._values:
            while sum(array.nbytes for some in self._values.values() for array in some.values()) > _MOST_BYTES:
                del self._values[next(iter(self._values))]
            self._values[quantity] = self._read(quantity)
        items, seeds = self._items[pair, quantity.kind], self.plan.seeds
        return self._values[quantity].get((pair, row), np.full((len(items), len(seeds)), np.nan))

    def estimate(self, pair: int, row: int, quantity: Quantity) -> Estimate | None:
        """Mean, spread and interval of a method's numbers on a pair; None where there are none."""
        key = (pair, row, quantity)
        if key not in self._estimates:
            self._estimates[key] = estimate(self.values(*key))
        return self._estimates[key]

    def curve(self, pair: int, row: int, protocol: str, name: str) -> MeanCurve | None:
        """A method's mean curve on a pair; None where there is none."""
        return self._curves.get((pair, row, protocol, name))

    @cached_property
    def failures(self) -> list[Failure]:
        """The units that failed, in the order of the plan."""
        rows = self._store.rows(
            "SELECT p.pair, p.method, p.kind, p.item, p.seed, coalesce(u.error, '') FROM plan_units p "
            "JOIN units u ON u.key = p.unit WHERE u.status = 'failed' "
            "ORDER BY p.kind, p.pair, p.method, p.item, p.seed"
        )
        return [Failure(*row) for row in rows]

    @cached_property
    def counts(self) -> dict[tuple[str, str], int]:
        """How many of the plan's units of each kind are "done", "failed" or "waiting"."""
        rows = self._store.rows(
            "SELECT p.kind, CASE WHEN u.status IN ('done', 'failed') THEN u.status ELSE 'waiting' END, count(*) "
            "FROM plan_units p LEFT JOIN units u ON u.key = p.unit GROUP BY 1, 2 ORDER BY 1, 2"
        )
        return {(kind, status): count for kind, status, count in rows}

    def items(self, pair: int, kind: str) -> list[str]:
        """The images or trials of a pair, in order."""
        return list(self._items[pair, kind])

    def planned(self, pair: int, kind: str) -> set[int]:
        """The methods that the plan asks for on a pair."""
        return self._planned[pair, kind]

    @cached_property
    def _planned(self) -> dict[tuple[int, str], set[int]]:
        found: dict[tuple[int, str], set[int]] = defaultdict(set)
        for pair, kind, row in self._store.rows("SELECT DISTINCT pair, kind, method FROM plan_units"):
            found[pair, kind].add(row)
        return found

    @cached_property
    def _depths(self) -> dict[tuple[int, str], int]:
        rows = self._store.rows("SELECT pair, layer, depth FROM layers")
        return {(pair, layer): depth for pair, layer, depth in rows}

    @cached_property
    def _items(self) -> dict[tuple[int, str], dict[str, int]]:
        found: dict[tuple[int, str], list[str]] = defaultdict(list)
        for pair, kind, item in self._store.rows("SELECT DISTINCT pair, kind, item FROM plan_units"):
            found[pair, kind].append(item)
        places = {key: {item: i for i, item in enumerate(sorted(items, key=natural))} for key, items in found.items()}
        return defaultdict(dict, places)

    def _read(self, quantity: Quantity) -> dict[tuple[int, int], Values]:
        seeds = {seed: column for column, seed in enumerate(self.plan.seeds)}
        arrays: dict[tuple[int, int], Values] = {}
        for pair, row, item, seed, value in self._rows(quantity):
            items = self._items[pair, quantity.kind]
            if (pair, row) not in arrays:
                arrays[pair, row] = np.full((len(items), len(seeds)), np.nan)
            if value is None or not math.isfinite(value):
                self.left_out[quantity] += 1
            elif seed in seeds:
                arrays[pair, row][items[item], seeds[seed]] = value
        return arrays

    def _rows(self, quantity: Quantity) -> list[tuple[int, int, str, int, float | None]]:
        if quantity.metric in COSTS:
            sql = (
                f"SELECT p.pair, p.method, p.item, p.seed, u.{quantity.metric} FROM plan_units p "  # noqa: S608
                "JOIN units u ON u.key = p.unit WHERE p.kind = ? AND u.seconds IS NOT NULL"
            )
            arguments = [quantity.kind]
        else:
            sql = (
                "SELECT p.pair, p.method, p.item, p.seed, s.value FROM plan_units p JOIN scores s ON s.unit = p.unit "
                "AND s.metric = ? AND s.protocol = ? AND s.layer = ? WHERE p.kind = ?"
            )
            arguments = [quantity.metric, quantity.protocol, quantity.layer, quantity.kind]
        return [(row[0], row[1], row[2], row[3], row[4]) for row in self._store.rows(sql, arguments)]

    @cached_property
    def _curves(self) -> dict[tuple[int, int, str, str], MeanCurve]:
        sums: dict[tuple[int, int, str, str, str], NDArray[np.float64]] = {}
        counts: Counter[tuple[int, int, str, str, str]] = Counter()
        rows = self._store.rows(
            'SELECT p.pair, p.method, c.protocol, c.name, c.fractions, c."values" FROM plan_units p '
            "JOIN curves c ON c.unit = p.unit WHERE p.kind = 'map' ORDER BY p.pair, p.method, p.item, p.seed"
        )
        for *key, values in rows:
            place = (key[0], key[1], key[2], key[3], key[4])
            scores = np.asarray(curve_values(values), dtype=np.float64)
            if len(scores) != len(curve_values(place[4])):
                raise DataError(
                    f"A curve of '{place[3]}' has more or fewer scores than fractions; restore the database."
                )
            sums[place] = sums[place] + scores if place in sums else scores
            counts[place] += 1
        found: dict[tuple[int, int, str, str], MeanCurve] = {}
        # Images of several sizes have several sets of fractions, and curves are only added where these agree.
        for place in sorted(sums, key=lambda place: counts[place]):
            fractions = np.asarray(curve_values(place[4]), dtype=np.float64)
            found[place[:4]] = MeanCurve(fractions, sums[place] / counts[place])
        return found


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key to sort by that takes numbers for numbers, however long: features.8 comes before features.15."""
    parts = [part for part in re.split(r"([0-9]+)", name) if part]
    return [(0, len(part.lstrip("0")), part.lstrip("0")) if part[0] in "0123456789" else (1, 0, part) for part in parts]


def _unversioned(protocol: str) -> str:
    return protocol.partition("/")[0]
