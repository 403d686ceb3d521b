"""CUB-200-2011, in the layout of its own archive."""

import math
import os
from pathlib import Path

from fei.data.dataset import Box, Dataset, Item
from fei.data.files import absent, folder_and_split, inside, malformed, read_lines
from fei.errors import DataError, InputError

_SPLITS = ("train", "test")

# For each image, or class, by its number: the line, and what stands on it after the number.
_Table = dict[str, tuple[int, str]]


def load_cub(location: str, spec: str) -> Dataset:
    """Caltech-UCSD Birds: 200 species, a box for each photograph.

    Args:
        location: The folder with images.txt, or its parent; "@train" or "@test" after it takes that split alone.
        spec: What `load` was asked for.

    Returns:
        The photographs, with ids as in images.txt. A label is the class's number less one.

    Raises:
        InputError: If there is no such folder or split.
        DataError: If a list is absent or malformed, or no photograph is there.
    """
    folder, split = folder_and_split(location)
    if split is not None and split not in _SPLITS:
        raise InputError(f"CUB-200-2011 has no split '{split}'; choose train or test.")
    root = folder / "CUB_200_2011" if os.path.isfile(folder / "CUB_200_2011" / "images.txt") else folder
    images = _table(root / "images.txt", "the number and the path of an image were expected")
    classes = _classes(root / "classes.txt")
    labels = _table(root / "image_class_labels.txt", "the numbers of an image and of its class were expected")
    boxes = _table(root / "bounding_boxes.txt", "an image's number, left, top, width and height were expected")
    splits = (
        {} if split is None else _table(root / "train_test_split.txt", "an image's number and 0 or 1 were expected")
    )

    items: dict[str, Item] = {}
    problems: list[str] = []
    for number, (line, name) in images.items():
        name = inside(name, root / "images", root / "images.txt", line)
        if split is not None and _in_training(splits, number, root) != (split == "train"):
            continue
        label = _label(labels, number, root, len(classes))
        box = _box(boxes, number, root)
        if name in items:
            raise malformed(root / "images.txt", line, name, "an earlier line names the same image")
        if os.path.isfile(root / "images" / name):
            items[name] = Item(root / "images" / name, name, label, (box,))
        else:
            problems.append(absent(root / "images" / name, root / "images.txt", line))
    if not items:
        what = "no images" if not images or not problems else f"{len(problems)} images and none of them is there"
        where = f" for the split '{split}'" if split else ""
        raise DataError(f"'{root / 'images.txt'}' names {what}{where}; unpack the archive again.")
    return Dataset(spec, tuple(items.values()), classes, tuple(problems))


def _table(file: Path, expected: str) -> _Table:
    """Read lines of a number and what belongs to it."""
    if not os.path.isfile(file):
        raise DataError(
            f"There is no '{file.name}' in '{file.parent}'; give the folder that CUB_200_2011.tgz unpacks to."
        )
    table: _Table = {}
    for line, content in read_lines(file):
        number, *rest = content.split(maxsplit=1)
        if not (number.isascii() and number.isdecimal()) or not rest:
            raise malformed(file, line, content, expected)
        if number in table:
            raise malformed(file, line, content, f"line {table[number][0]} has the number {number} already")
        table[number] = line, rest[0]
    return table


def _entry(table: _Table, number: str, file: Path) -> tuple[int, str]:
    if number not in table:
        raise DataError(f"'{file}' has no line for image {number}, which images.txt names; unpack the archive again.")
    return table[number]


def _classes(file: Path) -> tuple[str, ...]:
    """The names of the classes: "Black footed Albatross" for "001.Black_footed_Albatross"."""
    table = _table(file, "the number and the name of a class were expected")
    for expected, (number, (line, content)) in enumerate(table.items(), start=1):
        if number != str(expected):
            raise malformed(
                file, line, f"{number} {content}", f"the classes are numbered in order, and {expected} is next"
            )
    return tuple(name.partition(".")[2].replace("_", " ") or name for _, name in table.values())


def _label(labels: _Table, number: str, root: Path, classes: int) -> int:
    line, text = _entry(labels, number, root / "image_class_labels.txt")
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= classes):
        expected = f"a class from 1 to {classes}, as in classes.txt, was expected"
        raise malformed(root / "image_class_labels.txt", line, f"{number} {text}", expected)
    return int(text) - 1


def _box(boxes: _Table, number: str, root: Path) -> Box:
    line, text = _entry(boxes, number, root / "bounding_boxes.txt")
    try:
        left, top, width, height = map(float, text.split())
    except ValueError:
        left = top = width = height = math.nan
    if not (all(map(math.isfinite, (left, top))) and 0 < width < math.inf and 0 < height < math.inf):
        expected = "an image's number, left, top, width and height were expected"
        raise malformed(root / "bounding_boxes.txt", line, f"{number} {text}", expected)
    return left, top, left + width, top + height


def _in_training(splits: _Table, number: str, root: Path) -> bool:
    line, text = _entry(splits, number, root / "train_test_split.txt")
    if text not in ("0", "1"):
        expected = "1 for training or 0 for test was expected"
        raise malformed(root / "train_test_split.txt", line, f"{number} {text}", expected)
    return text == "1"
