"""The desk: who is here, and everything a visitor can ask for, as plain functions that check what they are given."""

from __future__ import annotations

import itertools
import re
import secrets
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fei import methods as registry
from fei.app.decoding import decoded
from fei.app.limits import MOST_CLASSES, OFFERED, SEEDS, Limits, one_of, some_of, whole_number
from fei.app.photos import Decode, Offered, Photo, read_photo
from fei.app.runs import Lane, PageRun
from fei.errors import InputError
from fei.service import Request

_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass
class Visit:
    """One visitor.

    Attributes:
        folder: Where a folder of the visitor's own is made for the first photo, under a name of ours.
        seen: When something was heard last.
        client: The address that it comes from.
        photo: The photo, when there is one.
        run: The latest run.
        lock: Held while the photo or the run is exchanged, and never for long.
    """

    folder: Path
    seen: float
    client: str = ""
    photo: Photo | None = None
    run: PageRun | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def replace_photo(self, photo: Photo | None) -> None:
        """Take a photo, or none, in place of the one before, and of what was found on that one."""
        with self.lock:
            if self.run is not None:
                self.run.cancel()
            if self.photo is not None:
                shutil.rmtree(self.photo.file.parent, ignore_errors=True)
            self.photo, self.run = photo, None


class Visits:
    """All visitors who have given a photo.

    A visit lives while its page holds a stream open (the page does as long as it is open), and for a while after
    anything else was heard of it.

    Args:
        folder: Where their folders are made.
        most: How many there may be at a time.
        grace: Seconds for which a visit without a stream is kept.
        clock: Tells the time in seconds.
    """

    def __init__(self, folder: Path, most: int, grace: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._most, self._grace, self._clock = folder, most, grace, clock
        self._visits, self._streams, self._lock = dict[str, Visit](), Counter[str](), threading.RLock()

    def admit(self, key: str, client: str, most: int) -> None:
        """Begin the visit of a client, if it has not begun; `InputError` if the client has as many as it may."""
        with self._lock:
            if key not in self._visits:
                if sum(visit.client == client for visit in self._visits.values()) >= most:
                    raise InputError(f"{most} visitors of your address are here already; try again in a few minutes.")
                self.enter(key).client = client

    def enter(self, key: str) -> Visit:
        """The visit of that key, made if there is none; `InputError` if there are too many, or the key is none."""
        if not _KEY.fullmatch(key):
            raise InputError("The page does not say whose it is; load it again.")
        with self._lock:
            if key not in self._visits:
                self.sweep()
                if len(self._visits) >= self._most:
                    raise InputError(f"{self._most} visitors are here already; try again in a few minutes.")
                self._visits[key] = Visit(self._folder / secrets.token_hex(16), self._clock())
            self._visits[key].seen = self._clock()
            return self._visits[key]

    def find(self, key: str) -> Visit | None:
        """The visit of that key, if there is one."""
        with self._lock:
            return self.enter(key) if key in self._visits else None

    @contextmanager
    def listening(self, key: str) -> Iterator[None]:
        """Keep a visit while its page holds a stream open; who leaves needs no run any more."""
        with self._lock:
            self._streams[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._streams[key] -= 1
                visit = self.find(key)
                if not self._streams[key]:
                    del self._streams[key]
                    if visit is not None and visit.run is not None:
                        visit.run.cancel()

    def sweep(self) -> None:
        """End the visits of which nothing is heard any more."""
        with self._lock:
            last = self._clock() - self._grace
            for key in [key for key, one in self._visits.items() if one.seen < last and not self._streams[key]]:
                self._visits.pop(key).replace_photo(None)
            known = {one.folder for one in self._visits.values()}
            for made in self._folder.iterdir():  # of those, and what a run wrote while it was being removed
                if made not in known:
                    shutil.rmtree(made, ignore_errors=True)

    def close(self) -> None:
        """End all visits."""
        with self._lock:
            self._grace = -1.0
            self._streams.clear()
            self.sweep()


@dataclass
class Desk:
    """Where visitors hand in photos and orders.

    Attributes:
        networks: What they may choose from.
        examples: Photos that are here already: name, bytes of the file, and a small picture (JPEG).
        limits: What they may ask for.
        visits: Who they are.
        lane: Where their runs go.
        decode: What decodes their photos.
    """

    networks: Mapping[str, Offered]
    examples: Sequence[tuple[str, bytes, bytes]]
    limits: Limits
    visits: Visits
    lane: Lane
    decode: Decode = decoded
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def take_photo(self, key: str, content: bytes) -> None:
        """Take the bytes of an image file as the visitor's photo, in place of the one before.

        Raises:
            InputError: If there are too many visitors.
            DataError: If it cannot be read; the one before stays then.
        """
        visit = self.visits.enter(key)
        folder = visit.folder / secrets.token_hex(8)
        folder.mkdir(parents=True)
        try:
            visit.replace_photo(read_photo(content, folder, self.networks, self.limits.pixels, self.decode))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def take_example(self, key: str, number: Any) -> None:
        """Take one of the examples as the visitor's photo; `InputError` if there is no such one."""
        self.take_photo(key, self.examples[whole_number("example", number, len(self.examples))][1])

    def start(self, key: str, network: Any, targets: Any, methods: Any, preset: Any, seed: Any) -> PageRun:
        """Order a run.

        Args:
            key: Who asks.
            network: Name of a network.
            targets: Some of the network's classes, by index; ``None`` for what it sees first in the photo.
            methods: Names of methods.
            preset: One of `OFFERED`, for the methods that have presets.
            seed: Of whatever is random.

        Raises:
            InputError: If there is no photo, something was asked for that is not offered, or too many wait.
        """
        visit = self.visits.enter(key)
        with visit.lock:
            if visit.photo is None:
                raise InputError("There is no photo yet; drop one in, or choose an example.")
            name = one_of("network", network, self.networks)
            look = visit.photo.looks[name]
            if isinstance(look, str):
                raise InputError(look)
            classes = [str(index) for index in range(len(look.probabilities))]
            best = [str(look.guesses[0].index)]
            chosen = best if targets is None else some_of("class", targets, classes)
            if len(chosen) > MOST_CLASSES:
                raise InputError(f"{len(chosen)} classes are chosen; choose at most {MOST_CLASSES} at a time.")
            request = Request.of(
                name,  # and not where it is on this machine
                some_of("method", methods, registry.available()),
                {"preset": OFFERED[one_of("preset", preset, OFFERED)]},
                lenient=True,
                seed=whole_number("seed", seed, SEEDS),
                device=look.inputs.device.type,
            )
            requests = [request.model_copy(update={"target": one}) for one in chosen]
            run = PageRun(self.networks[name].classifier, requests, visit.photo, look, key, self.limits.seconds)
            self.lane.submit(run, visit.client, self.limits.quota(self.limits.queue + 1, visit.client))
            visit.run = run
            return run

    def cancel(self, key: str) -> None:
        """End the visitor's run, if there is one."""
        visit = self.visits.find(key)
        if visit is not None and visit.run is not None:
            visit.run.cancel()

    def told(self, key: str) -> dict[str, Any]:
        """What the visitor's page shows: photo and run. Of two answers, the one with the larger number is newer."""
        visit = self.visits.find(key)
        with nullcontext() if visit is None else visit.lock:
            photo, run = (None, None) if visit is None else (visit.photo, visit.run)
            return {
                "number": next(self._numbers),
                "photo": None if photo is None else photo.told(),
                "run": None if run is None else run.told(self.lane.ahead(run)),
            }

    def found(self, key: str, name: str) -> bytes | Path | None:
        """A visitor's file, if there is one: the small photo, the picture of a method by its number, or a result."""
        visit = self.visits.find(key)
        if visit is None or visit.photo is None:
            return None
        if name == "photo.jpg":
            return visit.photo.preview
        if visit.run is None:
            return None
        pictures = {f"{number}.jpg": card.picture for number, card in enumerate(visit.run.cards.values())}
        return pictures.get(name) or visit.run.results.get(name)
