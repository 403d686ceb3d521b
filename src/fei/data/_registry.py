"""What a data set's specification can say. A new kind of data set is one line in the table."""

import difflib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from fei.data._cub import load_cub
from fei.data._folders import load_imagefolder, load_path
from fei.data._imagenet import load_imagenet
from fei.data._table import load_csv
from fei.data._voc import load_voc
from fei.data.dataset import Dataset
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
    forms = ", ".join(form for form, _ in available())
    if not isinstance(spec, str) or not spec:
        raise InputError(f"The data set is given as {spec!r}; give one of: {forms}.")
    word, rest = match.groups() if (match := _WORD.fullmatch(spec)) else ("", "")
    if source := _SOURCES.get(word):
        if not rest:
            raise InputError(f"The data set '{spec}' names no place; the form is {source.form}.")
        return source.load(rest, spec)
    if word and not os.path.exists(spec):
        close = difflib.get_close_matches(word, _SOURCES, n=1)
        hint = f"did you mean {_SOURCES[close[0]].form}?" if close else f"give one of: {forms}."
        raise InputError(f"There is no kind of data set '{word}'; {hint}")
    return load_path(spec, spec)
