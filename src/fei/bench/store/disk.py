"""Files of a run: connections to its database, kept maps, and what goes wrong, in sentences."""

from __future__ import annotations

import contextlib
import errno
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fei.errors import DataError, InputError

DATABASE = "run.sqlite"
_BUSY_SECONDS = 30.0
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT} if hasattr(errno, "EDQUOT") else {errno.ENOSPC}


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Within the block, what the disk or the database refuses becomes one sentence."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # what the database says of damage need not be text
        raise _in_words(folder, str(error)) from error
    except OSError as error:
        told = "disk is full" if error.errno in _FULL else "readonly" if error.errno in _REFUSED else "disk I/O error"
        raise _in_words(folder, told, error.strerror or str(error)) from error


# What is wrong, by the words that SQLite or `explained` has for it.
_TROUBLES = (
    ("disk is full", DataError, "The disk of the run in '{run}' is full; free some space, then {go_on}."),
    ("I/O error", DataError, "The disk of the run in '{run}' fails ({details}); see that it is there, then {go_on}."),
    ("locked", DataError, "The database in '{run}' is held by another program; close that and go on."),
    (
        "readonly|unable to open",
        InputError,
        "The run folder '{run}' cannot be written to; choose another folder or change its permissions.",
    ),
    ("", DataError, "The database in '{run}' cannot be used ({details}); restore it, or begin another run."),
)


def _in_words(folder: Path, reason: str, details: str = "") -> DataError | InputError:
    go_on = f"go on with: fei bench resume {folder} (what was committed before is there)"
    kind, text = next((kind, text) for words, kind, text in _TROUBLES if re.search(words, reason))
    return kind(text.format(run=folder, details=details or reason, go_on=go_on))


def dictionaries(sql: sqlite3.Connection, query: str, *arguments: Any) -> list[dict[str, Any]]:
    """The rows that a query finds, by the names of its columns."""
    found = sql.execute(query, arguments)
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found]


def connect(folder: Path) -> sqlite3.Connection:
    """A connection to write with, made durable; transactions are begun and ended by hand."""
    connection = sqlite3.connect(folder / DATABASE, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def connect_readonly(folder: Path) -> sqlite3.Connection:
    """A connection to read with, also where nothing can be written, as on an archive's disk."""
    address = (folder / DATABASE).resolve().as_uri()
    connection = sqlite3.connect(f"{address}?mode=ro", timeout=_BUSY_SECONDS, isolation_level=None, uri=True)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError:
        connection.close()
        if (folder / f"{DATABASE}-wal").exists():  # the newest commits are in there and could not be read
            raise
        connection = sqlite3.connect(f"{address}?immutable=1", isolation_level=None, uri=True)
    return connection


def read_map(folder: Path, key: str) -> NDArray[np.float32] | None:
    """The map of a unit (H, W) in a folder of maps; None where there is none that can be read."""
    try:  # mapped, so that a header cannot ask for more than the file has
        values = np.array(np.load(folder / f"{key}.npy", mmap_mode="r", allow_pickle=False))
    except Exception:  # on a damaged file numpy raises nearly anything
        return None
    return values if values.dtype == np.float32 and values.ndim in (2, 3) and values.size else None
