"""A run on disk: one SQLite file, the plan beside it, and the maps where they are kept.

What is committed is whole: a unit is there with all the scores of its groups, or not at all. The numbers can be read in
one line, also while the run goes on: ``pandas.read_sql("SELECT * FROM results", sqlite3.connect("RUN/run.sqlite"))``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from fei.bench.plan.keys import plan_key
from fei.bench.store import _digests, _schema
from fei.bench.store._damage import Damage, find_damage
from fei.bench.store.disk import (
    DATABASE,
    MAPS,
    check_files,
    connect,
    connect_readonly,
    dictionaries,
    explained,
    read_map,
)
from fei.bench.store.outcomes import stored_json
from fei.bench.units import DONE, FAILED, KEPT, Outcome
from fei.common.files import open_regular, replacing, settle
from fei.common.lock import Lock
from fei.errors import DataError, InputError

if TYPE_CHECKING:
    from fei.bench.plan import Plan

PLAN = "plan.toml"
_LARGEST_PLAN = 4_000_000  # bytes that are read of it; larger plans are refused
_PARTS = ".fei-" + "[0-9a-f]" * 16  # files that are being written, see `fei.common.files.replacing`

Link = tuple[int, int, str, int, str, str]
"""A row of `plan_units`: pair, method, item, seed, kind and the unit's key."""


class Store(contextlib.AbstractContextManager["Store"]):
    """The one file of a run; made by `create` or `open`.

    Attributes:
        folder: Where the run is.

    Examples:
        >>> from pathlib import Path
        >>> _ = fei.bench.run(fei.bench.load_plan("plan.toml"), "run")
        >>> with fei.bench.Store.open(Path("run"), readonly=True) as store:
        ...     sorted({row["metric"] for row in store.results()})
        ['deletion', 'insertion', 'ties']
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: Lock | None) -> None:
        self.folder, self._connection, self._lock = folder, connection, lock
        self._plan: Plan | None = None

    @classmethod
    def exists(cls, folder: Path) -> bool:
        """Whether there is a run in a folder."""
        return (Path(folder) / DATABASE).is_file()

    @classmethod
    def begun(cls, folder: Path) -> bool:
        """Whether that run is more than an empty file, which a crash in the first moment leaves."""
        if not cls.exists(folder):
            return False
        with explained(folder), contextlib.closing(connect_readonly(Path(folder))) as connection:
            return _schema.version(connection) is not None

    @classmethod
    def create(cls, folder: Path, plan: Plan) -> Self:
        """Begin a run.

        Args:
            folder: Where; made if it is not there.
            plan: What is to be computed.

        Returns:
            The store, with the right to write to it.

        Raises:
            InputError: If the folder cannot be written to, or holds a run already.
            DataError: If the disk is full.
        """
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"The run folder '{folder}' cannot be made ({error.strerror}); choose another one."
            ) from error
        with contextlib.ExitStack() as undo, explained(folder):
            lock = _locked(folder, undo)
            if cls.begun(folder):
                raise InputError(f"'{folder}' holds a run already; choose another folder, or go on with that run.")
            file = folder / PLAN
            # a plan that someone put there is theirs, unless it is the one that would be written
            if os.path.lexists(file) and _text(file) != plan.text:
                raise InputError(f"'{file}' is there already and is not this plan; choose another folder for the run.")
            connection = connect(folder)
            undo.callback(connection.close)
            store = cls(folder, connection, lock)
            with store._transaction() as sql:
                _schema.lay_out(sql, plan)
            store._write_plan(plan.text)
            undo.pop_all()
            return store

    @classmethod
    def open(cls, folder: Path, readonly: bool = False) -> Self:
        """Open a run that is there.

        Args:
            folder: Where it is.
            readonly: Only to read; possible also while another process works on it.

        Returns:
            The store.

        Raises:
            InputError: If there is no run, or, to write, it cannot be written to or another process works on it.
            DataError: If it cannot be read, or was written by a newer version.
        """
        folder = Path(folder)
        if not cls.exists(folder):
            raise InputError(f"There is no run in '{folder}'; give the folder of one, which holds {DATABASE}.")
        with contextlib.ExitStack() as undo, explained(folder):
            lock = None if readonly else _locked(folder, undo)
            connection = connect_readonly(folder)
            undo.callback(connection.close)
            _schema.check(folder, connection)  # before a connection that writes touches the file
            if lock is not None:
                connection.close()
                connection = connect(folder)
            undo.pop_all()
            return cls(folder, connection, lock)

    @property
    def plan(self) -> Plan:
        """What the run computes; parsed again only if it has changed."""
        from fei.bench.plan import parse_plan

        text = self.meta("plan_text") or ""
        if self._plan is None or self._plan.text != text:
            try:
                plan = parse_plan(text, of_a_run=True)
            except InputError as error:
                reason = str(error).rstrip(".")
                raise DataError(
                    f"The plan in '{self.folder}' cannot be used any more ({reason}); restore it."
                ) from error
            if any(self.rows(f"SELECT * FROM {table}") != rows for table, rows in _schema.plan_rows(plan).items()):  # noqa: S608
                raise DataError(f"The plan of the run in '{self.folder}' is not that of its tables; restore it.")
            beside = self.folder / PLAN
            if os.path.lexists(beside) and not self._shows(plan):
                raise DataError(
                    f"The plan in '{beside}' is not the one that the run follows; remove that file to go on with the "
                    f"run's own, or give it: fei bench resume {self.folder} --plan {beside}."
                )
            self._plan = plan
        return self._plan

    @property
    def plan_key(self) -> str:
        """The key of the plan, see `fei.bench.plan.keys.plan_key`."""
        return self.meta("plan_key") or ""

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the software that the run was begun with."""
        found = stored_json(self.meta("versions") or "{}")
        if not isinstance(found, dict):
            raise DataError(f"The database in '{self.folder}' names no versions; restore it, or begin another run.")
        return {name: str(version) for name, version in found.items()}

    def meta(self, key: str) -> str | None:
        """A fact about the run."""
        found = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return found[0][0] if found else None

    def set_meta(self, **facts: str) -> None:
        """Note facts about the run."""
        with self._transaction() as sql:
            sql.executemany("INSERT OR REPLACE INTO meta(key, value) VALUES (?, ?)", facts.items())

    def rows(self, sql: str, arguments: Sequence[Any] = ()) -> list[Any]:
        """What a query finds, as tuples."""
        return list(self.each(sql, arguments))

    def each(self, sql: str, arguments: Sequence[Any] = ()) -> Iterator[Any]:
        """What a query finds, tuple by tuple."""
        with explained(self.folder):
            yield from self._connection.execute(sql, arguments)

    def results(self, kind: str = "map") -> list[dict[str, Any]]:
        """The numbers of one kind of unit: a dictionary for each row of the view `results`."""
        with explained(self.folder):
            return dictionaries(self._connection, "SELECT * FROM results WHERE kind = ?", kind)

    def counts(self) -> dict[str, int]:
        """How many of the plan's units are "done", "failed" and "pending"; one that two rows share counts once."""
        found = self.rows(
            "SELECT coalesce(u.status, 'pending'), count(*) FROM (SELECT DISTINCT unit FROM plan_units) p "
            "LEFT JOIN units u ON u.key = p.unit GROUP BY 1"
        )
        return {DONE: 0, FAILED: 0, "pending": 0} | dict(found)

    def done_groups(self) -> dict[str, frozenset[str]]:
        """The score groups that are complete, of each unit that has any."""
        kept = {file.stem for file in (self.folder / MAPS).glob("*.npy")}
        shared: dict[frozenset[str], frozenset[str]] = {}  # few sets, for many units
        found: dict[str, frozenset[str]] = {}
        sql = "SELECT unit, group_concat(name, char(10)) FROM groups GROUP BY unit"
        for unit, names in self.each(sql):
            groups = frozenset(names.split("\n"))
            groups = groups if unit in kept else groups - {KEPT}
            found[unit] = shared.setdefault(groups, groups)
        return found

    def failed(self) -> dict[str, str]:
        """The units that failed, and why."""
        return dict(self.rows("SELECT key, coalesce(error, '') FROM units WHERE status = ?", (FAILED,)))

    def map(self, key: str) -> NDArray[np.float32] | None:
        """The map of a unit (H, W), if it was kept."""
        return read_map(self.folder / MAPS, key)

    def commit(self, outcomes: Iterable[Outcome]) -> None:
        """Keep what came of some units, all of them or none.

        Numbers that are there already stay as they are.

        Args:
            outcomes: What came of them.

        Raises:
            DataError: If the disk is full.
        """
        outcomes = list(outcomes)
        with explained(self.folder):
            maps = {one.key: self._keep_map(one.key, one.map) for one in outcomes if one.map is not None}
        with self._transaction() as sql:
            sql.executemany(_schema.PUT_UNIT, map(_schema.unit_row, outcomes))
            sql.executemany(_schema.PUT_SCORE, ((o.key, *score) for o in outcomes for score in o.scores))
            sql.executemany(
                _schema.PUT_CURVE,
                (
                    (o.key, protocol, name, json.dumps(fractions), json.dumps(values))
                    for o in outcomes
                    for protocol, name, fractions, values in o.curves
                ),
            )
            sql.executemany(_schema.PUT_GROUP, ((o.key, group) for o in outcomes for group in o.groups))
            _digests.note_units(sql, (o.key for o in outcomes), maps)

    def link(self, rows: Iterable[Link], plan: Plan | None = None, layers: Sequence[Sequence[str]] = ()) -> None:
        """Say which units the plan consists of; units of an earlier plan are then no longer linked, but not lost.

        Failed units of which nothing is left, neither a link nor a number, are forgotten.

        Args:
            rows: The rows of `plan_units`.
            plan: A plan to put in the place of the run's.
            layers: For each pair the layers that are looked at, from shallow to deep.
        """
        with self._transaction() as sql:
            if plan is not None:
                _schema.put_plan(sql, plan)
            sql.execute("DELETE FROM plan_units")
            sql.executemany(_schema.PUT_LINK, rows)
            if layers:
                sql.execute("DELETE FROM layers")
                numbered = ((i, name, depth) for i, names in enumerate(layers) for depth, name in enumerate(names))
                sql.executemany("INSERT OR IGNORE INTO layers(pair, layer, depth) VALUES (?, ?, ?)", numbered)
            sql.execute(
                "DELETE FROM units WHERE status = 'failed' AND key NOT IN (SELECT unit FROM plan_units) "
                "AND key NOT IN (SELECT unit FROM groups)"
            )
            _digests.note_plan(sql)
        if plan is not None:
            with explained(self.folder):
                self._write_plan(plan.text)

    def show_plan(self, plan: Plan) -> None:
        """Write a plan that is the run's beside it, where there is none or another one."""
        if self.plan_key == plan_key(plan) and not self._shows(plan):
            with explained(self.folder):
                self._write_plan(plan.text)

    def set_done(self, keys: Iterable[str]) -> None:
        """Mark units as done that failed over something the plan no longer asks for."""
        keys = list(keys)
        with self._transaction() as sql:
            sql.executemany("UPDATE units SET status = 'done', error = NULL WHERE key = ?", ((key,) for key in keys))
            _digests.note_units(sql, keys)

    def damage(self) -> Damage:
        """What is not as it was written, or is missing."""
        with explained(self.folder):
            return find_damage(self._connection, self.folder / MAPS)

    def repair(self) -> Damage:
        """Forget what is damaged, so that it is computed again; the plan's list of units is made anew then, too."""
        found = self.damage()
        if not found.none:
            with self._transaction() as sql:
                _digests.forget(sql, found.units, found.maps)
                sql.execute("INSERT OR REPLACE INTO meta(key, value) VALUES ('complete', '')")
            with explained(self.folder):
                for key in (*found.units, *found.maps):
                    (self.folder / MAPS / f"{key}.npy").unlink(missing_ok=True)
        return found

    def close(self) -> None:
        """Put everything into the one file, as far as no one else reads it, and let others write."""
        if self._lock is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("PRAGMA busy_timeout = 0")  # whoever reads may go on
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._connection.execute("PRAGMA journal_mode = DELETE")
            self._lock.release()
        self._connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with explained(self.folder):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk may have ended it already
                    self._connection.execute("ROLLBACK")
                raise

    def _shows(self, plan: Plan) -> bool:
        """Whether the plan beside the run is this one; comments and the order of keys may differ."""
        from fei.bench.plan import parse_plan

        text = _text(self.folder / PLAN)
        try:
            if text is None or text == plan.text:
                return text is not None
            return plan_key(parse_plan(text, of_a_run=True)) == plan_key(plan)
        except InputError:
            return False

    def _keep_map(self, key: str, values: NDArray[np.float32]) -> str:
        """Write a map; its digest."""
        folder = self.folder / MAPS
        if not folder.is_dir():
            folder.mkdir()
            settle(self.folder)
        content = io.BytesIO()
        np.save(content, np.asarray(values, dtype=np.float32), allow_pickle=False)
        with replacing(folder / f"{key}.npy") as file:
            file.write(content.getvalue())
        return _digests.sha256(content.getvalue())

    def _write_plan(self, text: str) -> None:
        with replacing(self.folder / PLAN) as file:
            file.write(text.encode())


def _text(file: Path) -> str | None:
    """The plan beside a run; None where there is none that can be read."""
    try:
        with open_regular(file) as stream:
            return stream.read(_LARGEST_PLAN).decode()
    except (OSError, InputError, UnicodeDecodeError):
        return None


def _locked(folder: Path, undo: contextlib.ExitStack) -> Lock:
    """The right to write to a run. What a driver that was killed while it wrote left behind is removed."""
    lock = Lock(folder)
    undo.callback(lock.release)
    check_files(folder, writing=True)
    for part in (*folder.glob(_PARTS), *(folder / MAPS).glob(_PARTS)):
        with contextlib.suppress(OSError):  # another program's, or gone
            if part.stat().st_mtime_ns < lock.since:
                part.unlink()
    return lock
