"""Visitors: what each has on the server, which goes when they go."""

from __future__ import annotations

import re
import secrets
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fei.app.jobs import Job
from fei.app.networks import Guess
from fei.app.photos import Photo
from fei.errors import InputError

_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
GRACE = 20.0
"""Seconds that a visitor of whom nothing is heard is waited for."""


@dataclass
class Session:
    """One visitor.

    Attributes:
        key: What the visitor's browser calls itself.
        folder: A folder of the visitor's own, under a name of ours.
        photo: The photo, when there is one.
        offered: The classes that were offered for that photo, by network.
        job: The latest job.
        seen: When something was heard last.
        lock: Held while the photo or the job is exchanged.
    """

    key: str
    folder: Path
    seen: float
    photo: Photo | None = None
    offered: dict[str, list[Guess]] = field(default_factory=dict)
    job: Job | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def new_photo_folder(self) -> Path:
        """An empty folder for a photo that takes the place of the one before, and of what was found on it."""
        self.forget()
        folder = self.folder / secrets.token_hex(8)
        folder.mkdir()
        return folder

    def forget(self) -> None:
        """Leave nothing of the photo and of what was found on it."""
        with self.lock:
            self._forget()

    def _forget(self) -> None:
        if self.job is not None:
            self.job.cancel()
        self.photo, self.offered, self.job = None, {}, None
        for made in self.folder.iterdir():
            shutil.rmtree(made, ignore_errors=True)


class Sessions:
    """All visitors who have given a photo.

    A session lives while its browser holds a stream open (the page does as long as it is open), and for a while after
    anything else was heard of it.

    Args:
        folder: Where their folders are made.
        most: How many there may be at a time.
        grace: Seconds for which a session without a stream is kept.
        clock: Tells the time in seconds.
    """

    def __init__(
        self, folder: Path, most: int, grace: float = GRACE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._most, self._grace, self._clock = folder, most, grace, clock
        self._sessions: dict[str, Session] = {}
        self._streams: Counter[str] = Counter()
        self._lock = threading.RLock()

    def enter(self, key: str | None) -> Session:
        """The session of a visitor, made if there is none.

        Raises:
            InputError: If there are too many, or the key is none.
        """
        if key is None or not _KEY.fullmatch(key):
            raise InputError("The browser sent no session; load the page again.")
        with self._lock:
            if key not in self._sessions:
                self.sweep()
                if len(self._sessions) >= self._most:
                    raise InputError(f"{self._most} visitors are here already; try again in a few minutes.")
                folder = self._folder / secrets.token_hex(16)
                folder.mkdir()
                self._sessions[key] = Session(key, folder, self._clock())
            session = self._sessions[key]
            session.seen = self._clock()
            return session

    def find(self, key: str | None) -> Session | None:
        """The session of a visitor, if there is one."""
        with self._lock:
            session = self._sessions.get(key or "")
            if session is not None:
                session.seen = self._clock()
            return session

    def job(self, token: str) -> Job | None:
        """The job of a token, while its session lasts."""
        with self._lock:
            jobs = [session.job for session in self._sessions.values() if session.job is not None]
        return next((job for job in jobs if secrets.compare_digest(job.token.encode(), token.encode())), None)

    @contextmanager
    def listening(self, key: str) -> Iterator[None]:
        """Keep a session while its browser holds a stream open; who leaves needs no run any more."""
        with self._lock:
            self._streams[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._streams[key] -= 1
                if not self._streams[key]:
                    del self._streams[key]
                session = self._sessions.get(key)
                if session is not None:
                    session.seen = self._clock()
                    if session.job is not None and key not in self._streams:
                        session.job.cancel()

    def sweep(self) -> None:
        """End the sessions of which nothing is heard any more."""
        with self._lock:
            last = self._clock() - self._grace
            gone = [key for key, one in self._sessions.items() if one.seen < last and not self._streams[key]]
            for key in gone:
                self._end(key)
            known = {one.folder for one in self._sessions.values()}
            for made in self._folder.iterdir():  # a job may have written while its session's folder was removed
                if made not in known:
                    shutil.rmtree(made, ignore_errors=True)

    def close(self) -> None:
        """End all sessions."""
        with self._lock:
            for key in list(self._sessions):
                self._end(key)

    def __len__(self) -> int:
        return len(self._sessions)

    def _end(self, key: str) -> None:
        session = self._sessions.pop(key)
        session.forget()
        shutil.rmtree(session.folder, ignore_errors=True)
