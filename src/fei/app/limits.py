"""What visitors of the page may ask for, checked once, where they ask."""

from __future__ import annotations

import ipaddress
import math
import sys
import traceback
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from fei.common.words import printable
from fei.data.images import MAX_FILE_BYTES, MAX_PIXELS
from fei.errors import FEIError, InputError

# The presets that visitors choose from: each method's own settings, or the paper's.
OFFERED: dict[str, str | None] = {"default": None, "paper": "paper"}
MOST_CLASSES = 5
SEEDS = 2**32
"""Seeds are below this: a browser's numbers are exact up to 2^53, and nobody types more."""


@dataclass(frozen=True)
class Limits:
    """What the server bears.

    Attributes:
        upload_bytes: Size of a photo's file.
        pixels: Width × height of a photo.
        seconds: Time that one run may take.
        queue: Runs that wait while one goes on.
        visits: Visitors with a photo at a time.
        uploads: Uploads at a time.
        connections: Open connections; more are turned away.
        share: What one client, known by its address, may have of visits, uploads, connections and the queue, as a part
            of all. This machine itself may have three quarters: it may be a proxy that many come through.

    Raises:
        InputError: If one of them makes no sense.
    """

    upload_bytes: int = 20_000_000
    pixels: int = 40_000_000
    seconds: float = 600
    queue: int = 8
    visits: int = 64
    uploads: int = 4
    connections: int = 256
    share: float = 0.25

    def __post_init__(self) -> None:
        """Refuse limits that the image reader does not keep, or that let nobody in."""
        if not 0 < self.upload_bytes <= MAX_FILE_BYTES:
            megabytes, most = self.upload_bytes / 1e6, MAX_FILE_BYTES / 1e6
            raise InputError(f"The option --max-upload-mb is {megabytes:g}; give a number above 0, at most {most:g}.")
        if not 0 < self.pixels <= MAX_PIXELS:
            raise InputError(f"The option --max-pixels is {self.pixels}; give a number from 1 to {MAX_PIXELS}.")
        if not 0 < self.seconds < float("inf"):
            raise InputError(f"The option --max-seconds is {self.seconds:g}; give a number of seconds above 0.")
        if self.queue < 0:
            raise InputError(f"The option --queue is {self.queue}; give a whole number, and not a negative one.")

    def quota(self, most: int, client: str) -> int:
        """How many of `most` one client may have; at least one."""
        return math.ceil(most * (0.75 if not client or is_loopback(client) else self.share))

    @property
    def too_large(self) -> str:
        """What a visitor with too large a file is told."""
        return f"The photo has more than {self.upload_bytes / 1e6:g} MB; save it smaller."


def is_address(name: str) -> bool:
    """Whether a host is given by its address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether an address, or the name of it, is this machine's own, which nobody else reaches."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def sentence(error: Exception, what: str) -> str:
    """An error as a visitor reads it; what is no fault of the visitor's is told on the server's terminal too."""
    if isinstance(error, FEIError):
        return str(error)
    print(printable("".join(traceback.format_exception(error))), file=sys.stderr)
    return f"{what} ({type(error).__name__}); the server's terminal shows more."


def one_of(what: str, value: Any, known: Collection[str]) -> str:
    """A name that a visitor chose; `InputError` if it was not there to choose, whatever it is."""
    if not isinstance(value, str) or value not in known:
        raise InputError(f"There is no such {what}; choose one of {', '.join(known)}.")
    return value


def some_of(what: str, values: Any, known: Collection[str]) -> tuple[str, ...]:
    """Names that a visitor chose, each once, in the order in which they are known; `InputError` if there is none."""
    if not isinstance(values, list | tuple) or not values:
        raise InputError(f"No {what} is chosen; choose at least one.")
    chosen = {one_of(what, value, known) for value in values[: len(known) + 1]}
    return tuple(name for name in known if name in chosen)


def whole_number(what: str, value: Any, below: int) -> int:
    """A whole number from 0, as a browser sends it; `InputError` if it is none."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if number is None or not 0 <= number < below or number != int(number):
        raise InputError(f"The {what} is not one that can be chosen; give a whole number from 0 to {below - 1}.")
    return int(number)
