"""ImageNet's validation images, in their usual layouts, with the classes in the order of the usual networks."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fei.data.dataset import Dataset, Item
from fei.data.files import existing_folder, find_images, subfolders
from fei.data.sets._annotations import read_objects
from fei.data.sets._imagenet_truth import read_truth, synset_indices
from fei.errors import DataError

_SYNSET = re.compile(r"n[0-9]{8}")
_IMAGE = re.compile(r"ILSVRC2012_val_([0-9]{8})\.[A-Za-z]+")
_KAGGLE_IMAGES = Path("Data", "CLS-LOC", "val")
_DEVKITS = ("ILSVRC2012_devkit_t12", "devkit")


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
    items, problems = _from_synset_folders(folder) if sorted_by_class else _from_flat_folder(folder)
    if not items:
        why = f"the first problem is: {problems[0]}" if problems else "its synset folders are empty."
        raise DataError(f"No image in '{folder}' has a known class; {why}")
    classes = tuple(synset_indices())
    annotations = _annotation_folders(folder)
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


def _from_synset_folders(folder: Path) -> tuple[list[Item], list[str]]:
    loose, problems = find_images(folder, depth=1)
    problems += [f"'{folder / name}' lies outside the synset folders; it was left out." for name in loose]
    known = synset_indices()
    items: list[Item] = []
    for synset in subfolders(folder):
        names, troubles = find_images(folder / synset)
        if synset in known:
            items += [Item(folder / synset / name, f"{synset}/{name}", known[synset]) for name in names]
            problems += troubles
        elif names:
            problems.append(f"'{folder / synset}' is named after none of the 1000 synsets; its images were left out.")
    return items, problems


def _from_flat_folder(folder: Path) -> tuple[list[Item], list[str]]:
    names, problems = find_images(folder, depth=1)
    truth = read_truth(folder, list(_places(folder)))
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
