"""Looking for images and reading lists that anyone may have made: each folder once, and nothing that is too large."""

import csv
import heapq
import io
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from fei.errors import DataError, InputError

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
    | {".ppm", ".pgm", ".pbm", ".pnm", ".avif"}
)
"""How the names of images end, in lower case."""

MAX_LIST_BYTES = 200_000_000
"""Larger lists and tables are refused before they are read."""


def user_path(location: str) -> Path:
    """A path as a user writes it, perhaps with "~"."""
    return Path(os.path.expanduser(location))


def existing_folder(location: str) -> Path:
    """The folder of that path, which must be there."""
    folder = user_path(location)
    if not os.path.isdir(folder):
        wrong = "is a file" if os.path.isfile(folder) else "is not there"
        raise InputError(f"The folder '{folder}' {wrong}; check the path.")
    return folder


def folder_and_split(location: str) -> tuple[Path, str | None]:
    """Divide "DIR@SPLIT"; a folder whose own name has an @ in it wins."""
    folder, mark, split = location.rpartition("@")
    if not mark or not folder or "/" in split or os.path.isdir(user_path(location)):
        return existing_folder(location), None
    return existing_folder(folder), split


def find_images(folder: Path, depth: int | None = None) -> tuple[list[str], list[str]]:
    """Find the image files below a folder, by the endings of their names.

    Hidden files and folders are passed over. Links are followed, and each folder is looked at once, under its real name
    if it has one below `folder`; so a link to a parent is no loop. Paths have at most `depth` names, 1 for the folder's
    own files; any number if it is not given.

    Returns:
        The images as paths from the folder, with slashes, and a sentence for each entry that had to be left out.

    Raises:
        InputError: If the folder itself cannot be listed.
    """
    images: list[str] = []
    problems: list[str] = []
    seen: set[tuple[int, int]] = set()
    folders, links = [""], list[str]()  # links wait until no folder is left
    while folders or links:
        here = heapq.heappop(folders or links)
        try:
            status = os.stat(folder / here)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            inner = entries(folder / here)
        except (InputError, OSError):
            if not here:
                raise
            problems.append(f"'{folder / here}' cannot be listed, since permission is missing; it was left out.")
            continue
        for entry in inner:
            name = f"{here}/{entry.name}" if here else entry.name
            if entry.name.startswith("."):
                continue
            linked = entry.is_symlink()
            if os.path.isdir(entry) if linked else entry.is_dir():
                if depth is None or name.count("/") + 1 < depth:
                    heapq.heappush(links if linked else folders, name)
            elif os.path.splitext(name)[1].lower() not in IMAGE_SUFFIXES:
                continue
            elif os.path.isfile(entry) if linked else entry.is_file():
                images.append(name)
            else:
                problems.append(f"'{folder / name}' is a broken link or no regular file; it was left out.")
    return sorted(images), sorted(problems)


def subfolders(folder: Path) -> list[str]:
    """The names of the folders in a folder, sorted, without the hidden ones."""
    return sorted(entry.name for entry in entries(folder) if entry.name[0] != "." and os.path.isdir(entry))


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds."""
    try:
        return list(os.scandir(folder))
    except OSError as error:
        raise InputError(f"'{folder}' cannot be listed ({error.strerror}); check its permissions.") from error


def read_bytes(file: Path, limit: int = MAX_LIST_BYTES) -> bytes:
    """Read a file; one that has more bytes than the limit, or cannot be opened, is a DataError."""
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            content = stream.read(limit + 1) if size <= limit else b""
    except OSError as error:
        raise DataError(f"'{file}' cannot be read ({error.strerror}); check its permissions.") from error
    if max(size, len(content)) > limit:
        raise DataError(f"'{file}' has {size / 1e6:,.1f} MB; at most {limit / 1e6:,.0f} MB are read.")
    return content


def read_text(file: Path) -> str:
    """Read a list or a table, which must be text in UTF-8, whatever its line ends."""
    content = read_bytes(file)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"Line {line} of '{file}' is not text in UTF-8; save the file as UTF-8.") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a list that are not blank, stripped, each with its number."""
    for number, line in enumerate(read_text(file).split("\n"), start=1):
        if stripped := line.strip():
            yield number, stripped


def read_csv(file: Path, advice: str, **options: Any) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file, as `csv.reader` reads it with these options, each with the number of its last line."""
    rows = csv.reader(io.StringIO(read_text(file)), **options)
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise DataError(f"Line {rows.line_num} of '{file}' is not CSV ({error}); {advice}.") from error


def finite_numbers(texts: Sequence[str]) -> list[float]:
    """Texts as numbers; none at all if one of them is not a finite number."""
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return []
    return numbers if all(map(math.isfinite, numbers)) else []


def malformed(file: Path, line: int, content: str, expected: str) -> DataError:
    """The error for a line that is not as the format has it; `expected` ends the sentence."""
    shown = content if len(content) <= 60 else content[:57] + "..."
    return DataError(f"Line {line} of '{file}' is {shown!r}; {expected}.")


def inside(name: str, root: Path, file: Path, line: int) -> str:
    """The path that a line of a list names, in its shortest form; one that leads out of the root is a DataError."""
    windows = PureWindowsPath(name)
    if PurePosixPath(name).is_absolute() or windows.anchor or ".." in windows.parts or "\0" in name:
        raise malformed(file, line, name, f"a path inside '{root}' was expected, without '..'")
    return PurePosixPath(name).as_posix()


def absent(path: Path, file: Path, line: int) -> str:
    """The sentence for an image that a list names and that is not there."""
    return f"'{path}', named on line {line} of '{file}', is not there; it was left out."
