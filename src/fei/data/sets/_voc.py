"""PASCAL VOC, in the layout of its development kit."""

import os
from pathlib import Path

from fei.data.dataset import Box, Dataset, Item
from fei.data.files import absent, entries, find_images, folder_and_split, inside, malformed, read_lines, subfolders
from fei.data.sets._annotations import Annotated, read_objects
from fei.errors import DataError, InputError

VOC_CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog"),
    *("horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
"""The classes in alphabetical order; a label is an index into them."""


def load_voc(location: str, spec: str) -> Dataset:
    """PASCAL VOC: photographs with boxes of 20 classes.

    The label is the class of the largest box, and the boxes are all those of that class, difficult ones among them. The
    annotations count pixels from 1 and include the last one; boxes here begin at 0. Ids are the names of the files.

    The location is the folder with JPEGImages and Annotations, such as VOCdevkit/VOC2012; "@SPLIT" after it, such as
    "@val", takes the images that ImageSets/Main/SPLIT.txt names. Without, all images are taken.
    """
    root, split = folder_and_split(location)
    for name in ("JPEGImages", "Annotations"):
        if not os.path.isdir(root / name):
            inner = [folder for folder in subfolders(root) if os.path.isdir(root / folder / name)]
            hint = f"did you mean '{root / inner[0]}'?" if inner else "give a folder such as VOCdevkit/VOC2012."
            raise DataError(f"'{root}' has no folder '{name}'; {hint}")
    listed = root / "ImageSets" / "Main" / f"{split}.txt"
    found, problems = find_images(root / "JPEGImages", depth=1)
    files = {Path(name).stem: name for name in found}
    annotated = [Path(entry.name) for entry in entries(root / "Annotations")]
    stems = {name.stem for name in annotated if name.suffix == ".xml" and name.name[0] != "."}
    wanted = dict.fromkeys(sorted({*files, *stems}), 0) if split is None else _split(root, listed)
    items: list[Item] = []
    for stem, line in wanted.items():
        annotation = root / "Annotations" / f"{stem}.xml"
        image = root / "JPEGImages" / files.get(stem, f"{stem}.jpg")
        if stem not in files and split is not None:
            problems.append(absent(image, listed, line))
        elif stem not in files:
            problems.append(f"'{annotation}' has no image in JPEGImages; it was left out.")
        elif not os.path.isfile(annotation):
            problems.append(f"'{image}' has no annotation '{annotation.name}'; it was left out.")
        else:
            objects, troubles = read_objects(annotation)
            problems += troubles
            if objects:
                items.append(Item(image, image.name, *_label_and_boxes(objects, annotation)))
            else:
                problems.append(f"'{annotation}' has no box and so no class for '{image.name}'; it was left out.")
    if not items:
        why = f"the first problem is: {problems[0]}" if problems else "unpack the archive again."
        raise DataError(f"'{root}' has no image with an annotation; {why}")
    return Dataset(spec, tuple(items), VOC_CLASSES, tuple(problems))


def _split(root: Path, file: Path) -> dict[str, int]:
    """The images of a split, each with the line that names it."""
    if not os.path.isfile(file):
        known = sorted(path.stem for path in file.parent.glob("*.txt") if "_" not in path.stem)
        choice = f"choose one of {', '.join(known)}" if known else "leave out '@', since it has none"
        raise InputError(f"There is no split '{file.stem}' in '{file.parent}'; {choice}.")
    lines: dict[str, int] = {}
    for line, name in read_lines(file):
        if len(name.split()) > 1:
            raise malformed(file, line, name, "the name of an image was expected; lists of one class are no splits")
        lines.setdefault(inside(name, root / "JPEGImages", file, line), line)
    return lines


def _label_and_boxes(objects: list[Annotated], file: Path) -> tuple[int, tuple[Box, ...]]:
    """The class of the largest object, and the boxes of that class."""
    for found in objects:
        if found.name not in VOC_CLASSES:
            raise DataError(f"'{file}' has '{found.name}', none of VOC's 20 classes; use csv: for other classes.")
    # Pixels counted from 1, the last one included, as edges counted from 0.
    boxes = [(left - 1, top - 1, right, bottom) for _, (left, top, right, bottom) in objects]
    areas = [(right - left) * (bottom - top) for left, top, right, bottom in boxes]
    name = objects[areas.index(max(areas))].name
    return VOC_CLASSES.index(name), tuple(box for box, found in zip(boxes, objects, strict=True) if found.name == name)
