"""What a data set's specification can say. A new kind of data set is one line in the table."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from fei.common.words import suggestion
from fei.data.dataset import Dataset
from fei.data.sets._cub import load_cub
from fei.data.sets._folders import load_imagefolder, load_path
from fei.data.sets._imagenet import load_imagenet
from fei.data.sets._table import load_csv
from fei.data.sets._voc import load_voc
from fei.errors import InputError


class SpecForm(NamedTuple):
    """How a specification is written, and what it means."""

    form: str
    description: str


@dataclass(frozen=True)
class _Source:
    """A kind of data set: the word before the colon, how the rest is written, what it is, and who loads it."""

    form: str
    description: str
    load: Callable[[str, str], Dataset]


_PLAIN = (
    SpecForm("path/to/image.jpg", "one image"),
    SpecForm("path/to/folder", "all images below a folder"),
    SpecForm("photos/**/*.jpg", "the images that a pattern matches"),
)
_SOURCES = {
    "imagefolder": _Source("imagefolder:DIR", "a folder of images for each class", load_imagefolder),
    "imagenet": _Source("imagenet:DIR", "ImageNet validation, in synset folders or flat with its lists", load_imagenet),
    "cub": _Source("cub:DIR[@train|@test]", "CUB-200-2011, with boxes", load_cub),
    "voc": _Source("voc:DIR[@SPLIT]", "PASCAL VOC, with boxes", load_voc),
    "csv": _Source("csv:FILE", "a table with path,label[,left,top,right,bottom]", load_csv),
}
_WORD = re.compile(r"([A-Za-z_]{2,}):(.*)", re.DOTALL)  # one letter would be a Windows drive


def available() -> list[SpecForm]:
    """How the data sets that `load` knows are written, each with a description."""
    return [*_PLAIN, *(SpecForm(source.form, source.description) for source in _SOURCES.values())]


def load(spec: str) -> Dataset:
    """Find the images of a data set and what is known of each; the images themselves are not read.

    Args:
        spec: The path of an image or a folder, a pattern, or one of the forms that `available` lists, such as
            "imagenet:DIR". A path may begin with "~".

    Returns:
        The images, sorted by id. What had to be left out is in `problems`.

    Raises:
        InputError: If the specification names nothing that exists.
        DataError: If the data set is there and cannot be used, or none of its images can be found.
    """
    source, rest = check_spec(spec)
    return load_path(spec, spec) if source is None else source.load(rest, spec)


def check_spec(spec: str) -> tuple[_Source | None, str]:
    """Look at the form of a specification alone, not at what it names.

    Returns:
        The kind of data set and what follows its word; None for a path.

    Raises:
        InputError: If it has no such form.
    """
    forms = ", ".join(form for form, _ in available())
    if not isinstance(spec, str) or not spec:
        raise InputError(f"The data set is given as {spec!r}; give one of: {forms}.")
    word, rest = match.groups() if (match := _WORD.fullmatch(spec)) else ("", "")
    source = _SOURCES.get(word)
    if source is not None and not rest:
        raise InputError(f"The data set '{spec}' names no place; the form is {source.form}.")
    if source is None and word and not os.path.exists(spec):
        close = suggestion(word, _SOURCES, f"give a path or one of: {forms}.", most=1)
        for name, each in _SOURCES.items():
            close = close.replace(f"mean {name}?", f"mean {each.form}?")
        raise InputError(f"There is no kind of data set '{word}'; {close}")
    return source, rest
