"""What a data set's specification can say. A new kind of data set is one line in the table."""

import os
import re
from collections.abc import Callable
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
    """How a specification is written, and what it means.

    Examples:
        >>> fei.data.available()[0]
        SpecForm(form='path/to/image.jpg', description='one image')
    """

    form: str
    description: str


# Makes the data set of what follows the word and its colon, and of the whole specification. It raises an InputError if
# there is no such place or split, and a DataError if its content cannot be used or none of its images is there.
_Loader = Callable[[str, str], Dataset]

_PLAIN = (
    SpecForm("path/to/image.jpg", "one image"),
    SpecForm("path/to/folder", "all images below a folder"),
    SpecForm("photos/**/*.jpg", "the images that a pattern matches"),
)
_SOURCES: dict[str, tuple[_Loader, str, str]] = {
    "imagefolder": (load_imagefolder, "DIR", "a folder of images for each class"),
    "imagenet": (load_imagenet, "DIR", "ImageNet validation, in synset folders or flat with its lists"),
    "cub": (load_cub, "DIR[@train|@test]", "CUB-200-2011, with boxes"),
    "voc": (load_voc, "DIR[@SPLIT]", "PASCAL VOC, with boxes"),
    "csv": (load_csv, "FILE", "a table with path,label[,left,top,right,bottom]"),
}
_WORD = re.compile(r"([A-Za-z_]{2,}):(.*)", re.DOTALL)  # one letter would be a Windows drive


def available() -> list[SpecForm]:
    """How the data sets that `load` knows are written, each with a description.

    Examples:
        >>> [form for form, _ in fei.data.available()][-1]
        'csv:FILE'
    """
    return [*_PLAIN, *(SpecForm(f"{word}:{rest}", meaning) for word, (_, rest, meaning) in _SOURCES.items())]


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

    Examples:
        >>> [item.id for item in fei.data.load("photos")]
        ['a.png', 'b.png']
    """
    word, rest = check_spec(spec)
    return _SOURCES[word][0](rest, spec) if word else load_path(spec, spec)


def check_spec(spec: str) -> tuple[str, str]:
    """The word for the kind of data set, empty for a path, and what follows it; what that names is not looked at.

    Raises:
        InputError: If the specification has no such form.

    Examples:
        >>> fei.data.check_spec("imagenet:data"), fei.data.check_spec("photos")
        (('imagenet', 'data'), ('', 'photos'))
    """
    forms = ", ".join(form for form, _ in available())
    if not isinstance(spec, str) or not spec:
        raise InputError(f"The data set is given as {spec!r}; give one of: {forms}.")
    word, rest = match.groups() if (match := _WORD.fullmatch(spec)) else ("", "")
    if word in _SOURCES and not rest:
        raise InputError(f"The data set '{spec}' names no place; the form is {word}:{_SOURCES[word][1]}.")
    if word in _SOURCES or not word or os.path.exists(spec):
        return (word, rest) if word in _SOURCES else ("", spec)
    close = suggestion(word, _SOURCES, f"give a path or one of: {forms}.", most=1)
    for known, (_, place, _) in _SOURCES.items():
        close = close.replace(f"mean {known}?", f"mean {known}:{place}?")
    raise InputError(f"There is no kind of data set '{word}'; {close}")
