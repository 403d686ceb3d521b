"""How the numbers of two runs differ."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from typing import Any

from fei.bench.store._store import Store
from fei.bench.store.disk import dictionaries, explained

_WHERE = ("pair", "method", "kind", "metric", "protocol", "layer")
_WHAT = (*_WHERE, "item", "seed")


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
    # in a file without a name; what is read of the runs is what was checked as they were opened
    with explained(first.folder), contextlib.closing(sqlite3.connect("", isolation_level=None)) as sql:
        joined = " AND ".join(f'a."{name}" IS b."{name}"' for name in _WHAT)
        names = ", ".join(f'"{name}"' for name in _WHAT)
        for table, store in (("ours", first), ("theirs", second)):
            sql.execute(f"CREATE TABLE {table}({names}, value, unit)")
            rows = store.each(f"SELECT {names}, value, unit FROM results WHERE metric IS NOT NULL AND status = 'done'")  # noqa: S608
            sql.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * (len(_WHAT) + 2))})", rows)  # noqa: S608
            sql.execute(f"CREATE INDEX {table}_names ON {table}({names})")
        sql.execute(
            f"CREATE TABLE both AS SELECT a.*, b.value AS other, abs(a.value - b.value) AS apart, "  # noqa: S608
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
