"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
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
        _settle(file.parent)
    finally:
        part.unlink(missing_ok=True)


def write_files(
    folder: Path, files: Mapping[str, bytes | str], *, what: str = "results", gone: Iterable[str] = ()
) -> None:
    """Write files into a folder; each appears whole, in this order, once all are on the disk.

    Args:
        folder: Where to; it must be there.
        files: What is in each, by name. Text is written as UTF-8.
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
                stream.write(content.encode() if isinstance(content, str) else content)
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


def _beside(file: Path) -> Path:
    """A name in the same folder that nobody else has."""
    return file.with_name(f".fei-{secrets.token_hex(8)}")


def _settle(folder: Path) -> None:
    """Have the names themselves on the disk too, where the system can do that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
