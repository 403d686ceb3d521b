"""What images a network was trained on, told in its specification: ``net.py:build?mean=imagenet&labels=names.txt``.

What stands after the question mark replaces what the network says of itself:

- ``mean``, ``std``: three numbers separated by commas, one number for all three, "imagenet", or "none" for no
  normalisation. One of the two as a word is enough.
- ``input_size``, ``resize``, ``interpolation``, ``squash``: as of `fei.models.Classifier`.
- ``labels``: a file with the names of the classes: a line for each, or a JSON list.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from fei.core.checks import check_choice
from fei.errors import DataError, InputError
from fei.models.classifier import IMAGENET_MEAN, IMAGENET_STD, Classifier
from fei.models.structure import count_outputs

_MOST_BYTES = 10_000_000  # of a file of labels
_SEPARATOR = "?"
_IMAGENET, _NONE = "imagenet", "none"


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """A specification without what is told of the images, and that.

    Raises:
        InputError: If it is not told as ``NAME=VALUE``, joined by ``&``, or there is no such name.
    """
    bare, mark, text = spec.partition(_SEPARATOR)
    try:
        told = parse_qsl(text, strict_parsing=True, max_num_fields=2 * len(_READERS)) if mark else []
    except ValueError as error:
        raise InputError(f"'{text}' after the model's '?' cannot be read; write NAME=VALUE&NAME=VALUE.") from error
    for name, _ in told:
        check_choice("word after the model's '?'", name, _READERS)
    return bare, dict(told)


def join_spec(spec: str, told: Mapping[str, str | int | None]) -> str:
    """A specification with more told of the images; what is ``None`` is left out, what is told later counts."""
    bare, known = split_spec(spec)
    known |= {name: str(value) for name, value in told.items() if value is not None}
    words = "&".join(f"{name}={quote(value, safe='/,:.')}" for name, value in known.items())
    return f"{bare}{_SEPARATOR}{words}" if words else bare


def tell(classifier: Classifier, told: Mapping[str, str]) -> None:
    """Have a classifier take images as it is told.

    Raises:
        InputError: If a value is none that the name takes, there is no such file of labels, or it has more or fewer
            than the network has classes.
        DataError: If the file of labels cannot be read.
    """
    given = {name: _READERS[name](name, text) for name, text in told.items()}
    if told.get("mean", told.get("std")) in (_IMAGENET, _NONE) and len({"mean", "std"} & set(told)) == 1:
        word = told.get("mean", told.get("std", ""))
        given |= {name: _colour(name, word) for name in ("mean", "std")}
    if "input_size" in given and "resize" not in given:
        given["resize"] = None  # that of the new size
    if (take := getattr(classifier.network, "take_labels", None)) is not None:
        if "labels" not in given:
            raise InputError("This network compares images with texts; give them with labels=FILE, a line for each.")
        take(given["labels"])
    classifier.describe(**classifier.description | given)
    classifier.told = classifier.told or not {"mean", "std"}.isdisjoint(given)
    if "labels" in given and (classes := count_outputs(classifier)) != len(given["labels"]):
        wrong = f"The file of labels '{told['labels']}' names {len(given['labels'])} classes"
        raise InputError(f"{wrong} and the network has {classes}; give a line for each class.")


def in_words(classifier: Classifier) -> str:
    """What a network is given of a photograph, in a few words."""
    side, resized = classifier.input_size, classifier.resize
    cut = f"the central {side} × {side} of " if side != resized or not classifier.squash else ""
    whole = f"{resized} × {resized}" if classifier.squash else f"{resized} pixels on its short side"
    colours = "RGB in [0, 1] as it is"
    if classifier.normalizes:
        used = classifier.mean, classifier.std
        mean, std = (", ".join(f"{value:.3g}" for value in values.flatten().tolist()) for values in used)
        colours = f"normalised by mean {mean} and std {std}"
    return f"{cut}the photograph resized to {whole} ({classifier.interpolation}), {colours}"


def _colour(name: str, text: str) -> list[float] | None:
    if text == _NONE:
        return None
    if text == _IMAGENET:
        return list({"mean": IMAGENET_MEAN, "std": IMAGENET_STD}[name])
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 3):
        raise InputError(f"`{name}` is '{text}'; give three numbers such as 0.5,0.5,0.5, imagenet, or none.")
    return numbers if len(numbers) == 3 else numbers * 3


def _whole(name: str, text: str) -> int:
    if not (text.isdecimal() and text.isascii() and len(text) < 6):
        raise InputError(f"`{name}` is '{text}'; give a number of pixels, such as 224.")
    return int(text)


def _switch(name: str, text: str) -> bool:
    check_choice(name, text, ("true", "false"))
    return text == "true"


def _labels(name: str, text: str) -> list[str]:
    file = Path(text)
    if not file.is_file():
        raise InputError(f"There is no file of labels '{file}'; check the path.")
    if file.stat().st_size > _MOST_BYTES:
        raise DataError(f"The file of labels '{file}' has over {_MOST_BYTES // 10**6} MB; give a line for each class.")
    try:
        content = file.read_text(encoding="utf-8-sig")
        names = json.loads(content) if file.suffix == ".json" else content.splitlines()
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"The file of labels '{file}' cannot be read; give text in UTF-8 or a JSON list.") from error
    names = [line.strip() for line in names] if isinstance(names, list) and all(map(_is_text, names)) else []
    while names and not names[-1]:
        names.pop()
    if not names:
        raise DataError(f"The file of labels '{file}' names no classes; give a line for each, or a JSON list of names.")
    return names


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_READERS: dict[str, Callable[[str, str], Any]] = {
    "mean": _colour,
    "std": _colour,
    "input_size": _whole,
    "resize": _whole,
    "interpolation": lambda _, text: text,
    "squash": _switch,
    "labels": _labels,
}
