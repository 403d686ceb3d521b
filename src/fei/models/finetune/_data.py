"""What a network is trained and tested on: which images, which classes, and which of them are held out."""

import os
from dataclasses import replace

from fei.common.words import first_few
from fei.data import Dataset, Item, load
from fei.data.files import folder_and_split
from fei.errors import DataError, InputError

FEWEST_TO_HOLD_OUT = 5
"""A fifth is held out only where each class has at least this many images."""

_MOST_CLASSES = 100_000


def load_sets(data: str, test: str | None, seed: int) -> tuple[Dataset, Dataset | None]:
    """Load the images to train on, and those to test on.

    Args:
        data: A data set with labels, as `fei.data.load` takes it. "cub:DIR" stands for its training split.
        test: The data set to test on. If not given, that is the test split of "cub:DIR"; of other sets it is a fifth of
            each class, held out, or nothing where a class has fewer than `FEWEST_TO_HOLD_OUT` images.
        seed: Which fifth.

    Returns:
        Both, with labels that count the classes of the first.

    Raises:
        InputError: If one of them names nothing that exists, has no labels or other classes, or if they have
            images in common.
        DataError: If one cannot be used, or the first has fewer than two classes.

    Examples:
        >>> from fei.models.finetune import load_sets
        >>> train, test = load_sets("imagefolder:classes", None, seed=0)
        >>> len(train), test  # too few of each class to hold some out
        (8, None)
    """
    train = load(data)
    if data.startswith("cub:") and folder_and_split(data.removeprefix("cub:"))[1] is None:
        train, test = load(f"{data}@train"), test or f"{data}@test"
    train = labelled(train)
    if test is None:
        return hold_out(train, seed)
    return train, _of_the_same_classes(labelled(load(test)), train)


def labelled(dataset: Dataset) -> Dataset:
    """The images that have a label; how many have none is added to the problems."""
    items = tuple(item for item in dataset if item.label is not None)
    if not items:
        raise InputError(f"The data set '{dataset.spec}' has no labels; give one with labels, such as imagefolder:DIR.")
    without = [item.id for item in dataset if item.label is None]
    problems = [f"{len(without)} images have no label and were left out: {first_few(without)}."] if without else []
    return replace(dataset, items=items, problems=(*dataset.problems, *problems))


def hold_out(dataset: Dataset, seed: int) -> tuple[Dataset, Dataset | None]:
    """Split off a fifth of each class, chosen by the seed; None where a class has fewer than `FEWEST_TO_HOLD_OUT`."""
    groups: dict[int | None, list[Item]] = {}
    for item in dataset:
        groups.setdefault(item.label, []).append(item)
    if min(map(len, groups.values()), default=0) < FEWEST_TO_HOLD_OUT:
        return dataset, None
    classes = [replace(dataset, items=tuple(group)) for group in groups.values()]
    held = {item.id for group in classes for item in group.sample(round(len(group) / 5), seed)}
    kept = replace(dataset, items=tuple(item for item in dataset if item.id not in held))
    return kept, replace(dataset, items=tuple(item for item in dataset if item.id in held))


def class_names(dataset: Dataset) -> list[str]:
    """The names of the classes a network for that data set has: all on its list, or the indices up to the highest.

    Images of fewer than two classes, or indices that are no count, are a DataError.
    """
    occurring = sorted({item.label for item in dataset if item.label is not None})
    names = list(dataset.classes or ())
    if len(occurring) < 2:
        which = f"of one class ('{names[occurring[0]] if names else occurring[0]}')" if occurring else "of no class"
        raise DataError(f"'{dataset.spec}' has images {which}; two classes or more are needed.")
    if not names and occurring[-1] >= _MOST_CLASSES:
        raise DataError(f"'{dataset.spec}' has a label {occurring[-1]}; give labels below {_MOST_CLASSES:,}.")
    return names or [str(index) for index in range(occurring[-1] + 1)]


def _of_the_same_classes(test: Dataset, train: Dataset) -> Dataset:
    """The test set with labels that count the classes of the training set, by their names."""
    names = class_names(train)
    if (test.classes is None) != (train.classes is None):
        named, indexed = (train, test) if test.classes is None else (test, train)
        raise InputError(
            f"'{named.spec}' has names of classes, '{indexed.spec}' has indices alone; give both in one way."
        )
    own = test.classes or tuple(str(index) for index in range(max(item.label or 0 for item in test) + 1))
    index = {name: number for number, name in enumerate(names)}
    unknown = sorted({own[item.label] for item in test if item.label is not None and own[item.label] not in index})
    if unknown:
        which = f"classes that '{train.spec}' has not ({first_few(unknown)})"
        raise InputError(f"'{test.spec}' has {which}; test on the same classes.")
    ours = {os.path.realpath(item.path) for item in train}
    common = [item.id for item in test if os.path.realpath(item.path) in ours]
    if common:
        share = f"{len(common)} of the {len(test)} images"
        raise InputError(f"The network is trained on {share} of '{test.spec}' ({first_few(common)}); test on others.")
    items = tuple(replace(item, label=None if item.label is None else index[own[item.label]]) for item in test)
    return replace(test, items=items, classes=train.classes)
