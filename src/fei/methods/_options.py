"""The options of a method, read off its constructor and docstring, and how a text becomes the value of one."""

from __future__ import annotations

import inspect
import json
import math
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """One option of a method.

    Attributes:
        name: Its name.
        type: What it takes, as the signature says it.
        default: Its default; of FEI's, ``None`` stands for what the preset says.
        help: What it is, from the docstring.

    Examples:
        >>> (samples, *_) = fei.methods.describe("rise").options
        >>> samples.name, samples.default, samples.parse("500")
        ('samples', 4000, 500)
    """

    name: str
    type: str
    default: Any
    help: str

    def parse(self, text: str) -> Any:
        """The value a text stands for: JSON, numbers separated by commas, or the text itself.

        Whether it suits the method is the method's to say.
        """
        value = _parsed(text.strip())
        if isinstance(value, bool | int | float) and not re.search(
            r"bool|int|float|Any", re.sub(r"\[.*?\]", "", self.type)
        ):
            return [value] if re.search("Sequence|list", self.type) else text.strip()  # a layer may be called "4"
        return value


def options_of(factory: Callable[..., Any], *, without: frozenset[str] = frozenset()) -> tuple[Option, ...]:
    """The keyword options of a class or function, in the order of its signature."""
    told = _told(factory)
    return tuple(
        Option(name, "Any" if p.annotation is p.empty else str(p.annotation), p.default, told.get(name, ""))
        for name, p in inspect.signature(factory).parameters.items()
        if name not in without
    )


def _told(factory: Callable[..., Any]) -> dict[str, str]:
    """What the docstrings of a class and its bases, or of a function, say about each argument."""
    told: dict[str, str] = {}
    bases = inspect.getmro(factory) if inspect.isclass(factory) else ()
    for text in [base.__dict__.get("__doc__") for base in reversed(bases)] or [factory.__doc__]:
        _, _, section = inspect.cleandoc(text or "").partition("\nArgs:\n")
        section = re.split(r"\n(?=\S)", section, maxsplit=1)[0]
        for entry in re.split(r"\n(?=\S)", textwrap.dedent(section)):
            name, colon, words = entry.partition(":")
            if colon:
                told[name.strip()] = " ".join(words.split())
    return told


def _parsed(text: str) -> Any:
    if text.lower() in {"none", "null"}:
        return None
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or more digits or brackets than Python takes
        pass
    try:
        values = [_number(part) for part in text.split(",")]
    except ValueError:
        return text
    return values if len(values) > 1 else values[0]


def _number(text: str) -> float:
    number = float(text)  # also .5, which is no JSON
    return int(number) if text.strip().lstrip("+-").isdecimal() and math.isfinite(number) else number
