"""CUB-200-2011, in the layout of its own archive."""

import os
from dataclasses import dataclass
from pathlib import Path

from fei.data.dataset import Box, Dataset, Item
from fei.data.files import absent, finite_numbers, folder_and_split, inside, malformed, read_lines
from fei.errors import DataError, InputError

_SPLITS = ("train", "test")


@dataclass(frozen=True)
class _List:
    """A list of the archive: for each image, or class, by its number, the line and what stands on it after that."""

    file: Path
    rows: dict[str, tuple[int, str]]

    def __getitem__(self, number: str) -> str:
        if number not in self.rows:
            raise DataError(f"'{self.file}' has no line for image {number}; unpack the archive again.")
        return self.rows[number][1]

    def wrong(self, number: str, expected: str) -> DataError:
        line, text = self.rows[number]
        return malformed(self.file, line, f"{number} {text}", expected)


def load_cub(location: str, spec: str) -> Dataset:
    """Caltech-UCSD Birds: 200 species, a box for each photograph.

    The location is the folder with images.txt, or its parent; "@train" or "@test" after it takes that split alone. Ids
    are as in images.txt, and a label is the class's number less one.
    """
    folder, split = folder_and_split(location)
    if split is not None and split not in _SPLITS:
        raise InputError(f"CUB-200-2011 has no split '{split}'; choose train or test.")
    root = folder / "CUB_200_2011" if os.path.isfile(folder / "CUB_200_2011" / "images.txt") else folder
    images = _read(root / "images.txt", "the number and the path of an image were expected")
    classes = _classes(root / "classes.txt")
    labels = _read(root / "image_class_labels.txt", "the numbers of an image and of its class were expected")
    boxes = _read(root / "bounding_boxes.txt", "an image's number, left, top, width and height were expected")
    splits = split and _read(root / "train_test_split.txt", "an image's number and 0 or 1 were expected")

    items: dict[str, Item] = {}
    problems: list[str] = []
    for number, (line, name) in images.rows.items():
        name = inside(name, root / "images", images.file, line)
        if splits and splits[number] not in ("0", "1"):
            raise splits.wrong(number, "1 for training or 0 for test was expected")
        if splits and (splits[number] == "1") != (split == "train"):
            continue
        label, box = _label(labels, number, len(classes)), _box(boxes, number)
        if name in items:
            raise malformed(images.file, line, name, "an earlier line names the same image")
        if os.path.isfile(root / "images" / name):
            items[name] = Item(root / "images" / name, name, label, (box,))
        else:
            problems.append(absent(root / "images" / name, images.file, line))
    if not items:
        what = f"{len(problems)} images and none of them is there" if problems else "no images"
        where = f" for the split '{split}'" if split else ""
        raise DataError(f"'{images.file}' names {what}{where}; unpack the archive again.")
    return Dataset(spec, tuple(items.values()), classes, tuple(problems))


def _read(file: Path, expected: str) -> _List:
    """Read lines of a number and what belongs to it."""
    if not os.path.isfile(file):
        raise DataError(f"'{file.parent}' has no '{file.name}'; give the folder that CUB_200_2011.tgz unpacks to.")
    rows: dict[str, tuple[int, str]] = {}
    for line, content in read_lines(file):
        number, *rest = content.split(maxsplit=1)
        if not (number.isascii() and number.isdecimal()) or not rest:
            raise malformed(file, line, content, expected)
        if number in rows:
            raise malformed(file, line, content, f"line {rows[number][0]} has the number {number} already")
        rows[number] = line, rest[0]
    return _List(file, rows)


def _classes(file: Path) -> tuple[str, ...]:
    """The names of the classes: "Black footed Albatross" for "001.Black_footed_Albatross"."""
    table = _read(file, "the number and the name of a class were expected")
    for expected, number in enumerate(table.rows, start=1):
        if number != str(expected):
            raise table.wrong(number, f"the classes are numbered in order, and {expected} is next")
    return tuple(name.partition(".")[2].replace("_", " ") or name for _, name in table.rows.values())


def _label(labels: _List, number: str, classes: int) -> int:
    text = labels[number]
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= classes):
        raise labels.wrong(number, f"a class from 1 to {classes}, as in classes.txt, was expected")
    return int(text) - 1


def _box(boxes: _List, number: str) -> Box:
    edges = finite_numbers(boxes[number].split())
    if len(edges) != 4 or min(edges[2:]) <= 0:
        raise boxes.wrong(number, "an image's number, left, top, width and height were expected")
    left, top, width, height = edges
    return left, top, left + width, top + height
