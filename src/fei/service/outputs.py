"""Where results go: names that do not collide, and files that appear whole."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fei.common.files import write_files

PICTURE, MAP, EXPLANATION, RECORD = ".overlay.png", ".map.npy", ".explanation.safetensors", ".json"
SHEET = ".sheet.pdf"
PAGE = "explorer.html"
_MOST_OF_NAME = 40
KINDS = {"picture": PICTURE, "sheet": SHEET, "map": MAP, "explanation": EXPLANATION, "record": RECORD}

ENDINGS = tuple(KINDS.values())


def result_names(images: Sequence[Path], folder: Path, parts: Sequence[str] = ("",)) -> list[str]:
    """What the results of each image are called in a folder: its name without the ending, numbered where it repeats.

    A name that would make a result replace one of the images is passed over as well. `parts` is what follows the name
    before the endings of results, such as that of a class.
    """
    endings = [part + end for part in parts for end in ENDINGS]
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


def free_name(folder: Path, names: Sequence[str], record: Mapping[str, Any], endings: Sequence[str] = ENDINGS) -> str:
    """The first of several names under which a folder has no results yet, or those of the same question.

    Args:
        folder: Where results go.
        names: What they may be called, the best first; the last one is numbered where all are taken.
        record: The record that is to be written.
        endings: Of all results; the record's is the last.
    """
    numbered = (f"{names[-1]}-{number}" for number in itertools.count(2))
    for name in itertools.chain(names, numbered):
        taken = [end for end in endings if (folder / (name + end)).exists()]
        if not taken or (endings[-1] in taken and _question(_read(folder / (name + endings[-1]))) == _question(record)):
            return name
    raise AssertionError("there is always another number")


def page_name(folder: Path, commands: Iterable[str | None], *, force: bool) -> str:
    """What a page that such commands make is called, so that it replaces none of another question."""
    told = [json.dumps(command, ensure_ascii=False).replace("<", "\\u003c") for command in commands]
    stem, _, ending = PAGE.rpartition(".")
    for name in itertools.chain([PAGE], (f"{stem}-{number}.{ending}" for number in itertools.count(2))):
        file = folder / name
        if force or not file.is_file():  # what is no file is no page of ours
            return name
        text = file.read_text(encoding="utf-8", errors="replace")
        if all(command in text for command in told):
            return name
    raise AssertionError("there is always another number")


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _question(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a record answers: which question, of which image and which network."""
    parts = [record.get("image"), record.get("network"), *list(record.get("images", ()))]
    known = [part.get("sha256", part.get("weights")) for part in parts if isinstance(part, Mapping)]
    return record.get("sha256"), known, record["request"] if "request" in record else record.get("command")


def class_parts(classes: Sequence[tuple[int, str]]) -> list[str]:
    """What classes, given by index and name, add to the names of their results, such as ".egyptian-cat".

    It is the first of a class's names, and its index besides where names are alike. One class alone adds nothing.
    """
    if len(classes) < 2:
        return [""] * len(classes)
    short = [in_file_name(name.split(",")[0]) for _, name in classes]
    if all(short) and len(set(short)) == len(short):
        return [f".{word}" for word in short]
    return [f".{word}-{index}" for (index, _), word in zip(classes, short, strict=True)]


def in_file_name(text: str) -> str:
    """Some text as a part of a file's name: "Egyptian cat" as "egyptian-cat"."""
    return re.sub(r"[^\w+]+", "-", text.casefold())[:_MOST_OF_NAME].strip("-")


def write_results(folder: Path, name: str, contents: Mapping[str, bytes | str]) -> dict[str, str]:
    """Write the results of an image, by their endings; they replace those of its name together.

    The record comes last: where it is there, the other files belong to it. A result that was not made this time does
    not stay behind from an earlier run.

    Returns:
        The files, by what they are.

    Raises:
        DataError: If the disk refuses.
    """
    made = {kind: name + end for kind, end in KINDS.items() if end in contents}
    gone = [name + end for end in ENDINGS if end not in contents]
    files = {file: contents[file.removeprefix(name)] for file in made.values()}
    write_files(folder, files, what=f"results of '{name}'", gone=gone)
    return {kind: str(folder / file) for kind, file in made.items()}


def _canonical(path: Path) -> str:
    """A path for comparison; file systems may take upper and lower case for the same."""
    return os.path.abspath(path).casefold()
