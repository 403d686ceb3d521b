"""A data set of the user's own: a CSV file with paths, labels and perhaps boxes."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from fei.data.dataset import Box, Dataset, Item
from fei.data.files import absent, finite_numbers, malformed, read_csv, user_path
from fei.errors import DataError, InputError

_EDGES = ("left", "top", "right", "bottom")
_INDEX = re.compile(r"[0-9]{1,9}")
_NUMBER = re.compile(r"[-+]?[0-9]*\.?[0-9]+\.?")


class _Row(NamedTuple):
    """A line of the table: an image, its label as written, and perhaps a box."""

    line: int
    name: str
    label: str
    box: Box | None


def load_csv(location: str, spec: str) -> Dataset:
    """A table with the columns path and label, and for boxes left, top, right and bottom; others are ignored.

    A path counts from the table's folder, and being the user's own may lead out of it or be absolute; ids are the paths
    in their shortest form. Labels are all indices, all names, or empty; names become classes in alphabetical order. An
    image with several boxes has several rows of the same label.
    """
    file = user_path(location)
    if not os.path.isfile(file):
        raise InputError(f"There is no table '{file}'; check the path.")
    rows = _read(file)
    classes = _classes(rows, file)
    places = {name: place for place, name in enumerate(classes or ())}
    merged: dict[str, list[_Row]] = {}
    for row in rows:
        earlier = merged.setdefault(row.name, [])
        if earlier and (row.label != earlier[0].label or row.box is None or earlier[0].box is None):
            expected = f"line {earlier[0].line} has that image already, and only further boxes of one label are added"
            raise malformed(file, row.line, row.name, expected)
        earlier.append(row)
    items: list[Item] = []
    problems: list[str] = []
    for name, same in merged.items():
        path, label = file.parent / name, same[0].label
        if os.path.isfile(path):
            index = None if not label else int(label) if classes is None else places[label]
            items.append(Item(path, name, index, tuple(row.box for row in same if row.box)))
        else:
            problems.append(absent(path, file, same[0].line))
    if not items:
        none = f"names {len(problems)} images and none of them is there" if problems else "names no images"
        raise DataError(f"'{file}' {none}; paths count from the folder of the table.")
    return Dataset(spec, tuple(items), classes, tuple(problems))


def _read(file: Path) -> list[_Row]:
    lines = read_csv(file, "save the table as CSV", skipinitialspace=True, strict=True)
    header = [name.strip().lower() for name in next(lines, (1, []))[1]]
    columns = {name: header.index(name) for name in ("path", "label", *_EDGES) if name in header}
    if not {"path", "label"} <= columns.keys() or len(columns) not in (2, 6):
        expected = "a header with path,label or path,label,left,top,right,bottom was expected"
        raise malformed(file, 1, ",".join(header), expected)
    rows: list[_Row] = []
    for line, fields in lines:
        if not any(field.strip() for field in fields):
            continue
        content = ",".join(fields)
        if len(fields) != len(header):
            raise malformed(file, line, content, f"{len(header)} values were expected, as in the header")
        path, label, *edges = (fields[column].strip() for column in columns.values())
        if not path or "\0" in path:
            raise malformed(file, line, content, "the path of an image was expected")
        if _NUMBER.fullmatch(label) and not _INDEX.fullmatch(label):
            raise malformed(file, line, content, f"the label '{label}' is neither a class's index nor a name")
        rows.append(_Row(line, _name(path, file), label, _box(edges, file, line, content)))
    return rows


def _name(path: str, file: Path) -> str:
    """A path in its shortest form, from the table's folder if it lies below it."""
    folder = os.path.abspath(file.parent)
    name = os.path.normpath(path)
    if os.path.isabs(name) and name.startswith(folder.rstrip(os.sep) + os.sep):
        name = os.path.relpath(name, folder)
    return Path(name).as_posix()


def _box(edges: list[str], file: Path, line: int, content: str) -> Box | None:
    if not any(edges):
        return None
    box = finite_numbers(edges)
    if len(box) != 4 or not (box[0] < box[2] and box[1] < box[3]):
        raise malformed(file, line, content, "numbers with left below right and top below bottom were expected")
    left, top, right, bottom = box
    return left, top, right, bottom


def _classes(rows: list[_Row], file: Path) -> tuple[str, ...] | None:
    """The classes if labels are names; None if they are indices or there are none."""
    indices = [row for row in rows if _INDEX.fullmatch(row.label)]
    names = [row for row in rows if row.label and not _INDEX.fullmatch(row.label)]
    if indices and names:
        expected = f"line {names[0].line} has a name, '{names[0].label}', and labels are all names or all indices"
        raise malformed(file, indices[0].line, indices[0].label, expected)
    return tuple(sorted({row.label for row in names})) or None
