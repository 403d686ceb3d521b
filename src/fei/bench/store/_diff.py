"""How the numbers of two runs differ."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from fei.bench.store._store import Store
from fei.bench.store.disk import DATABASE, connect_readonly, dictionaries, explained

_WHERE = ("pair", "method", "kind", "metric", "protocol", "layer")
_WHAT = (*_WHERE, "item", "seed")
_SCORED = "SELECT * FROM {}.results WHERE metric IS NOT NULL AND status = 'done'"


@dataclass(frozen=True)
class Difference:
    """How two runs differ, by the names of pairs, the labels of methods, images and seeds.

    Attributes:
        common: Scores that both have.
        differing: How many of them are not equal.
        only_first: Scores that only the first run has.
        only_second: Scores that only the second has.
        largest: The largest differences: of what, both values, and whether both units have the same key. If they have,
            the same computation came out differently; if not, the plans mean different computations by the same names.
        means: Mean values over images and seeds that both have, and the largest single difference, where they differ.
    """

    common: int
    differing: int
    only_first: int
    only_second: int
    largest: list[dict[str, Any]]
    means: list[dict[str, Any]]

    @property
    def same(self) -> bool:
        """Whether both runs have the same scores, with the same values."""
        return not (self.differing or self.only_first or self.only_second)


def diff(first: Store, second: Store, *, most: int = 20) -> Difference:
    """Compare the scores of two runs.

    Args:
        first: A run.
        second: Another.
        most: How many of the largest differences to list.
    """
    _ = first.plan, second.plan  # whose names are those of the tables, each once
    with explained(first.folder), contextlib.closing(connect_readonly(first.folder)) as sql:
        address = (second.folder / DATABASE).resolve().as_uri()
        sql.execute("ATTACH ? AS other", (f"{address}?mode=ro",))
        sql.execute("PRAGMA temp_store = FILE")
        joined = " AND ".join(f'a."{name}" IS b."{name}"' for name in _WHAT)
        names = ", ".join(f'"{name}"' for name in _WHAT)
        for table, schema in (("ours", "main"), ("theirs", "other")):
            sql.execute(f"CREATE TEMP TABLE {table} AS SELECT {names}, value, unit FROM ({_SCORED.format(schema)})")  # noqa: S608
            sql.execute(f"CREATE INDEX temp.{table}_names ON {table}({names})")
        sql.execute(
            f"CREATE TEMP TABLE both AS SELECT a.*, b.value AS other, abs(a.value - b.value) AS apart, "  # noqa: S608
            f"a.unit = b.unit AS same_unit FROM ours a JOIN theirs b ON {joined}"
        )

        def count(query: str) -> int:
            return int(sql.execute(f"SELECT count(*) FROM {query}").fetchone()[0])  # noqa: S608

        largest = dictionaries(
            sql,
            f"SELECT {names}, value AS first, other AS second, apart AS difference, same_unit FROM both "  # noqa: S608
            f"WHERE value IS NOT other ORDER BY apart DESC, {names} LIMIT ?",
            most,
        )
        where = ", ".join(_WHERE)
        means = dictionaries(
            sql,
            f"SELECT {where}, count(*) AS count, avg(value) AS first, avg(other) AS second, "  # noqa: S608
            "avg(other) - avg(value) AS difference, max(apart) AS largest, sum(value IS NOT other) AS differing "
            f"FROM both GROUP BY {where} HAVING differing > 0 ORDER BY abs(difference) DESC, {where}",
        )
        common, differing = count("both"), count("both WHERE value IS NOT other")
        return Difference(common, differing, count("ours") - common, count("theirs") - common, largest, means)
