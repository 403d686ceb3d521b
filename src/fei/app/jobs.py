"""Jobs: methods on a photo, one job at a time, with progress, a time limit, and an end whenever it is asked for."""

from __future__ import annotations

import secrets
import shutil
import sys
import threading
import time
import traceback
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path

from PIL import Image
from torch import Tensor

from fei import methods
from fei.app._watched import Watched
from fei.app.bundle import write_results
from fei.app.networks import Network
from fei.app.photos import Photo, jpeg
from fei.errors import FEIError, InputError
from fei.methods import Method
from fei.report.overlay import Pixels, overlay, photo
from fei.service import collect

WAITING, RUNNING, DONE, STOPPED = "waiting", "running", "done", "stopped"
_FRAME_SECONDS = 0.3  # masks change slowly; more pictures would only cost time
CANCELLED = "The run was cancelled."


class Stopped(Exception):  # noqa: N818 (not an error: someone asked for it)
    """Raised inside a job that has to end."""


@dataclass(frozen=True)
class Order:
    """What a visitor asked for, checked.

    Attributes:
        network: The network.
        photo: The photo.
        target: The class to explain.
        methods: Names of methods.
        preset: For methods that have presets.
        seed: Of whatever is random.
    """

    network: Network
    photo: Photo
    target: int
    methods: tuple[str, ...]
    preset: str
    seed: int

    def make_methods(self) -> dict[str, Method]:
        """The methods, by name, with the preset where they have one."""
        made = {}
        for name in self.methods:
            has_preset = any(option.name == "preset" for option in methods.describe(name).options)
            made[name] = methods.create(name, **({"preset": self.preset} if has_preset else {}))
        return made


@dataclass(frozen=True)
class Card:
    """How far one method is.

    Attributes:
        method: Its name.
        state: "waiting", "running", "measuring" or "done".
        done: Steps done.
        total: Steps in all; 0 while that is not known.
        frame: Number of its latest picture; 0 while there is none.
    """

    method: str
    state: str = "waiting"
    done: int = 0
    total: int = 0
    frame: int = 0


@dataclass(eq=False)
class Job:
    """One run of several methods on one photo.

    Args:
        order: What to do.
        owner: Whose it is.
        folder: Where its results go; the job makes a folder of its own in it.
        seconds: How long it may run.

    Attributes:
        token: A name that cannot be guessed, for the addresses of its pictures and results.
        state: "waiting", "running", "done" or "stopped".
        message: Why it stopped, for the visitor.
        cards: How far its methods are.
        frames: The latest picture (JPEG) of each method that has one.
        results: The files to download, when it is done.
        started: When it began to run.
        lasted: Seconds that it ran, when it is done.
    """

    order: Order
    owner: str
    folder: Path
    seconds: float
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    state: str = WAITING
    message: str = ""
    cards: dict[str, Card] = field(default_factory=dict)
    frames: dict[str, bytes] = field(default_factory=dict)
    results: dict[str, Path] = field(default_factory=dict)
    started: float = 0.0
    lasted: float = 0.0

    def __post_init__(self) -> None:
        """Start with nothing done."""
        self.cards = {name: Card(name) for name in self.order.methods}
        self._reason: str | None = None
        self._framed = 0.0
        self._pixels: Pixels | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in (DONE, STOPPED)

    def cancel(self, reason: str = CANCELLED) -> None:
        """Have it end at its next step; one that waits ends at once."""
        self._reason = self._reason or reason
        if self.state == WAITING:
            self.state, self.message = STOPPED, self._reason

    def run(self) -> None:
        """Do the work; whatever happens, the job is over afterwards, and keeps results only if it is done."""
        if self.over:
            return
        self.state, self.started = RUNNING, time.monotonic()
        folder = self.folder / self.token
        try:
            folder.mkdir()
            self._work(folder)
            self.cards = {name: replace(card, state="done") for name, card in self.cards.items()}
            self.lasted, self.state = time.monotonic() - self.started, DONE
        except Exception as error:
            shutil.rmtree(folder, ignore_errors=True)
            self.message = self._explain(error)
            self.state = STOPPED

    def _explain(self, error: Exception) -> str:
        if self._reason is not None:  # whatever our stopping it made of itself on its way up
            return self._reason
        if isinstance(error, FEIError):
            return str(error)
        traceback.print_exception(error, file=sys.stderr)
        return f"The run failed ({type(error).__name__}); the server's terminal shows more."

    def _work(self, folder: Path) -> None:
        order, classifier = self.order, self.order.network.classifier
        self._pixels = photo(order.network.inputs(order.photo.read())[0])
        made = order.make_methods()
        watched = {name: Watched(method, _Listener(self, name)) for name, method in made.items()}
        # Between two reports of a method, and while metrics are measured, the network itself is the clock.
        hook = classifier.register_forward_pre_hook(lambda *_: self._check())
        try:
            (shown,) = collect(
                classifier,
                [order.photo.file],
                watched,
                target=order.target,
                seed=order.seed,
                progress=self._progress,
                tell=lambda _: self._check(),
            )
        finally:
            hook.remove()
        self._check()
        self.results = write_results(folder, order, shown, made, self._check)

    def _check(self) -> None:
        """Raise if the job has to end."""
        if self._reason is None and time.monotonic() - self.started > self.seconds:
            self._reason = (
                f"The run took longer than {self.seconds:g} s and was stopped; choose fewer or quicker methods, or the "
                "preset fast."
            )
        if self._reason is not None:
            raise Stopped(self._reason)

    def _progress(self, done: int, total: int) -> None:
        self._check()
        for name, card in self.cards.items():
            if card.state == "running":
                self.cards[name] = replace(card, done=done, total=total)

    def _move(self, name: str, state: str) -> None:
        self._check()
        self.cards[name] = replace(self.cards[name], state=state)

    def _show(self, name: str, attribution: Tensor, *, last: bool) -> None:
        """Keep a picture of a map (H, W); of one that is not the last, only now and then."""
        now = time.monotonic()
        if self._pixels is None or not (last or now - self._framed >= _FRAME_SECONDS):
            return
        self._framed = now
        picture = overlay(self._pixels, attribution.detach().cpu().numpy())
        self.frames[name] = jpeg(Image.fromarray(picture))
        self.cards[name] = replace(self.cards[name], frame=self.cards[name].frame + 1)


class _Listener:
    """What one method tells its job."""

    def __init__(self, job: Job, name: str) -> None:
        self._job, self._name = job, name

    def begin(self) -> None:
        self._job._move(self._name, "running")

    def step(self, step: int, alphas: Tensor) -> None:
        self._job._check()
        self._job._show(self._name, alphas[0].float().mean((0, 1)), last=False)

    def end(self, maps: Tensor) -> None:
        self._job._show(self._name, maps[0, 0], last=True)
        self._job._move(self._name, "measuring")
        for name, card in self._job.cards.items():
            if card.state == "measuring" and name != self._name:
                self._job._move(name, "done")


class Lane:
    """Jobs one after the other, in the order in which they came, one for each visitor at a time.

    Methods hang hooks on the networks, and two at once would share the processor anyway.

    Args:
        length: How many may wait.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="fei-jobs", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Have a job run when its turn comes.

        Raises:
            InputError: If too many wait already, or its owner has one that is not over.
        """
        with self._changed:
            self._waiting = deque(waiting for waiting in self._waiting if not waiting.over)
            if any(other.owner == job.owner for other in (self._running, *self._waiting) if other is not None):
                raise InputError("Your last run is not over yet; wait for it, or cancel it.")
            if len(self._waiting) >= self._length and (self._running is not None or self._waiting):
                raise InputError(
                    f"The server is busy and {len(self._waiting)} more run(s) wait already; try again in a few minutes."
                )
            self._waiting.append(job)
            self._changed.notify_all()

    def ahead(self, job: Job) -> int:
        """How many jobs come before one that waits."""
        with self._changed:
            waiting = [other for other in self._waiting if not other.over]
            running = int(self._running is not None)
            return running + (waiting.index(job) if job in waiting else 0)

    def close(self) -> None:
        """End everything, and wait for it."""
        with self._changed:
            self._closed = True
            for job in (self._running, *self._waiting):
                if job is not None:
                    job.cancel("The server was stopped.")
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            job.run()

    def _next(self) -> Job | None:
        with self._changed:
            self._running = None
            self._changed.wait_for(lambda: self._closed or self._waiting)
            self._running = self._waiting.popleft() if self._waiting and not self._closed else None
            return self._running
