"""Where results go: names that do not collide, and files that appear whole."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fei.common.files import write_files

PICTURE, MAP, EXPLANATION, RECORD = ".overlay.png", ".map.npy", ".explanation.safetensors", ".json"
PAGE = "explorer.html"
_MOST_OF_NAME = 40
_ENDINGS = {"picture": PICTURE, "map": MAP, "explanation": EXPLANATION, "record": RECORD}


def result_names(images: Sequence[Path], folder: Path, parts: Sequence[str] = ("",)) -> list[str]:
    """What the results of each image are called in a folder: its name without the ending, numbered where it repeats.

    A name that would make a result replace one of the images is passed over as well. `parts` is what follows the name
    before the endings of results, such as that of a class.
    """
    endings = [part + end for part in parts for end in _ENDINGS.values()]
    sources = {_canonical(image) for image in images}
    names: list[str] = []
    taken: set[str] = set()
    for image in images:
        stem = image.stem
        number, name = 1, stem
        while name.casefold() in taken or any(_canonical(folder / (name + end)) in sources for end in endings):
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.casefold())
        names.append(name)
    return names


def class_parts(classes: Sequence[tuple[int, str]]) -> list[str]:
    """What classes, given by index and name, add to the names of their results, such as ".egyptian-cat".

    It is the first of a class's names, and its index besides where names are alike. One class alone adds nothing.
    """
    if len(classes) < 2:
        return [""] * len(classes)
    short = [re.sub(r"\W+", "-", name.split(",")[0].casefold())[:_MOST_OF_NAME].strip("-") for _, name in classes]
    if all(short) and len(set(short)) == len(short):
        return [f".{word}" for word in short]
    return [f".{word}-{index}" for (index, _), word in zip(classes, short, strict=True)]


def write_results(folder: Path, name: str, contents: Mapping[str, bytes | str]) -> dict[str, str]:
    """Write the results of an image, by their endings; they replace those of its name together.

    The record comes last: where it is there, the other files belong to it. A result that was not made this time does
    not stay behind from an earlier run.

    Returns:
        The files, by what they are.

    Raises:
        DataError: If the disk refuses.
    """
    made = {kind: name + end for kind, end in _ENDINGS.items() if end in contents}
    gone = [name + end for end in _ENDINGS.values() if end not in contents]
    files = {file: contents[file.removeprefix(name)] for file in made.values()}
    write_files(folder, files, what=f"results of '{name}'", gone=gone)
    return {kind: str(folder / file) for kind, file in made.items()}


def _canonical(path: Path) -> str:
    """A path for comparison; file systems may take upper and lower case for the same."""
    return os.path.abspath(path).casefold()
