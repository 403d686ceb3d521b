"""A visitor's photo, bytes that anyone may have made, and the networks that look at it."""

from __future__ import annotations

import copy
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import torch
from PIL import Image

from fei.app.limits import sentence
from fei.data.images import read_image
from fei.errors import DataError, InputError
from fei.models import Classifier
from fei.service import Look, load_network, look

_ENDINGS = {"JPEG": ".jpg", "TIFF": ".tif"}
_PREVIEW = 640


@dataclass(frozen=True)
class Offered:
    """A network that visitors may choose.

    Attributes:
        spec: What `fei.models.load` takes.
        classifier: The network itself; only the run that goes on uses it.
        twin: A copy, which looks at one visitor's photo during the run of another: methods hang hooks on modules.
    """

    spec: str
    classifier: Classifier
    twin: Classifier


def load_networks(specs: Sequence[str], device: torch.device) -> dict[str, Offered]:
    """Load networks, each under a name that shows no folder of this machine.

    Raises:
        InputError: If there is no such network.
        ModelError: If one cannot be loaded or does not work.
    """
    networks: dict[str, Offered] = {}
    for spec in dict.fromkeys(specs):
        name = short = ":".join(PurePath(part).name for part in spec.split(":"))
        number = itertools.count(2)
        while name in networks:
            name = f"{short} ({next(number)})"
        classifier = load_network(spec, device)
        networks[name] = Offered(spec, classifier, copy.deepcopy(classifier))
    return networks


@dataclass(frozen=True)
class Photo:
    """A photo that could be read. Of its pixels only what each network takes is kept: there may be many photos.

    Attributes:
        file: Where its bytes are, unchanged, under a name of ours, in a folder of its own.
        preview: A small version of it (JPEG).
        looks: By network, what it takes and what it sees; or a sentence, where it fails on the photo.
    """

    file: Path
    preview: bytes
    looks: Mapping[str, Look | str]

    def told(self) -> dict[str, Any]:
        """The photo as the page shows it: with the classes to choose from, or why there are none, by network."""
        looks = self.looks.items()
        classes = {name: one if isinstance(one, str) else [vars(guess) for guess in one.guesses] for name, one in looks}
        return {"token": self.file.parent.name, "classes": classes}


def read_photo(content: bytes, folder: Path, networks: Mapping[str, Offered], most_pixels: int) -> Photo:
    """Decode a photo, once, and show it to all networks.

    Args:
        content: The bytes of an image file.
        folder: Where to keep them, as "photo" with the ending of what they are.
        networks: Who looks at it.
        most_pixels: How large it may be.

    Raises:
        DataError: If it is too large or no image.
    """
    file = folder / "photo"
    file.write_bytes(content)
    try:
        image = read_image(file, max_pixels=most_pixels)
        with Image.open(file) as header:
            kind = header.format or "PNG"
    except (InputError, DataError) as error:  # a visitor knows no such file
        raise DataError(str(error).replace(f"'{file}'", "The photo")) from error
    file = file.rename(file.with_suffix(_ENDINGS.get(kind, f".{kind.lower()}")))
    looks: dict[str, Look | str] = {}
    for name, network in networks.items():
        try:
            looks[name] = replace(look(network.twin, image, name=file.name), source=str(file))
        except Exception as error:  # the network's own code may raise anything
            looks[name] = sentence(error, "This network fails on the photo")
    return Photo(file, encoded(image, most=_PREVIEW), looks)


def encoded(image: Image.Image, kind: str = "JPEG", most: int | None = None) -> bytes:
    """An image as the bytes of a file of a kind; made smaller where a longest side is given."""
    if most is not None:
        image = image.copy()
        image.thumbnail((most, most))
    file = io.BytesIO()
    image.save(file, kind, quality=85)
    return file.getvalue()
