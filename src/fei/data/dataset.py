"""A data set: images with stable names, and what is known of each."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar, overload

from PIL import Image

from fei.data.images import read_image
from fei.errors import DataError, InputError

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels of the image; the first pixel covers 0 to 1."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Item:
    """An image of a data set, not yet read.

    Attributes:
        path: Where the file is.
        id: Its name in the set: the path from the folder of the images, with slashes.
        label: The index of its class, if known.
        boxes: Where the object is, in pixels of the upright image. The annotations of ImageNet, CUB-200-2011 and PASCAL
            VOC know nothing of the EXIF orientation: of the few photographs that have one, the boxes fit the image as
            stored.

    Examples:
        >>> first = fei.data.load("imagefolder:classes")[0]
        >>> first.id, first.label, first.boxes
        ('bright/0.png', 0, ())
    """

    path: Path
    id: str
    label: int | None
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True, repr=False)
class Dataset(Sequence[Item]):
    """The images that a specification means, as a sequence of items, always in the order of their ids.

    Attributes:
        spec: What `load` was asked for.
        items: The images, sorted by id.
        classes: The names of the classes that labels count, or None where no names are known. For ImageNet these are
            the synset ids, in the order of the usual networks' outputs.
        problems: What was left out while loading, one sentence each.

    Raises:
        InputError: If two items have the same id.

    Examples:
        >>> data = fei.data.load("imagefolder:classes")
        >>> data
        Dataset('imagefolder:classes', 8 images, 2 classes, 0 problems)
        >>> len(data.sample(3, seed=1))
        3
    """

    spec: str
    items: tuple[Item, ...]
    classes: tuple[str, ...] | None
    problems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.items, key=lambda item: item.id))
        for item, after in pairwise(ordered):
            if item.id == after.id:
                raise InputError(f"Two items have the id '{item.id}'; give each image an id of its own.")
        object.__setattr__(self, "items", ordered)

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> "Dataset": ...
    def __getitem__(self, index: int | slice) -> "Item | Dataset":
        return replace(self, items=self.items[index]) if isinstance(index, slice) else self.items[index]

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __repr__(self) -> str:
        classes = "no class names" if self.classes is None else f"{len(self.classes)} classes"
        return f"Dataset({self.spec!r}, {len(self)} images, {classes}, {len(self.problems)} problems)"

    def sample(self, count: int, seed: int = 0) -> "Dataset":
        """Choose images at random, the same ones on every machine.

        An image's place in the draw is a hash of the seed and its id alone. So neither the order of the files nor other
        images change it, and a larger sample contains the smaller one of the same seed.

        Args:
            count: How many; all images if there are fewer.
            seed: Another seed draws other images.

        Returns:
            The data set with these images only.

        Raises:
            InputError: If the count is no whole number above zero, or the seed no whole number.
        """
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InputError(f"`count` is {count!r}; give how many images to choose, 1 or more.")
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise InputError(f"`seed` is {seed!r}; give a whole number.")

        def place(item: Item) -> bytes:  # a file's name need not be text; surrogateescape gives back its bytes
            return hashlib.sha256(f"{seed}\0{item.id}".encode("utf-8", "surrogateescape")).digest()

        return replace(self, items=tuple(sorted(self.items, key=place)[:count]))

    def readable(
        self, preprocess: Callable[[Image.Image], _T], on_problem: Callable[[Item, DataError], None]
    ) -> Iterator[tuple[Item, _T]]:
        """Read the images one by one, and pass over those that cannot be read.

        Args:
            preprocess: What makes an input of an upright RGB image, such as a classifier's `preprocess`.
            on_problem: Called with each image that is damaged, cut short, too large or gone by now, with the reason.

        Yields:
            Each item that can be read, with what `preprocess` made of it.
        """
        for item in self.items:
            try:
                try:
                    image = read_image(item.path)
                except InputError as error:  # gone or locked: a fault of the data here, as no caller named the file
                    raise DataError(str(error)) from error
                prepared = preprocess(image)
            except DataError as error:
                on_problem(item, error)
                continue
            yield item, prepared
