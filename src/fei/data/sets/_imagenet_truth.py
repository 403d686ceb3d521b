"""The classes of ImageNet's validation images, which their names do not tell: three lists that do."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path

from fei.data.dataset import Box
from fei.data.files import malformed, read_bytes, read_csv, read_lines
from fei.data.sets._matlab import Value, read_table
from fei.errors import DataError

_KAGGLE = "LOC_val_solution.csv"
_SYNSETS = "imagenet_2012_validation_synset_labels.txt"
_NUMBERS = "ILSVRC2012_validation_ground_truth.txt"
_KAGGLE_IMAGE = re.compile(r"ILSVRC2012_val_([0-9]{8})")
_MAX_META_BYTES = 20_000_000


@dataclass(frozen=True)
class Truth:
    """What a list tells, by the number in an image's name: its class, and the boxes of that where the list has them."""

    file: Path
    labels: dict[int, int] = field(default_factory=dict)
    boxes: dict[int, tuple[Box, ...]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # a sentence for each box that was left out


@cache
def synset_indices() -> dict[str, int]:
    """The WordNet ids of the 1000 classes and their indices: in alphabetical order, as the usual networks have them."""
    text = resources.files("fei.data").joinpath("imagenet_synsets.txt").read_text("ascii")
    return {synset: index for index, synset in enumerate(text.split())}


def read_truth(folder: Path, places: Sequence[Path]) -> Truth:
    """Read the list of the classes that lies in one of the places."""
    if file := _first(_KAGGLE, places):
        return _read_kaggle(file)
    if file := _first(_SYNSETS, places):
        expected = "the id of one of the 1000 synsets was expected, such as n01440764"
        return _read_lines(file, synset_indices(), expected)
    if file := _first(_NUMBERS, places):
        classes = _read_meta(_first("meta.mat", [file.parent, *places]), file)
        return _read_lines(file, classes, f"the number of one of the {len(classes)} classes was expected")
    raise DataError(
        f"'{folder}' holds ImageNet's validation images without their classes; put {_KAGGLE}, {_SYNSETS} or the "
        "development kit beside it."
    )


def _first(name: str, places: Sequence[Path]) -> Path | None:
    return next((place / name for place in places if os.path.isfile(place / name)), None)


def _read_lines(file: Path, classes: Mapping[str, int], expected: str) -> Truth:
    """One class per line, in the order of the images."""
    truth = Truth(file)
    for line, name in read_lines(file):
        if name not in classes:
            raise malformed(file, line, name, expected)
        truth.labels[line] = classes[name]
    return truth


def _read_meta(file: Path | None, numbers: Path) -> dict[str, int]:
    """The numbers that the development kit's meta.mat gives the classes, as text, and their indices."""
    if file is None:
        raise DataError(f"'{numbers}' needs the development kit's meta.mat, which tells its order; put that beside it.")
    content = read_bytes(file, _MAX_META_BYTES)
    known = synset_indices()
    try:
        pairs = [(_whole(row["ILSVRC2012_ID"]), row["WNID"]) for row in read_table(content, "synsets", _MAX_META_BYTES)]
    except (ValueError, KeyError) as error:
        raise DataError(f"'{file}' is not the development kit's table of synsets; unpack the archive again.") from error
    classes = {number: known[synset] for number, synset in pairs if isinstance(synset, str) and synset in known}
    if not classes:
        raise DataError(f"'{file}' has none of the 1000 synsets; take meta.mat from the development kit of 2012.")
    return classes


def _whole(value: Value) -> str:
    """A number of the table as the list of classes writes it."""
    if not isinstance(value, (int, float)) or value != value // 1:
        raise ValueError(f"{value!r:.60} is no number of a class")
    return str(int(value))


def _read_kaggle(file: Path) -> Truth:
    """Kaggle's table: an image's name, and for each object a synset id and four edges."""
    truth = Truth(file)
    rows = read_csv(file, "download it again")
    _, header = next(rows, (1, []))
    if header != ["ImageId", "PredictionString"]:
        raise malformed(file, 1, ",".join(header), "'ImageId,PredictionString' was expected")
    for line, row in rows:
        if not row:
            continue
        image = _KAGGLE_IMAGE.fullmatch(row[0])
        try:
            synset, boxes = _objects(row[1] if len(row) == 2 else "")
        except ValueError:
            image = None
        if image is None:
            expected = "an image's name and, for each object, a synset id and four numbers were expected"
            raise malformed(file, line, ",".join(row), expected)
        number = int(image[1])
        truth.labels[number] = synset_indices()[synset]
        truth.boxes[number] = tuple(box for box in boxes if box[0] < box[2] and box[1] < box[3])
        if len(boxes) > len(truth.boxes[number]):
            truth.problems.append(f"A box on line {line} of '{file}' has no area; it was left out.")
    return truth


def _objects(text: str) -> tuple[str, list[Box]]:
    """The class of the first object, and the boxes of that class; a ValueError if the text is anything else."""
    words = text.split()
    if not words or len(words) % 5 or any(synset not in synset_indices() for synset in words[::5]):
        raise ValueError
    edges = [[int(word) for word in words[i + 1 : i + 5]] for i in range(0, len(words), 5)]
    boxes = [(float(left), float(top), float(right), float(bottom)) for left, top, right, bottom in edges]
    return words[0], [box for box, synset in zip(boxes, words[::5], strict=True) if synset == words[0]]
