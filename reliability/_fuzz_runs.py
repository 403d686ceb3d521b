"""Damaged runs of `fei bench`: their databases, byte by byte and cell by cell, the maps beside them, and exports."""

from __future__ import annotations

import io
import json
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from _fuzz_mutate import NUMBERS, json_text, mutate_bytes, mutate_json, mutate_text, odd_string, odd_value
from _fuzz_worker import MEBIBYTE, Case

from fei.bench.plan import parse_plan
from fei.bench.report.numbers import Numbers
from fei.bench.report.tables import tables
from fei.bench.store import Store
from fei.bench.store.exchange import diff, export, merge, outcomes_of, stored_outcomes
from fei.bench.units import KEPT, Outcome

PLAN = """
name = "two methods, a network"
seeds = [0, 1]
keep_maps = true
layout = "external"
[[pairs]]
model = "net.py:tiny"
data = "photos"
name = "Tiny, β"
[[methods]]
name = "saliency"
label = "Saliency"
[[methods]]
name = "fei-vm"
group = "ours"
options = { steps = 2 }
[metrics]
complexity = true
[black_image]
trials = 1
"""
_WHEN = "2026-01-02T03:04:05+00:00"
_ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"


class Stores:
    """Folders of runs."""

    name = "stores"
    max_bytes = 256 * MEBIBYTE
    _uses = ("numbers", "outcomes", "export", "look", "diff", "merge", "change")

    def valid(self) -> Sequence[Case]:
        """The whole run, for each use."""
        return [self._case({}, "run/run.sqlite", use) for use in self._uses]

    def make(self, rng: Random) -> Case:
        """The run with a damaged database, map or plan."""
        use, chance = rng.choice(self._uses), rng.random()
        database = run_files()["run.sqlite"]
        if chance < 0.1:
            name = rng.choice([name for name in run_files() if name.startswith("maps/")])
            return self._case(
                {name: _change_map(rng, run_files()[name])}, f"run/{name}", rng.choice(("outcomes", "merge"))
            )
        if chance < 0.35:
            return self._case({"run.sqlite": _damage(rng, database)}, "run/run.sqlite", use)
        return self._case({"run.sqlite": _change_cells(rng, database)}, "run/run.sqlite", use)

    def read(self, folder: Path, ask: tuple[str, ...]) -> None:
        """One use of a run: tables, results for another run, an export, a comparison, a merge, resuming it."""
        with Store.open(folder / "run", readonly=ask[0] != "change") as store:
            _USES[ask[0]](store, folder)

    @staticmethod
    def _case(changed: dict[str, bytes], victim: str, use: str) -> Case:
        files = {f"run/{name}": content for name, content in {**run_files(), **changed}.items()}
        if use in ("diff", "merge"):
            files |= {f"other/{name}": content for name, content in run_files().items()}
        return Case(files, victim, (use,))


def _numbers(store: Store, folder: Path) -> None:
    numbers = Numbers(store)
    for table in tables(numbers):
        table.csv(), table.markdown(), table.latex()
    numbers.curve(0, 0, "fei-paper/1", "insertion")
    _ = numbers.failures, numbers.counts


def _look(store: Store, folder: Path) -> None:
    from fei.cli._bench_drive import say_status, status_document
    from fei.cli._bench_unit import unit_document

    say_status({"run": "run", **status_document(store)})
    unit_document(store, "a" * 8)
    store.results(), store.failed(), store.done_groups()


def _outcomes(store: Store, folder: Path) -> None:
    list(stored_outcomes(store))
    list(outcomes_of(folder / "run", {"a" * 32, "b" * 32}))


def _merge(store: Store, folder: Path) -> None:
    with Store.open(folder / "other", readonly=True) as other:
        merge(store, other, folder / "merged").close()


def _diff(store: Store, folder: Path) -> None:
    with Store.open(folder / "other", readonly=True) as other:
        diff(store, other)


def _change(store: Store, folder: Path) -> None:
    """What `fei bench resume` does around the computing."""
    plan = store.plan
    store.done_groups(), store.failed()
    store.link([(0, 0, "1.png", 0, "map", "a" * 32)], plan, layers=[["0"]])
    store.commit([_outcome("a", 0, "1.png", 0)])
    store.set_done(["b" * 32])
    store.set_meta(complete="")
    store.counts()


_USES: dict[str, Callable[[Store, Path], None]] = {
    "numbers": _numbers,
    "outcomes": _outcomes,
    "export": lambda store, folder: print(export(store, folder / "run.csv"), end=""),
    "look": _look,
    "diff": _diff,
    "merge": _merge,
    "change": _change,
}


def _outcome(letter: str, method: int, item: str, seed: int, kind: str = "map", **more: Any) -> Outcome:
    facts: dict[str, Any] = {
        "key": letter * 32, "kind": kind, "model": "m" * 64, "data": "photos", "item": item, "attempts": 1,
        "method": ("saliency", "fei-vm")[method], "config": '{"steps":2}', "seed": seed, "status": "done", "target": 2,
        "label": "cat", "probability": 0.25, "correct": True, "seconds": 0.5, "forwards": 3, "backwards": 2,
        "peak_bytes": 2**30, "threads": 1, "finished": _WHEN,
        "scores": (("insertion", "fei-paper/1", "", 0.5), ("deletion", "fei-paper/1", "", 0.125 * (method + 1)),
                   ("mse", "fei-paper/1", "0", 0.25), ("gini", "", "", float("nan"))),
        "curves": (("fei-paper/1", "insertion", [0.1, 0.5, 0.9], [0.2, 0.4, 0.8]),),
        "groups": ("map", "external/fei-paper/1", "internal/fei-paper/1", "complexity", KEPT),
        "map": np.full((4, 4), 0.5, np.float32),
    }  # fmt: skip
    return Outcome(**facts | more)


@cache
def run_files() -> dict[str, bytes]:
    """A run of a few units, as files: done and failed, of both kinds."""
    units = [("a", 0, "1.png", 0), ("b", 1, "1.png", 0), ("c", 0, "2.png", 1), ("d", 1, "2.png", 1)]
    black = {
        "curves": (),
        "groups": ("black-image",),
        "map": None,
        "scores": (("fired", "", "", 1.0), ("phi", "", "", 0.5)),
    }
    fails = {
        "scores": (),
        "curves": (),
        "groups": (),
        "map": None,
        "status": "failed",
        "error": "it failed",
        "correct": None,
    }
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        with Store.create(place, parse_plan(PLAN)) as store:
            store.commit([_outcome(*unit) for unit in units[:3]])
            store.commit([_outcome(*units[3], **fails), _outcome("e", 1, "0", 0, "black-image", **black)])
            links = [(0, method, item, seed, "map", letter * 32) for letter, method, item, seed in units]
            store.link([*links, (0, 1, "0", 0, "black-image", "e" * 32)], layers=[["0"]])
            store.set_meta(created=_WHEN, versions='{"fei": "1", "torch": "2"}', problems="[]")
        with sqlite3.connect(place / "run.sqlite") as connection:
            connection.execute("VACUUM")
        connection.close()
        (place / "lock").unlink()
        return {str(file.relative_to(place)): file.read_bytes() for file in sorted(place.rglob("*")) if file.is_file()}


@cache
def _facts() -> dict[str, str]:
    """What the run notes about itself."""
    sql = sqlite3.connect(":memory:")
    try:
        sql.deserialize(run_files()["run.sqlite"])
        return dict(sql.execute("SELECT key, value FROM meta"))
    finally:
        sql.close()


def _damage(rng: Random, database: bytes) -> bytes:
    """Damage bytes, often those of the header or of a page's head."""
    if rng.random() < 0.4:
        return mutate_bytes(rng, database)
    content = bytearray(database)
    for _ in range(rng.randint(1, 4)):
        page = rng.choice((0, 0, rng.randrange(max(1, len(content) // 4096)) * 4096))
        place = page + rng.randrange(100 if page == 0 else 12)
        content[place] = rng.choice((0, 1, 5, 0x7F, 0xFF, rng.randrange(256)))
    return bytes(content)


def _change_cells(rng: Random, database: bytes) -> bytes:
    """Change what is in the tables, or the tables themselves."""
    sql = sqlite3.connect(":memory:", isolation_level=None)
    try:
        sql.deserialize(database)
        for _ in range(rng.randint(1, 3)):
            _change_one(rng, sql)
        return sql.serialize()
    finally:
        sql.close()


def _change_one(rng: Random, sql: sqlite3.Connection) -> None:
    names = [name for (name,) in sql.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    if not names:
        return
    table = rng.choice(names)
    columns = [row[1] for row in sql.execute(f'PRAGMA table_info("{table}")')]
    column, action = rng.choice(columns), rng.randrange(12)
    statements: list[tuple[str, tuple[Any, ...]]] = []
    if action <= 5:
        some = rng.choice(
            ("", f' WHERE length("{column}") % 2', f' WHERE "{column}" = (SELECT max("{column}") FROM "{table}")')
        )
        statements.append((f'UPDATE OR REPLACE "{table}" SET "{column}" = ?{some}', (_cell(rng),)))
    elif action == 6:
        key = rng.choice(("plan_text", "plan_text", "plan", "versions", "schema", "problems", "complete", "plan_key"))
        changed = mutate_text(rng, _facts()[key]).decode("utf-8", "replace")
        statements.append(("UPDATE meta SET value = ? WHERE key = ?", (changed, key)))
    elif action == 7:
        name = rng.choice(("fractions", "values"))
        values = json_text(rng, mutate_json(rng, [0.1, 0.5, 0.9]))
        statements.append((f'UPDATE curves SET "{name}" = ?', (values,)))
    elif action == 8:
        key = rng.choice(("../../../up", "../up", "/dev/shm/up", "a/b", "\0", "a" * 5000))
        statements += [(f"UPDATE OR REPLACE {t} SET {c} = ? WHERE {c} = ?", (key, "a" * 32)) for t, c in _KEYS]
    elif action == 9:
        statements.append(("PRAGMA writable_schema = ON", ()))
        statements.append((rng.choice(_SCHEMAS).format(table=table, column=column), ()))
    elif action == 10:
        statements.append((f'DELETE FROM "{table}"', ()))
    else:
        marks = ", ".join("?" * len(columns))
        statements.append((f'INSERT OR REPLACE INTO "{table}" VALUES ({marks})', tuple(_cell(rng) for _ in columns)))
    for statement, arguments in statements:
        try:
            sql.execute(statement, arguments)
        except sqlite3.Error:
            continue  # a table that an earlier change took away


_KEYS = (("units", "key"), ("plan_units", "unit"), ("scores", "unit"), ("groups", "unit"), ("curves", "unit"))
_SCHEMAS = (
    'DROP TABLE "{table}"',
    "DROP VIEW results",
    'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO other',
    'ALTER TABLE "{table}" DROP COLUMN "{column}"',
    'ALTER TABLE "{table}" RENAME TO other',
    "CREATE TRIGGER t AFTER UPDATE ON meta BEGIN DELETE FROM units; END",
    f"CREATE TRIGGER t AFTER INSERT ON plan_units BEGIN INSERT INTO meta SELECT x, x FROM ({_ENDLESS}); END",
    "PRAGMA user_version = 9",
    "UPDATE sqlite_master SET sql = 'CREATE VIEW results AS SELECT * FROM results' WHERE name = 'results'",
    "UPDATE sqlite_master SET sql = 'CREATE VIEW results AS " + _ENDLESS + "' WHERE name = 'results'",
)


def _cell(rng: Random) -> Any:
    value = rng.choice(
        (
            lambda: None,
            lambda: odd_string(rng),
            lambda: rng.choice([number for number in NUMBERS if abs(number) < 2**63]),
            lambda: rng.choice((0.5, -1.0, 1e308, float("inf"))),
            lambda: rng.randbytes(rng.choice((0, 3, 40))),
            lambda: bytes(10**6) if rng.random() < 0.2 else b"\xff",
            lambda: json.dumps(odd_value(rng)),
        )
    )()
    return value


def _change_map(rng: Random, content: bytes) -> bytes:
    """Change a map's header, which is text, or its bytes."""
    if rng.random() < 0.5:
        return mutate_bytes(rng, content, 3)
    shape = rng.choice(("(4, 4)", "(10**9,)", "(1000000000, 1000)", "(-1,)", "()", "(16,)", "('a',)", "(4, 4, 1, 1)"))
    kind = rng.choice(("<f4", "<f8", "|O", "<U9", "<i8", "V4", "[('a', '<f4')]"))
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    stream = io.BytesIO()
    np.save(stream, np.zeros(rng.choice((0, 16)), np.float32))
    data = stream.getvalue()[128:]
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data
