"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from fei.errors import DataError, InputError


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """A stream that takes the place of `file` when the block ends, and leaves everything as it was if it fails."""
    part = _beside(file)
    try:
        with part.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, file)
        settle(file.parent)
    finally:
        part.unlink(missing_ok=True)


def write_files(
    folder: Path, files: Mapping[str, bytes | str], *, what: str = "results", gone: Iterable[str] = ()
) -> None:
    """Write files into a folder; each appears whole, in this order, once all are on the disk.

    Args:
        folder: Where to; it must be there.
        files: What is in each, by name. Text is written as UTF-8; of a file's name that is no text, bytes are escaped.
        what: What they are called in an error, such as "report".
        gone: Names of files that are removed once the others are there.

    Raises:
        DataError: If the disk refuses.
    """
    try:
        with ExitStack() as stack:
            # the last one entered appears first
            for name, content in reversed(list(files.items())):
                stream = stack.enter_context(replacing(folder / name))
                stream.write(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)
        for name in gone:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"The {what} cannot be written to '{folder}' ({error.strerror or error}); free some space or choose "
            "another place."
        ) from error


def write_file(file: Path, content: bytes | str, *, what: str) -> Path:
    """Write one file, see `write_files`.

    Raises:
        InputError: If there is no such folder.
        DataError: If the disk refuses.
    """
    if not file.parent.is_dir():
        raise InputError(f"The folder '{file.parent}' for the {what} does not exist; make it first.")
    write_files(file.parent, {file.name: content}, what=what)
    return file


def prepare_folder(folder: Path, *, what: str = "results") -> None:
    """Make a folder if it is not there, and make sure that files can be written to it.

    Raises:
        InputError: If they cannot.
    """
    probe = _beside(folder / "probe")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        reason = "it is not a folder" if folder.exists() and not folder.is_dir() else error.strerror
        raise InputError(
            f"The {what} cannot be written to '{folder}' ({reason}); choose another folder with --out."
        ) from error


def is_mine(status: os.stat_result) -> bool:
    """Whether a file belongs to whoever runs this; where files have no owners, yes."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def refuse_link(path: Path) -> None:
    """Refuse a link where something of our own is to be: whoever made the folder could have us write elsewhere.

    Raises:
        InputError: If it is one.
    """
    if path.is_symlink():
        raise InputError(f"'{path}' is a link, which is not followed there; put what it leads to in its place.")


def open_regular(file: Path, *, write: bool = False) -> BinaryIO:
    """Open a file in a folder that anyone may have made: a regular file and, to write, this user's own.

    Args:
        file: The file; to write, it is made if it is not there, and has no other name.
        write: Whether to write as well as to read.

    Raises:
        InputError: If it is a link, no regular file or, to write, somebody else's.
        OSError: If it cannot be opened.
    """
    refuse_link(file)
    flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):  # a pipe that nobody writes to would not open
        flags |= getattr(os, name, 0)
    descriptor = os.open(file, flags, 0o666)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or (write and not (status.st_nlink == 1 and is_mine(status))):
        os.close(descriptor)
        raise InputError(f"'{file}' is no file of your own; remove it, or work on a copy of its folder.")
    return open(descriptor, "r+b" if write else "rb")


def _beside(file: Path) -> Path:
    """A name in the same folder that nobody else has."""
    return file.with_name(f".fei-{secrets.token_hex(8)}")


def settle(folder: Path) -> None:
    """Have the names themselves on the disk too, where the system can do that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
