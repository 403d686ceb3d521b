"""ImageNet's validation images, in their usual layouts, with the classes in the order of the usual networks.

The names of the images do not tell their classes; three lists do.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path

from fei.data.dataset import Box, Dataset, Item
from fei.data.files import existing_folder, find_images, malformed, read_bytes, read_csv, read_lines, subfolders
from fei.data.sets._annotations import read_objects
from fei.data.sets._folders import class_folders
from fei.data.sets._matlab import Value, read_table
from fei.errors import DataError

_SYNSET = re.compile(r"n[0-9]{8}")
_IMAGE = re.compile(r"ILSVRC2012_val_([0-9]{8})\.[A-Za-z]+")
_KAGGLE_IMAGES = Path("Data", "CLS-LOC", "val")
_DEVKITS = ("ILSVRC2012_devkit_t12", "devkit")
_KAGGLE = "LOC_val_solution.csv"
_SYNSETS = "imagenet_2012_validation_synset_labels.txt"
_NUMBERS = "ILSVRC2012_validation_ground_truth.txt"
_KAGGLE_IMAGE = re.compile(r"ILSVRC2012_val_([0-9]{8})")
_MAX_META_BYTES = 20_000_000


@dataclass(frozen=True)
class _Truth:
    """What a list tells, by the number in an image's name: its class, and the boxes of that where the list has them."""

    file: Path
    labels: dict[int, int] = field(default_factory=dict)
    boxes: dict[int, tuple[Box, ...]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # a sentence for each box that was left out


def load_imagenet(location: str, spec: str) -> Dataset:
    """ImageNet validation: any part of the images, sorted into synset folders or all in one folder.

    The location is the folder of the images, or one with `val` or Kaggle's ILSVRC/Data/CLS-LOC/val in it. Ids are as
    seen from the folder of the images. The classes of a flat folder come from one of these, in it, beside it, or in the
    development kit beside it: LOC_val_solution.csv (Kaggle's, with boxes), imagenet_2012_validation_synset_labels.txt
    (one synset id per line), or ILSVRC2012_validation_ground_truth.txt together with meta.mat. Other boxes come from an
    `Annotations` folder. Boxes are taken as they are written. A flat folder with only some of the 50,000 images is one
    problem, not one for each image.
    """
    folder, sorted_by_class = _image_folder(existing_folder(location))
    known = _synset_indices()
    items, problems = class_folders(folder, known, "synset") if sorted_by_class else _from_flat_folder(folder)
    if not items:
        why = f"the first problem is: {problems[0]}" if problems else "its synset folders are empty."
        raise DataError(f"No image in '{folder}' has a known class; {why}")
    classes, annotations = tuple(known), _annotation_folders(folder)
    if annotations and not any(item.boxes for item in items):
        # every item has a label here; 0 is for the type checker
        items = [_with_boxes(item, classes[item.label or 0], annotations, problems) for item in items]
    return Dataset(spec, tuple(items), classes, tuple(problems))


def _image_folder(root: Path) -> tuple[Path, bool]:
    """The folder that holds the images, and whether they are sorted into synset folders."""
    for inner in (Path(), Path("val"), _KAGGLE_IMAGES, "ILSVRC" / _KAGGLE_IMAGES):
        if not os.path.isdir(root / inner):
            continue
        if any(map(_SYNSET.fullmatch, subfolders(root / inner))):
            return root / inner, True
        if any(map(_IMAGE.fullmatch, find_images(root / inner, depth=1)[0])):
            return root / inner, False
    raise DataError(
        f"'{root}' holds neither synset folders such as n01440764 nor files such as ILSVRC2012_val_00000001.JPEG; "
        "give the folder of ImageNet's validation images."
    )


def _from_flat_folder(folder: Path) -> tuple[list[Item], list[str]]:
    names, problems = find_images(folder, depth=1)
    truth = _read_truth(folder, list(_places(folder)))
    problems += truth.problems
    items: list[Item] = []
    missing = set(truth.labels)
    for name in names:
        match = _IMAGE.fullmatch(name)
        if match is None:
            problems.append(f"'{folder / name}' is not named like ILSVRC2012_val_00000001.JPEG; it was left out.")
        elif (number := int(match[1])) not in truth.labels:
            problems.append(f"'{truth.file}' has no class for '{folder / name}'; it was left out.")
        else:
            missing.discard(number)
            items.append(Item(folder / name, name, truth.labels[number], truth.boxes.get(number, ())))
    if missing:
        problems.append(
            f"{len(missing):,} of the {len(truth.labels):,} images that '{truth.file}' describes are not in "
            f"'{folder}', the first being ILSVRC2012_val_{min(missing):08}; they were left out."
        )
    return items, problems


def _above(folder: Path) -> tuple[list[Path], list[Path]]:
    """The folder and its parent; and of Kaggle's tree, if it is in that, the top and what holds it."""
    whole = Path(os.path.abspath(folder))
    in_kaggles_tree = whole.parts[-3:] == _KAGGLE_IMAGES.parts
    return [folder, *whole.parents[:1]], list(whole.parents[2:4]) if in_kaggles_tree else []


def _places(folder: Path) -> Iterator[Path]:
    """Where lists may lie: with the images, beside their folder, in a development kit, at the top of Kaggle's tree."""
    near, kaggle = _above(folder)
    for place in near:
        yield place
        for devkit in _DEVKITS:
            yield from (place / devkit / "data", place / devkit)
    yield from kaggle


def _annotation_folders(folder: Path) -> list[Path]:
    near, kaggle = _above(folder)
    inner = ("", "val", os.path.join("CLS-LOC", "val"))
    places = [base / "Annotations" / name for base in (*near, *kaggle[:1]) for name in inner]
    return [place for place in places if os.path.isdir(place)]


def _with_boxes(item: Item, synset: str, annotations: list[Path], problems: list[str]) -> Item:
    """The item with the boxes of its own class, if one of the folders has an annotation of it."""
    name = f"{item.path.stem}.xml"
    files = [file for place in annotations for file in (place / name, place / synset / name)]
    file = next(filter(os.path.isfile, files), None)
    if file is None:
        return item
    objects, troubles = read_objects(file)
    boxes = tuple(found.edges for found in objects if found.name == synset)
    problems += troubles
    if objects and not boxes:
        problems.append(f"'{file}' has no box of {synset}, the class of '{item.id}'; its boxes were left out.")
    return replace(item, boxes=boxes)


@cache
def _synset_indices() -> dict[str, int]:
    """The WordNet ids of the 1000 classes and their indices: in alphabetical order, as the usual networks have them."""
    text = resources.files("fei.data").joinpath("imagenet_synsets.txt").read_text("ascii")
    return {synset: index for index, synset in enumerate(text.split())}


def _read_truth(folder: Path, places: Sequence[Path]) -> _Truth:
    """Read the list of the classes that lies in one of the places."""
    if file := _first(_KAGGLE, places):
        return _read_kaggle(file)
    if file := _first(_SYNSETS, places):
        expected = "the id of one of the 1000 synsets was expected, such as n01440764"
        return _read_lines(file, _synset_indices(), expected)
    if file := _first(_NUMBERS, places):
        classes = _read_meta(_first("meta.mat", [file.parent, *places]), file)
        return _read_lines(file, classes, f"the number of one of the {len(classes)} classes was expected")
    raise DataError(
        f"'{folder}' holds ImageNet's validation images without their classes; put {_KAGGLE}, {_SYNSETS} or the "
        "development kit beside it."
    )


def _first(name: str, places: Sequence[Path]) -> Path | None:
    return next((place / name for place in places if os.path.isfile(place / name)), None)


def _read_lines(file: Path, classes: Mapping[str, int], expected: str) -> _Truth:
    """One class per line, in the order of the images."""
    truth = _Truth(file)
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
    known = _synset_indices()
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


def _read_kaggle(file: Path) -> _Truth:
    """Kaggle's table: an image's name, and for each object a synset id and four edges."""
    truth = _Truth(file)
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
        truth.labels[number] = _synset_indices()[synset]
        truth.boxes[number] = tuple(box for box in boxes if box[0] < box[2] and box[1] < box[3])
        if len(boxes) > len(truth.boxes[number]):
            truth.problems.append(f"A box on line {line} of '{file}' has no area; it was left out.")
    return truth


def _objects(text: str) -> tuple[str, list[Box]]:
    """The class of the first object, and the boxes of that class; a ValueError if the text is anything else."""
    words = text.split()
    if not words or len(words) % 5 or any(synset not in _synset_indices() for synset in words[::5]):
        raise ValueError
    edges = [[int(word) for word in words[i + 1 : i + 5]] for i in range(0, len(words), 5)]
    boxes = [(float(left), float(top), float(right), float(bottom)) for left, top, right, bottom in edges]
    return words[0], [box for box, synset in zip(boxes, words[::5], strict=True) if synset == words[0]]
