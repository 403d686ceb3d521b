"""A data set of the user's own: a CSV file with paths, labels and perhaps boxes."""

import csv
import io
import math
import os
import re
from pathlib import Path
from typing import NamedTuple

from fei.data.dataset import Box, Dataset, Item
from fei.data.files import absent, malformed, read_text, user_path
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

    A path counts from the table's folder, and being the user's own may lead out of it or be absolute. Labels are all
    indices, all names, or empty; names become classes in alphabetical order. An image with several boxes has several
    rows of the same label.

    Args:
        location: The file.
        spec: What `load` was asked for.

    Returns:
        The images, with ids as they are written, in their shortest form.

    Raises:
        InputError: If there is no such file.
        DataError: If a line is malformed, or no image is there.
    """
    file = user_path(location)
    if not os.path.isfile(file):
        raise InputError(f"There is no table '{file}'; check the path.")
    rows = _read(file)
    classes = _classes(rows, file)
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
        path = file.parent / name
        if os.path.isfile(path):
            boxes = tuple(row.box for row in same if row.box)
            items.append(Item(path, name, _label(same[0].label, classes), boxes))
        else:
            problems.append(absent(path, file, same[0].line))
    if not items:
        none = f"names {len(problems)} images and none of them is there" if problems else "names no images"
        raise DataError(f"'{file}' {none}; paths count from the folder of the table.")
    return Dataset(spec, tuple(items), classes, tuple(problems))


def _read(file: Path) -> list[_Row]:
    lines = csv.reader(io.StringIO(read_text(file)), skipinitialspace=True, strict=True)
    rows: list[_Row] = []
    try:
        header = [name.strip().lower() for name in next(lines, [])]
        columns = {name: header.index(name) for name in ("path", "label", *_EDGES) if name in header}
        if not {"path", "label"} <= columns.keys() or len(columns) not in (2, 6):
            expected = "a header with path,label or path,label,left,top,right,bottom was expected"
            raise malformed(file, 1, ",".join(header), expected)
        for fields in lines:
            if not any(field.strip() for field in fields):
                continue
            if len(fields) != len(header):
                raise malformed(
                    file, lines.line_num, ",".join(fields), f"{len(header)} values were expected, as in the header"
                )
            values = {name: fields[column].strip() for name, column in columns.items()}
            rows.append(_row(values, file, lines.line_num, ",".join(fields)))
    except csv.Error as error:
        raise DataError(f"Line {lines.line_num} of '{file}' is not CSV ({error}); save the table as CSV.") from error
    return rows


def _row(values: dict[str, str], file: Path, line: int, content: str) -> _Row:
    if not values["path"] or "\0" in values["path"]:
        raise malformed(file, line, content, "the path of an image was expected")
    if _NUMBER.fullmatch(values["label"]) and not _INDEX.fullmatch(values["label"]):
        raise malformed(file, line, content, f"the label '{values['label']}' is neither a class's index nor a name")
    edges = [values.get(edge, "") for edge in _EDGES]
    return _Row(line, _name(values["path"], file), values["label"], _box(edges, file, line, content))


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
    try:
        left, top, right, bottom = map(float, edges)
    except ValueError:
        left = top = right = bottom = math.nan
    if not (-math.inf < left < right < math.inf and -math.inf < top < bottom < math.inf):
        raise malformed(file, line, content, "numbers with left below right and top below bottom were expected")
    return left, top, right, bottom


def _classes(rows: list[_Row], file: Path) -> tuple[str, ...] | None:
    """The classes if labels are names; None if they are indices or there are none."""
    indices = [row for row in rows if _INDEX.fullmatch(row.label)]
    names = [row for row in rows if row.label and not _INDEX.fullmatch(row.label)]
    if indices and names:
        expected = f"line {names[0].line} has a name, '{names[0].label}', and labels are all names or all indices"
        raise malformed(file, indices[0].line, indices[0].label, expected)
    return tuple(sorted({row.label for row in names})) or None


def _label(label: str, classes: tuple[str, ...] | None) -> int | None:
    if not label:
        return None
    return int(label) if classes is None else classes.index(label)
