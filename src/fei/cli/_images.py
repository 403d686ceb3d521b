"""Images as a command takes them: files, folders, patterns and data sets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fei.cli._common import note

ImagesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="IMAGE", help="Image files, folders, patterns, or data sets such as imagenet:DIR.", show_default=False
    ),
]
SampleOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Take N of each folder's or data set's images at random.", show_default=False
    ),
]
_SPEC = re.compile(r"[A-Za-z_]{2,}:")  # one letter would be a Windows drive


def find_images(words: Sequence[str], sample: int | None, seed: int) -> list[Path]:
    """The image files that were named, in order, each once.

    A word that is no folder, pattern or data set is taken as a file, whether there is one or not: who reads it tells.

    Raises:
        InputError: If a data set is not there.
        DataError: If it cannot be used, or is empty.
    """
    from fei import data

    found: dict[Path, None] = {}
    for word in words:
        several = not Path(word).is_file() and (Path(word).is_dir() or "*" in word or _SPEC.match(word) is not None)
        if not several:
            found[Path(word)] = None
            continue
        dataset = data.load(word)
        for problem in dataset.problems:
            note(f"warning: {problem}")
        found |= dict.fromkeys(item.path for item in (dataset if sample is None else dataset.sample(sample, seed)))
    return list(found)
