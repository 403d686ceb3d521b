"""A digest of everything that a run keeps, made as it is written, so that damage is found: by accident, not by intent.

A unit's digest is the SHA-256 of its row with its scores, curves and groups, a map's that of its file, and the plan's
that of its text and of the units it is linked to. Runs of earlier versions have none until they are written to.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

TABLE = "digests"
MADE = f"CREATE TABLE IF NOT EXISTS {TABLE}(unit TEXT PRIMARY KEY, content TEXT, map TEXT) WITHOUT ROWID"
"""How the table is made; that of a run is made no other way."""
_PUT = (
    "INSERT INTO digests(unit, content, map) VALUES (?, ?, ?) "
    "ON CONFLICT(unit) DO UPDATE SET content = excluded.content, map = coalesce(excluded.map, map)"
)
_PARTS = {"scores": "unit, metric, protocol, layer", "curves": "unit, protocol, name", "groups": "unit, name"}
_BATCH = 500


def note_units(sql: sqlite3.Connection, keys: Iterable[str], maps: Mapping[str, str] | None = None) -> None:
    """Note the digests of units as they are in the database by now, and of maps that were written."""
    sql.execute(MADE)
    known = maps or {}
    sql.executemany(_PUT, ((key, digest, known.get(key)) for key, digest in _digests(sql, keys)))


def note_plan(sql: sqlite3.Connection) -> None:
    """Note the digest of the plan and its links, and forget those of units that are gone."""
    sql.execute(MADE)
    sql.execute("DELETE FROM digests WHERE unit NOT IN (SELECT key FROM units)")
    sql.execute("INSERT OR REPLACE INTO meta(key, value) VALUES ('plan_digest', ?)", (_plan_digest(sql),))


def plan_is_sound(sql: sqlite3.Connection) -> bool | None:
    """Whether the plan and its links are what was written; None where that is not known."""
    found = sql.execute("SELECT value FROM meta WHERE key = 'plan_digest'").fetchall()
    return found[0][0] == _plan_digest(sql) if found else None


def damaged_units(sql: sqlite3.Connection) -> Iterator[str]:
    """The units that are not what was written."""
    known = _known(sql, "content")
    there = [key for (key,) in sql.execute("SELECT key FROM units ORDER BY key")]
    yield from sorted(known.keys() - set(there))
    yield from (key for key, digest in _digests(sql, [key for key in there if key in known]) if known[key] != digest)


def map_digests(sql: sqlite3.Connection) -> dict[str, str]:
    """The digests of the maps that were written, by unit."""
    return _known(sql, "map")


def forget(sql: sqlite3.Connection, units: Iterable[str], maps: Iterable[str]) -> None:
    """Remove units with all that belongs to them, and the digests of maps."""
    sql.execute(MADE)
    sql.executemany("UPDATE digests SET map = NULL WHERE unit = ?", ((key,) for key in maps))
    for key in units:
        for table, column in {"units": "key", "digests": "unit", **dict.fromkeys(_PARTS, "unit")}.items():
            sql.execute(f"DELETE FROM {table} WHERE {column} = ?", (key,))  # noqa: S608


def covered(sql: sqlite3.Connection) -> int:
    """How many units have a digest."""
    return len(_known(sql, "content"))


def sha256(content: bytes) -> str:
    """The digest of a file."""
    return hashlib.sha256(content).hexdigest()


def _known(sql: sqlite3.Connection, column: str) -> dict[str, str]:
    if not sql.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'digests'").fetchall():
        return {}
    return dict(sql.execute(f"SELECT unit, {column} FROM digests WHERE {column} IS NOT NULL"))  # noqa: S608


def _digests(sql: sqlite3.Connection, keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The digest of each unit that is there."""
    every = list(dict.fromkeys(keys))
    for first in range(0, len(every), _BATCH):
        batch = every[first : first + _BATCH]
        marks = f"({','.join('?' * len(batch))})"
        rows = sql.execute(f"SELECT * FROM units WHERE key IN {marks} ORDER BY key", batch).fetchall()  # noqa: S608
        parts: dict[str, dict[str, list[Any]]] = {}
        for table, order in _PARTS.items():
            query = f"SELECT * FROM {table} WHERE unit IN {marks} ORDER BY {order}"  # noqa: S608
            found = groupby(sql.execute(query, batch).fetchall(), lambda row: row[0])
            parts[table] = {key: list(some) for key, some in found}
        for row in rows:
            content = [row, *(part.get(row[0], []) for part in parts.values())]
            yield row[0], sha256(json.dumps(content).encode())


def _plan_digest(sql: sqlite3.Connection) -> str:
    content = hashlib.sha256()
    for query in (
        "SELECT value FROM meta WHERE key IN ('plan_text', 'plan_key') ORDER BY key",
        "SELECT * FROM pairs ORDER BY pair",
        "SELECT * FROM methods ORDER BY method",
        "SELECT * FROM layers ORDER BY pair, layer",
        "SELECT * FROM plan_units ORDER BY pair, method, item, seed, kind",
    ):
        for row in sql.execute(query):
            content.update(json.dumps(row).encode() + b"\n")
    return content.hexdigest()
