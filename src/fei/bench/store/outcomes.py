"""What a run has computed, read back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from fei.bench.store._schema import UNIT_COLUMNS
from fei.bench.units import KEPT, Outcome
from fei.errors import DataError

if TYPE_CHECKING:
    from fei.bench.store._store import Store

_BATCH = 500  # units read at once


def stored_outcomes(store: Store, keys: Sequence[str] | None = None, *, maps: bool = False) -> Iterator[Outcome]:
    """The outcomes in a run.

    Args:
        store: The run.
        keys: Of which units; of all without, those that the plan no longer links to included.
        maps: Whether to read the kept maps too.
    """
    if keys is None:
        keys = [key for (key,) in store.rows("SELECT key FROM units ORDER BY key")]
    for first in range(0, len(keys), _BATCH):
        yield from _batch(store, list(keys[first : first + _BATCH]), maps)


def stored_json(text: str) -> Any:
    """The content of a text in the database that must be JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_content(text, "JSON") from error


def curve_values(text: str) -> list[float]:
    """The fractions or the scores of a curve, from their text in the database."""
    try:
        return [float(value) for value in stored_json(text)]
    except (TypeError, ValueError, OverflowError) as error:
        raise _no_content(text, "a list of numbers") from error


def _no_content(text: str, what: str) -> DataError:
    return DataError(f"{text[:60]!r} stands where {what} should; restore the run, or begin another one.")


def _batch(store: Store, keys: list[str], maps: bool) -> Iterator[Outcome]:
    marks = f"({','.join('?' * len(keys))})"

    def by_unit(columns: str, table: str) -> dict[str, list[tuple[Any, ...]]]:
        sql = f"SELECT unit, {columns} FROM {table} WHERE unit IN {marks} ORDER BY unit"  # noqa: S608
        return {key: [row[1:] for row in rows] for key, rows in groupby(store.rows(sql, keys), lambda row: row[0])}

    scores, groups = by_unit("metric, protocol, layer, value", "scores"), by_unit("name", "groups")
    curves = by_unit('protocol, name, fractions, "values"', "curves")
    for row in store.rows(f"SELECT {', '.join(UNIT_COLUMNS)} FROM units WHERE key IN {marks}", keys):  # noqa: S608
        unit = dict(zip(UNIT_COLUMNS, row, strict=True))
        key = unit["key"]
        kept = store.map(key) if maps else None
        yield Outcome(
            **unit | {"correct": None if unit["correct"] is None else bool(unit["correct"])},
            scores=tuple((m, p, y, v) for m, p, y, v in scores.get(key, [])),
            curves=tuple((p, n, curve_values(f), curve_values(v)) for p, n, f, v in curves.get(key, [])),
            groups=tuple(name for (name,) in groups.get(key, []) if name != KEPT or kept is not None),
            map=kept,
        )
