"""Files of a run: connections to its database, files that appear whole, and what goes wrong, in sentences."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

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


def _in_words(folder: Path, reason: str, details: str = "") -> DataError | InputError:
    if "disk is full" in reason:
        return DataError(
            f"The disk of the run in '{folder}' is full; free some space, then go on with: fei bench resume {folder}. "
            "What was committed before is there."
        )
    if "readonly" in reason or "unable to open" in reason:
        return InputError(
            f"The run folder '{folder}' cannot be written to; choose another folder or change its permissions."
        )
    if "I/O error" in reason:
        return DataError(
            f"The disk of the run in '{folder}' fails ({details or reason}); see that it is there, then go on with: "
            f"fei bench resume {folder}. What was committed before is there."
        )
    if "locked" in reason:
        return DataError(f"The database in '{folder}' is held by another program; close that and go on.")
    return DataError(f"The database in '{folder}' cannot be used ({reason}); restore it, or begin another run.")


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


def schema_version(folder: Path) -> str | None:
    """The schema of a run; None where none was laid out yet."""
    with explained(folder), contextlib.closing(connect_readonly(folder)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'").fetchall():
            return None
        found = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
        return str(found[0]) if found else "?"


def read_map(folder: Path, key: str) -> NDArray[np.float32] | None:
    """The map of a unit (H, W) in a folder of maps; None where there is none that can be read."""
    try:  # mapped, so that a header cannot ask for more than the file has
        values = np.array(np.load(folder / f"{key}.npy", mmap_mode="r", allow_pickle=False))
    except Exception:  # on a damaged file numpy raises nearly anything
        return None
    return values if values.dtype == np.float32 and values.ndim in (2, 3) and values.size else None
