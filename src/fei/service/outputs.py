"""Where results go: a folder that can be written to, names that do not collide, and files that appear whole."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fei.common.files import write_files

if TYPE_CHECKING:
    from fei.report.explorer import Shown

PICTURE, MAP, EXPLANATION, RECORD = ".overlay.png", ".map.npy", ".explanation.safetensors", ".json"
PAGE = "explorer.html"
_ENDINGS = {"picture": PICTURE, "map": MAP, "explanation": EXPLANATION, "record": RECORD}


def result_names(images: Sequence[Path], folder: Path) -> list[str]:
    """What the results of each image are called in a folder: its name without the ending, numbered where it repeats.

    A name that would make a result replace one of the images is passed over as well.
    """
    sources = {_canonical(image) for image in images}
    names: list[str] = []
    taken: set[str] = set()
    for image in images:
        stem = image.stem
        number, name = 1, stem
        while name.casefold() in taken or any(
            _canonical(folder / (name + end)) in sources for end in _ENDINGS.values()
        ):
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.casefold())
        names.append(name)
    return names


def write_page(folder: Path, shown: Sequence[Shown]) -> str:
    """Write the explorer into a folder, and say where it is.

    Raises:
        DataError: If the disk refuses.
    """
    from fei.report.explorer import write_explorer

    return str(write_explorer(folder / PAGE, shown))


def result_files(folder: Path, name: str) -> dict[str, str]:
    """The results of that name that are in a folder, by what they are."""
    files = {kind: folder / (name + end) for kind, end in _ENDINGS.items()}
    return {kind: str(file) for kind, file in files.items() if file.exists()}


def write_results(folder: Path, name: str, contents: Mapping[str, bytes | str]) -> None:
    """Write the results of an image, by what they are; they replace those of its name together.

    The record comes last: where it is there, the other files belong to it. A result that was not made this time does
    not stay behind from an earlier run.

    Raises:
        DataError: If the disk refuses.
    """
    files = {name + end: contents[kind] for kind, end in _ENDINGS.items() if kind in contents}
    gone = [name + end for kind, end in _ENDINGS.items() if kind not in contents]
    write_files(folder, files, what=f"results of '{name}'", gone=gone)


def _canonical(path: Path) -> str:
    """A path for comparison; file systems may take upper and lower case for the same."""
    return os.path.abspath(path).casefold()
