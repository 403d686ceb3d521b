"""One driver at a time: a lock that goes with the process that holds it, however it ends."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import BinaryIO

from fei.common.files import open_regular
from fei.errors import InputError

NAME = "lock"
_BYTE = 1 << 20  # Windows locks bytes against reading too, so not those that say who holds the lock
_TAKEN = OSError if sys.platform == "win32" else BlockingIOError


class Lock:
    """The exclusive right to write to a run's folder.

    Args:
        folder: The folder; it must be there.

    Raises:
        InputError: If another process has it, its file is a link or not one's own, or the folder cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._file: BinaryIO = open_regular(folder / NAME, write=True)
        except OSError as error:
            raise InputError(
                f"The run folder '{folder}' cannot be written to ({error.strerror}); choose another folder or change "
                "its permissions."
            ) from error
        if not _try_lock(self._file):
            self._file.seek(0)
            holder = self._file.read(200).decode("utf-8", "replace").strip() or "another process"
            self._file.close()
            raise InputError(
                f"The run in '{folder}' is being worked on by {holder}; wait for it, or end it before going on."
            )
        self._file.seek(0)
        self._file.truncate()
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
        self._file.flush()

    @property
    def since(self) -> int:
        """When it was taken, by the clock of the disk, in nanoseconds."""
        return os.fstat(self._file.fileno()).st_mtime_ns

    def release(self) -> None:
        """Let others have it."""
        if not self._file.closed:
            self._file.truncate(0)
            self._file.close()


def _try_lock(file: BinaryIO) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(_BYTE)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except _TAKEN:
        return False
    return True
