"""The tables of a run's SQLite file, and the statements that fill them."""

from __future__ import annotations

import json
import platform
import sqlite3
from contextlib import closing
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fei.bench.plan.keys import plan_key
from fei.bench.store import _digests
from fei.bench.units import Outcome
from fei.errors import DataError, InputError

if TYPE_CHECKING:
    from fei.bench.plan import Plan

VERSION = 1

TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE pairs(pair INTEGER PRIMARY KEY, name TEXT, model TEXT, data TEXT);
CREATE TABLE methods(method INTEGER PRIMARY KEY, label TEXT, name TEXT, "group" TEXT);
CREATE TABLE layers(pair INTEGER, layer TEXT, depth INTEGER, PRIMARY KEY(pair, layer)) WITHOUT ROWID;
CREATE TABLE units(
    key TEXT PRIMARY KEY, kind TEXT, model TEXT, data TEXT, item TEXT, method TEXT, config TEXT, target INTEGER,
    label TEXT, probability REAL, correct INTEGER, seed INTEGER, status TEXT, error TEXT, attempts INTEGER,
    seconds REAL, forwards INTEGER, backwards INTEGER, peak_bytes INTEGER, threads INTEGER, finished TEXT);
CREATE TABLE groups(unit TEXT, name TEXT, PRIMARY KEY(unit, name)) WITHOUT ROWID;
CREATE TABLE scores(
    unit TEXT, metric TEXT, protocol TEXT, layer TEXT, value REAL,
    PRIMARY KEY(unit, metric, protocol, layer)) WITHOUT ROWID;
CREATE TABLE curves(
    unit TEXT, protocol TEXT, name TEXT, fractions TEXT, "values" TEXT,
    PRIMARY KEY(unit, protocol, name)) WITHOUT ROWID;
CREATE TABLE plan_units(
    pair INTEGER, method INTEGER, item TEXT, seed INTEGER, kind TEXT, unit TEXT,
    PRIMARY KEY(pair, method, item, seed, kind)) WITHOUT ROWID;
CREATE INDEX plan_units_by_unit ON plan_units(unit);
CREATE VIEW results AS
    SELECT pairs.name AS pair, methods.label AS method, p.item, p.seed, p.kind, s.metric, s.protocol, s.layer, s.value,
           u.status, u.error, methods."group", pairs.model, pairs.data, u.target, u.label, u.probability, u.correct,
           u.seconds, u.forwards, u.backwards, u.peak_bytes, u.threads, u.attempts, u.finished,
           p.pair AS pair_index, p.method AS method_index, l.depth, u.config, p.unit
    FROM plan_units p
    JOIN units u ON u.key = p.unit
    LEFT JOIN pairs ON pairs.pair = p.pair
    LEFT JOIN methods ON methods.method = p.method
    LEFT JOIN scores s ON s.unit = p.unit
    LEFT JOIN layers l ON l.pair = p.pair AND l.layer = s.layer;
"""

# What came of a unit. What a later computation leaves open (the cost, where a kept map was read) stays as it was.
UNIT_COLUMNS = tuple(each.name for each in fields(Outcome) if each.name not in {"scores", "curves", "groups", "map"})
_NEWEST = ("status", "error", "attempts", "finished")
PUT_UNIT = (
    f"INSERT INTO units({', '.join(UNIT_COLUMNS)}) VALUES ({', '.join('?' * len(UNIT_COLUMNS))}) "  # noqa: S608
    "ON CONFLICT(key) DO UPDATE SET "
    + ", ".join(
        f"{name} = excluded.{name}" if name in _NEWEST else f"{name} = coalesce({name}, excluded.{name})"
        for name in UNIT_COLUMNS[1:]
    )
)
PUT_GROUP = "INSERT OR IGNORE INTO groups(unit, name) VALUES (?, ?)"
PUT_SCORE = "INSERT OR IGNORE INTO scores(unit, metric, protocol, layer, value) VALUES (?, ?, ?, ?, ?)"
PUT_CURVE = 'INSERT OR IGNORE INTO curves(unit, protocol, name, fractions, "values") VALUES (?, ?, ?, ?, ?)'
PUT_LINK = "INSERT OR IGNORE INTO plan_units(pair, method, item, seed, kind, unit) VALUES (?, ?, ?, ?, ?, ?)"


def lay_out(sql: sqlite3.Connection, plan: Plan) -> None:
    """Make the tables, and note the plan and with what it is computed."""
    from fei import __version__

    versions = {
        "fei": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "sqlite": sqlite3.sqlite_version,
    }
    facts = {
        "schema": str(VERSION),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": json.dumps(versions),
    }
    for statement in TABLES.split(";"):
        sql.execute(statement)
    sql.executemany("INSERT INTO meta(key, value) VALUES (?, ?)", facts.items())
    put_plan(sql, plan)


def version(sql: sqlite3.Connection) -> str | None:
    """The schema of a run; None where none was laid out yet."""
    made = sql.execute(f"{_OBJECTS} AND name = 'meta'").fetchall()
    if not made:
        return None
    if not _expected()[0].issuperset(made):  # what is computed as it is read
        return "?"
    found = sql.execute("SELECT value FROM meta WHERE key = 'schema'").fetchall()
    return str(found[0][0])[:20] if found else "?"


# Maps are files of these names. What follows a zero byte, GLOB does not see.
_NO_KEY = " OR {0} GLOB '*[^0-9A-Za-z_-]*' OR length({0}) <> length(CAST({0} AS BLOB))"
_OBJECTS = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"
# The view `results` repeats a unit for each of its scores and each row of the plan: the bytes that this comes to, and
# as many as there may be, in all and for each byte of the file.
_MOST_UNFOLDED, _TIMES_UNFOLDED = 200_000_000, 200
_UNFOLDED = """
SELECT coalesce(sum(max(1, coalesce(scored.number, 0)) * (linked.length + linked.number * (100
    + coalesce(named.length, 0) + length(u.config) + length(u.model) + length(u.data) + length(u.method)
    + coalesce(length(u.label), 0) + coalesce(length(u.error), 0)))), 0)
FROM (SELECT unit, count(*) AS number, sum(length(item)) AS length FROM plan_units GROUP BY unit) linked
JOIN units u ON u.key = linked.unit
LEFT JOIN (SELECT unit, count(*) AS number FROM scores GROUP BY unit) scored ON scored.unit = linked.unit
LEFT JOIN (SELECT unit, sum(length(name) + 1) AS length FROM groups GROUP BY unit) named ON named.unit = linked.unit
"""
_LONGEST_ITEM = 4096  # as a path is on Linux: each table reads the items again
_MAY_BE_NULL = {
    "digests": {"content", "map"},
    "meta": {"value"},
    "pairs": {"data"},
    "units": {each.name for each in fields(Outcome) if each.default is not MISSING},
    "scores": {"value"},
}


def flaw(sql: sqlite3.Connection) -> str | None:
    """What no run would write: other tables or triggers, damage, and cells of another type; None where all is well."""
    expected, wrong_cells = _expected()
    found = set(sql.execute(_OBJECTS))
    # others could have columns or indices that are computed as they are read; earlier versions made no digests
    if {one for one in expected if one[1] != _digests.TABLE} - found or found - expected:
        return "its tables are not those of a run"
    if sql.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
        return "it is damaged"
    for _, table, _ in found:
        if table in wrong_cells and sql.execute(f"SELECT 1 FROM {table} WHERE {wrong_cells[table]} LIMIT 1").fetchall():  # noqa: S608
            return f"its table '{table}' holds what no run writes"
    (size,), (pages,) = (sql.execute(f"PRAGMA {what}").fetchone() for what in ("page_size", "page_count"))
    if sql.execute(_UNFOLDED).fetchone()[0] > _MOST_UNFOLDED + _TIMES_UNFOLDED * size * pages:
        return "its rows refer to each other without end"
    return None


def check(folder: Path, sql: sqlite3.Connection) -> None:
    """Refuse a database of another version, and one that no run has written.

    Raises:
        InputError: If nothing was laid out in it.
        DataError: If it cannot be used.
    """
    found = version(sql)
    if found is None:
        raise InputError(f"The run in '{folder}' was never begun; start it again with 'fei bench run'.")
    if found != str(VERSION):
        raise DataError(
            f"The run in '{folder}' has schema {found} and this version of fei reads {VERSION}; use the version that "
            "wrote it, or a newer one."
        )
    wrong = flaw(sql)
    if wrong is not None:
        raise DataError(f"The database in '{folder}' cannot be used ({wrong}); restore it, or begin another run.")


@cache
def _expected() -> tuple[frozenset[tuple[str, str, str]], dict[str, str]]:
    """The tables, indices and views, and for each table the condition that finds a row with something wrong."""
    with closing(sqlite3.connect(":memory:")) as sql:
        for statement in (*TABLES.split(";"), _digests.MADE):
            sql.execute(statement)
        objects = frozenset(sql.execute(_OBJECTS))
        wrong = {}
        for kind, table, _ in objects:
            if kind == "table":
                columns = sql.execute(f"PRAGMA table_info({table})").fetchall()
                null = _MAY_BE_NULL.get(table, set())
                wrong[table] = " OR ".join(
                    f"typeof(\"{name}\") NOT IN ('{kind.lower()}', '{'null' if name in null else kind.lower()}')"
                    for _, name, kind, *_ in columns
                )
    for table, column in {
        "units": "key",
        **dict.fromkeys(("groups", "scores", "curves", "plan_units"), "unit"),
    }.items():
        wrong[table] += _NO_KEY.format(column)
    wrong[_digests.TABLE] += _NO_KEY.format("unit")
    wrong["plan_units"] += f" OR length(item) > {_LONGEST_ITEM}"
    wrong["plan_units"] += "".join(
        f" OR {name} NOT BETWEEN 0 AND (SELECT count(*) FROM {name}s) - 1"  # noqa: S608
        for name in ("pair", "method")
    )
    return objects, wrong


def unit_row(outcome: Outcome) -> tuple[Any, ...]:
    """The row of `units` that an outcome makes."""
    finished = outcome.finished or datetime.now(UTC).isoformat(timespec="seconds")
    return tuple(finished if name == "finished" else getattr(outcome, name) for name in UNIT_COLUMNS)


def put_plan(sql: sqlite3.Connection, plan: Plan) -> None:
    """Note what is to be computed, in the place of what was before."""
    facts = {
        "plan": json.dumps(plan.model_dump(mode="json")),
        "plan_text": plan.text,
        "plan_key": plan_key(plan),
        "complete": "",
    }
    sql.executemany("INSERT OR REPLACE INTO meta(key, value) VALUES (?, ?)", facts.items())
    for table in ("pairs", "methods", "layers"):
        sql.execute(f"DELETE FROM {table}")  # noqa: S608
    for table, rows in plan_rows(plan).items():
        sql.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", rows)  # noqa: S608


def plan_rows(plan: Plan) -> dict[str, list[tuple[Any, ...]]]:
    """What a plan's pairs and methods are in their tables."""
    return {
        "pairs": [(index, pair.name, pair.model, pair.data) for index, pair in enumerate(plan.pairs)],
        "methods": [(index, row.label, row.name, row.group) for index, row in enumerate(plan.methods)],
    }
