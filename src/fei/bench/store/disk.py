"""Files of a run: connections to its database, kept maps, and what goes wrong, in sentences."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fei.common.files import is_mine, open_regular, refuse_link
from fei.errors import DataError, InputError

DATABASE, MAPS = "run.sqlite", "maps"
MAX_MAP_BYTES = 1 << 26
"""Larger maps, of more than 4096 × 4096 pixels, are not read."""

_JOURNAL = "-journal"
_BESIDE = (_JOURNAL, "-wal", "-shm")
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")  # how a journal ends that names another
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


def check_files(folder: Path, *, writing: bool) -> None:
    """See that the files of a run are its own, before the database looks at any of them.

    SQLite completes what a journal beside the file says was begun. A journal can name another one, and then SQLite
    deletes a file of that name; or tell of a database far larger than there are pages for. No run makes such journals.

    Raises:
        InputError: If one is a link or no regular file or, to write, somebody else's.
        DataError: If there is a journal that no run leaves.
    """
    for name in (MAPS, DATABASE, *(DATABASE + end for end in _BESIDE)):
        refuse_link(folder / name)
        if name == MAPS or not os.path.lexists(folder / name):
            continue
        status = (folder / name).lstat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"'{folder / name}' is no regular file; restore the run.")
        if writing and not is_mine(status):
            raise InputError(f"'{folder / name}' belongs to somebody else; work on a copy of the run.")
    journal = folder / (DATABASE + _JOURNAL)
    if journal.exists():
        with open_regular(journal) as stream:
            head, size = stream.read(28), os.fstat(stream.fileno()).st_size
            stream.seek(max(0, size - len(_NAMES_ANOTHER)))
            last = stream.read()
        pages, page = (int.from_bytes(head[place : place + 4], "big") for place in (16, 24))
        if last == _NAMES_ANOTHER or pages * max(page, 512) > size + (folder / DATABASE).stat().st_size:
            raise DataError(f"'{journal}' is a journal that no run leaves behind; do not use this run.")


def connect(folder: Path) -> sqlite3.Connection:
    """A connection to write with, made durable; transactions are begun and ended by hand."""
    check_files(folder, writing=True)
    connection = sqlite3.connect(folder / DATABASE, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        _bound(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def connect_readonly(folder: Path) -> sqlite3.Connection:
    """A connection to read with, also where nothing can be written, as on an archive's disk.

    What was begun and not completed is completed in a copy; of somebody else's run a copy is read, too, so that what
    has been checked stays as it is.
    """
    check_files(folder, writing=False)
    if (folder / (DATABASE + _JOURNAL)).exists():
        with tempfile.TemporaryDirectory(prefix="fei-run-") as place:
            for end in ("", _JOURNAL):
                shutil.copyfile(folder / (DATABASE + end), Path(place) / (DATABASE + end))
            return _copied(connect(Path(place)))
    connection = _bound(_connect_readonly(folder))
    return connection if is_mine((folder / DATABASE).stat()) else _copied(connection)


def _copied(connection: sqlite3.Connection) -> sqlite3.Connection:
    """A private copy of a database, in a file without a name; the original is closed."""
    copy = sqlite3.connect("", isolation_level=None)
    with contextlib.closing(connection):
        connection.backup(copy)
    return _bound(copy)


def _bound(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Give a database no trust, and its cells no more bytes than a kept map."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_MAP_BYTES)
    return connection


def _connect_readonly(folder: Path) -> sqlite3.Connection:
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
    content = map_bytes(folder, key)
    try:
        return None if content is None else _array(content)
    except Exception:  # on a damaged file numpy raises nearly anything
        return None


def map_bytes(folder: Path, key: str) -> bytes | None:
    """The file of a map; None where there is none that can be read, or it is larger than `MAX_MAP_BYTES`."""
    try:
        with open_regular(folder / f"{key}.npy") as stream:
            size = os.fstat(stream.fileno()).st_size
            return stream.read(MAX_MAP_BYTES) if size <= MAX_MAP_BYTES else None
    except (OSError, InputError):
        return None


def _array(content: bytes) -> NDArray[np.float32] | None:
    """A map from a .npy file, which has as many numbers as its header says: nothing is made for others."""
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        return None
    shape, transposed, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype != np.float32 or len(shape) not in (2, 3) or 0 in shape:
        return None
    values = np.frombuffer(content, np.float32, offset=stream.tell())
    return values.reshape(shape[::-1]).T.copy() if transposed else values.reshape(shape).copy()
