"""The one private folder in which the server keeps whatever it keeps, and which goes when the server goes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fei.common.lock import Lock
from fei.errors import InputError

_PREFIX = "fei-serve-"


@contextmanager
def private_folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder that nobody else may read, removed at the end.

    What a server that was killed left behind is removed too: its lock went with it.

    Args:
        parent: Where to make it; by default where the system keeps temporary files.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_left_behind(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)).resolve()
    lock = Lock(folder)
    try:
        yield folder
    finally:
        lock.release()
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left_behind(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(InputError, OSError):  # another server's, or another user's
            if not folder.is_symlink() and (folder / "lock").is_file():
                Lock(folder).release()
                shutil.rmtree(folder, ignore_errors=True)


def remove_older(folder: Path, seconds: float) -> None:
    """Remove the files below a folder that were written that long ago, and then the folders that are empty."""
    oldest = time.time() - seconds
    for path in sorted(folder.rglob("*"), reverse=True):  # what is inside comes before what it is in
        with suppress(OSError):  # gone, or not empty
            if path.lstat().st_mtime < oldest:
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def size_of(folder: Path) -> int:
    """Bytes of the files below a folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total
