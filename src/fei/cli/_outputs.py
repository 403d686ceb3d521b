"""Where results go: a folder that can be written to, names that do not collide, and files that appear whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from fei.errors import DataError, InputError

if TYPE_CHECKING:
    from fei.report.explorer import Shown

PICTURE, MAP, EXPLANATION, RECORD = ".overlay.png", ".map.npy", ".explanation.safetensors", ".json"
PAGE = "explorer.html"
_ENDINGS = {"picture": PICTURE, "map": MAP, "explanation": EXPLANATION, "record": RECORD}


def prepare_folder(folder: Path) -> None:
    """Make a folder if it is not there, and make sure that files can be written to it.

    Raises:
        InputError: If they cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = "it is not a folder" if folder.exists() and not folder.is_dir() else error.strerror
        raise InputError(
            f"Results cannot be written to '{folder}' ({reason}); choose another folder with --out."
        ) from error


def result_names(images: Sequence[Path], folder: Path) -> list[str]:
    """What the results of each image are called in a folder: its name without the ending, numbered where it repeats.

    A name that would make a result replace one of the images is passed over as well.
    """
    sources = {_canonical(image) for image in images}
    names: list[str] = []
    taken: set[str] = set()
    for image in images:
        stem = image.stem
        number, name = 1, stem
        while name.casefold() in taken or any(
            _canonical(folder / (name + end)) in sources for end in _ENDINGS.values()
        ):
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.casefold())
        names.append(name)
    return names


def write_page(folder: Path, shown: Sequence[Shown]) -> str:
    """Write the explorer into a folder, and say where it is.

    Raises:
        DataError: If the disk refuses.
    """
    from fei.report.explorer import write_explorer

    return str(write_explorer(folder / PAGE, shown))


def save_image(image: Image.Image, file: Path) -> None:
    """Write an image, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".fei-") as temporary:
        made = Path(temporary) / file.name
        image.save(made)
        os.replace(made, file)


def result_files(folder: Path, name: str) -> dict[str, str]:
    """The results of that name that are in a folder, by what they are."""
    files = {kind: folder / (name + end) for kind, end in _ENDINGS.items()}
    return {kind: str(file) for kind, file in files.items() if file.exists()}


@contextmanager
def replacing(folder: Path, name: str) -> Iterator[Path]:
    """A temporary folder whose files, named after `name`, replace the results of that name together at the end.

    The record comes last: where it is there, the other files belong to it. A result that was not made this time does
    not stay behind from an earlier run.

    Raises:
        DataError: If the disk refuses.
    """
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fei-") as temporary:
            yield Path(temporary)
            for end in _ENDINGS.values():
                made, kept = Path(temporary) / (name + end), folder / (name + end)
                if made.exists():
                    os.replace(made, kept)
                else:
                    kept.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"The results of '{name}' cannot be written to '{folder}' ({error.strerror or error}); free some space or "
            "choose another folder with --out."
        ) from error


def _canonical(path: Path) -> str:
    """A path for comparison; file systems may take upper and lower case for the same."""
    return os.path.abspath(path).casefold()
