"""The desk: everything a visitor can ask for, as plain functions that check what they are given."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from fei import methods
from fei.app import limits as asked
from fei.app.jobs import Job, Lane, Order
from fei.app.limits import Limits
from fei.app.networks import Guess, Network
from fei.app.photos import Photo, jpeg, keep_photo, preview
from fei.app.sessions import Session, Sessions
from fei.errors import InputError

_THUMBNAIL = 160
_TICKET = re.compile("[0-9a-f]{32}")


@dataclass
class Desk:
    """Where visitors hand in photos and orders.

    Attributes:
        networks: What they may choose from.
        examples: Names and pixels of the photos that are here already.
        limits: What they may ask for.
        sessions: Who they are.
        lane: Where their jobs go.
        uploads: Where uploads are until they are taken over.
    """

    networks: Mapping[str, Network]
    examples: Sequence[tuple[str, Image.Image]]
    limits: Limits
    sessions: Sessions
    lane: Lane
    uploads: Path
    # One photo is decoded at a time: that bounds the memory.
    _decoding: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Make what everybody sees once."""
        self._thumbnails = [jpeg(image, _THUMBNAIL) for _, image in self.examples]

    def new_upload(self) -> tuple[str, Path]:
        """A ticket for an upload, which cannot be guessed, and the file to write it to."""
        ticket = secrets.token_hex(16)
        return ticket, self.uploads / ticket

    def take_photo(self, visitor: str | None, ticket: Any) -> Photo:
        """Take over what was uploaded as the visitor's photo, in place of the one before.

        Raises:
            InputError: If there is no such upload, or there are too many visitors.
            DataError: If it cannot be read, or is too large.
        """
        session = self.sessions.enter(visitor)
        file = self.uploads / ticket if isinstance(ticket, str) and _TICKET.fullmatch(ticket) else None
        if file is None or not file.is_file():
            raise InputError("No photo has arrived; choose it again.")
        with session.lock, self._decoding:
            content = file.read_bytes()
            file.unlink()
            session.photo = photo = keep_photo(content, session.new_photo_folder(), self.limits)
        return photo

    def take_example(self, visitor: str | None, number: Any) -> Photo:
        """Take one of the examples as the visitor's photo.

        Raises:
            InputError: If there is no such example, or there are too many visitors.
        """
        _, image = self.examples[asked.whole_number("example", number, len(self.examples))]
        session = self.sessions.enter(visitor)
        with session.lock:
            file = session.new_photo_folder() / "photo.png"
            image.save(file)
            session.photo = photo = Photo(file, preview(image))
        return photo

    def offer(self, visitor: str | None, network: Any) -> list[Guess]:
        """What the network sees in the visitor's photo: the classes to choose from.

        Raises:
            InputError: If there is no such network, or no photo.
            ModelError: If the network fails on it.
        """
        name = asked.one_of("network", network, self.networks)
        with self._photo_of(visitor) as (session, photo), self._decoding:
            guesses = self.networks[name].guesses(photo.read())
            session.offered[name] = guesses
        return guesses

    def start(self, visitor: str | None, network: Any, target: Any, chosen: Any, preset: Any, seed: Any) -> Job:
        """Order a run.

        Args:
            visitor: Who asks.
            network: Name of a network.
            target: One of the classes that were offered for it, by index; ``None`` for the first.
            chosen: Names of methods.
            preset: Name of a preset.
            seed: Of whatever is random.

        Raises:
            InputError: If there is no photo, something was asked for that is not offered, or too many wait.
        """
        with self._photo_of(visitor) as (session, photo):
            name = asked.one_of("network", network, self.networks)
            offered = {str(guess.index): guess for guess in session.offered.get(name, [])}
            if not offered:
                raise InputError("The network has not seen the photo yet; choose the photo again.")
            index = asked.one_of("class", next(iter(offered)) if target is None else target, offered)
            order = Order(
                self.networks[name],
                photo,
                offered[index].index,
                asked.some_of("method", chosen, methods.available()),
                asked.preset(preset),
                asked.whole_number("seed", seed, asked.SEEDS),
            )
            if session.job is not None and not session.job.over:
                raise InputError("Your last run is not over yet; wait for it, or cancel it.")
            job = Job(order, session.key, photo.file.parent, self.limits.seconds)
            self.lane.submit(job)
            session.job = job
            return job

    def cancel(self, visitor: str | None) -> bool:
        """End the visitor's run, if there is one; says whether there was."""
        session = self.sessions.find(visitor)
        if session is None or session.job is None or session.job.over:
            return False
        session.job.cancel()
        return True

    def thumbnail(self, number: int) -> bytes | None:
        """A small picture (JPEG) of an example; ``None`` if there is no such one."""
        return self._thumbnails[number] if 0 <= number < len(self._thumbnails) else None

    def result(self, token: str, name: str) -> bytes | Path | None:
        """A file of a job: the picture of a method, by its number, or a result; ``None`` if there is no such one."""
        job = self.sessions.job(token)
        if job is None:
            return None
        number = name.removesuffix(".jpg")
        if number.isdecimal() and int(number) < len(job.order.methods):
            return job.frames.get(job.order.methods[int(number)])
        return job.results.get(name)

    @contextmanager
    def _photo_of(self, visitor: str | None) -> Iterator[tuple[Session, Photo]]:
        """A visitor's session and photo, which stay what they are as long as the block runs."""
        session = self.sessions.find(visitor)
        with nullcontext() if session is None else session.lock:
            if session is None or session.photo is None:
                raise InputError("There is no photo yet; drop one in, or choose an example.")
            yield session, session.photo
