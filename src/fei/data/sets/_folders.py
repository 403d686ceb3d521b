"""Images without a list: a file, a folder, a pattern, and class folders."""

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from fei.data.dataset import Dataset, Item
from fei.data.files import existing_folder, find_images, subfolders, user_path
from fei.errors import DataError, InputError

_WILD = frozenset("*?[")


def load_path(location: str, spec: str) -> Dataset:
    """One image file, all images below a folder, or those that a pattern matches; without labels."""
    path = user_path(location)
    if os.path.isfile(path):
        return Dataset(spec, (Item(path, path.name, None),), None)
    if os.path.isdir(path):
        return _dataset(path, *find_images(path), spec)
    if _WILD & set(location):
        return _load_pattern(path, spec)
    raise InputError(f"There is no file or folder '{path}'; check the path.")


def load_imagefolder(location: str, spec: str) -> Dataset:
    """A folder with a folder of images for each class, as torchvision's `ImageFolder` has it.

    The classes are the folders in alphabetical order; one without images keeps its index and is reported.
    """
    root = existing_folder(location)
    classes = {folder: index for index, folder in enumerate(subfolders(root))}
    if not classes:
        hint = "give each class one, or leave out 'imagefolder:' for images without labels"
        raise DataError(f"'{root}' has no class folders; {hint}.")
    items, problems = class_folders(root, classes, "class")
    if not items:
        first = next(iter(classes))
        raise DataError(f"No class folder of '{root}' holds an image, the first being '{first}'; check the path.")
    return Dataset(spec, tuple(items), tuple(classes), tuple(problems))


def class_folders(root: Path, indices: Mapping[str, int], kind: str) -> tuple[list[Item], list[str]]:
    """The images in folders that are named after classes, each of which has an index; and what was left out."""
    loose, problems = find_images(root, depth=1)
    problems += [f"'{root / name}' lies outside the {kind} folders; it was left out." for name in loose]
    items: list[Item] = []
    for folder in subfolders(root):
        names, troubles = find_images(root / folder)
        if folder in indices:
            items += [Item(root / folder / name, f"{folder}/{name}", indices[folder]) for name in names]
            problems += troubles
            if kind == "class" and not names and not troubles:
                problems.append(f"The class folder '{root / folder}' holds no images.")
        elif names:
            wrong = f"'{root / folder}' is named after none of the {len(indices)} {kind}s"
            problems.append(f"{wrong}; its images were left out.")
    return items, problems


def _load_pattern(pattern: Path, spec: str) -> Dataset:
    """The images that a pattern matches, below its last folder without a wildcard."""
    parts = pattern.parts
    fixed = next(i for i, part in enumerate(parts) if _WILD & set(part))
    root, wild = Path(*parts[:fixed]), parts[fixed:]
    if not os.path.isdir(root):
        raise InputError(f"The folder '{root}' of the pattern '{pattern}' is not there; check the path.")
    names, problems = find_images(root, depth=None if "**" in wild else len(wild))
    matching = [name for name in names if _matches(name.split("/"), wild)]
    if not matching:
        raise InputError(f"No image matches '{pattern}'; check the pattern, in which '**' stands for any folders.")
    return _dataset(root, matching, problems, spec)


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path matches a pattern, name by name; "**" stands for any number of folders."""
    reachable = {0}  # how many names of the path the pattern so far can have used up
    for wild in pattern:
        if wild == "**":
            reachable = set(range(min(reachable), len(parts) + 1))
        else:
            reachable = {i + 1 for i in reachable if i < len(parts) and fnmatchcase(parts[i], wild)}
        if not reachable:
            return False
    return len(parts) in reachable


def _dataset(root: Path, names: Sequence[str], problems: Sequence[str], spec: str) -> Dataset:
    if not names:
        hint = f" ({problems[0].rstrip('.')})" if problems else ""
        raise DataError(f"There is no image in '{root}'{hint}; give a folder with files such as photo.jpg.")
    return Dataset(spec, tuple(Item(root / name, name, None) for name in names), None, tuple(problems))
