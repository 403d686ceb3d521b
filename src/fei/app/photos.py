"""A visitor's photo, bytes that anyone may have made, and the networks that look at it."""

from __future__ import annotations

import copy
import io
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import torch
from PIL import Image

from fei.app.decoding import decoded
from fei.app.limits import sentence
from fei.bench.plan.keys import attends
from fei.models import Classifier
from fei.models.preprocessing import split_spec
from fei.service import Look, load_network, look

_ENDINGS = {"JPEG": ".jpg", "TIFF": ".tif"}
_PREVIEW = 640
Decode = Callable[[Path, int], tuple[Image.Image, str]]
"""What decodes the file of a photo of at most so many pixels: the image, and the format of the file."""


@dataclass(frozen=True)
class Offered:
    """A network that visitors may choose.

    Attributes:
        spec: What `fei.models.load` takes.
        classifier: The network itself, which calls itself by the name that visitors see; only the run that goes on uses
            it.
        twin: A copy, which looks at one visitor's photo during the run of another: methods hang hooks on modules.
        attends: Whether it has attention, for the methods that need some.
        lock: Held while the copy looks at a photo.
    """

    spec: str
    classifier: Classifier
    twin: Classifier
    attends: bool
    lock: threading.Lock = field(default_factory=threading.Lock, compare=False)


def load_networks(specs: Sequence[str], device: torch.device) -> dict[str, Offered]:
    """Load networks, each under a name that shows no folder of this machine.

    Raises:
        InputError: If there is no such network.
        ModelError: If one cannot be loaded or does not work.
    """
    networks: dict[str, Offered] = {}
    for spec in dict.fromkeys(specs):
        name = short = ":".join(PurePath(part).name for part in split_spec(spec)[0].split(":"))
        number = itertools.count(2)
        while name in networks:
            name = f"{short} ({next(number)})"
        classifier = load_network(spec, device)
        classifier.spec = name
        networks[name] = Offered(spec, classifier, copy.deepcopy(classifier), attends(classifier))
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


def read_photo(
    content: bytes, folder: Path, networks: Mapping[str, Offered], most_pixels: int, decode: Decode = decoded
) -> Photo:
    """Decode a photo, once, and show it to all networks.

    Args:
        content: The bytes of an image file.
        folder: Where to keep them, as "photo" with the ending of what they are.
        networks: Who looks at it.
        most_pixels: How large it may be.
        decode: What decodes it, see `fei.app.decoding`.

    Raises:
        DataError: If it is too large or no image.
    """
    file = folder / "photo"
    file.write_bytes(content)
    image, kind = decode(file, most_pixels)
    file = file.rename(file.with_suffix(_ENDINGS.get(kind, f".{kind.lower()}")))
    looks: dict[str, Look | str] = {}
    for name, network in networks.items():
        try:
            with network.lock:
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
