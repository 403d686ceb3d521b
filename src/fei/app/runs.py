"""Runs: methods on a photo, one run at a time, with progress, a time limit, and an end whenever it is asked for."""

from __future__ import annotations

import inspect
import secrets
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from fei import methods
from fei.app._shim import Look, Request, collect
from fei.app.bundle import write_results
from fei.app.photos import Offered, jpeg
from fei.errors import FEIError, InputError
from fei.methods import Method
from fei.report.overlay import overlay, photo

WAITING, RUNNING, MEASURING, DONE, STOPPED = "waiting", "running", "measuring its faithfulness", "done", "stopped"
_FRAME_SECONDS = 0.3  # masks change slowly; more pictures would only cost time
_FOUND = 0.8  # of a method's work is done when its map is found; the rest is measuring


class Stopped(Exception):  # noqa: N818 (not an error: someone asked for it)
    """Raised inside a run that has to end."""


@dataclass(frozen=True)
class Order:
    """What a visitor asked for, checked: methods, with a preset where they have one, on what a network takes."""

    network: Offered
    look: Look
    target: int
    methods: tuple[str, ...]
    preset: str
    seed: int

    def request(self, method: str) -> Request:
        """What is asked for, as ``fei explain`` would be asked for one method of it."""
        has_preset = any(option.name == "preset" for option in methods.describe(method).options)
        options, device = {"preset": self.preset} if has_preset else {}, self.look.inputs.device.type
        return Request(self.network.spec, method, str(self.target), self.seed, device, None, None, options)


class Watched:
    """A method as it is, its options and settings included, but for a card that is told how it fares.

    Args:
        method: The method.
        card: Its `begin`, `step` (number, and masks (n, k, c, H, W)) and `end` (maps (N, 1, H, W)) are called.
    """

    def __init__(self, method: Method, card: Any) -> None:
        self._method, self._card = method, card
        explain = getattr(method, "explain", None)
        if explain is not None:
            shows = "on_step" in inspect.signature(explain).parameters
            self.explain = partial(self._run, partial(explain, on_step=card.step) if shows else explain)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """What the method returns."""
        return self._run(self._method, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        if name == "explain":  # set above for methods that have it
            raise AttributeError(name)
        return getattr(self._method, name)

    def _run(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._card.begin()
        found = call(*arguments, **options)
        self._card.end(found if isinstance(found, Tensor) else found.maps)
        return found


@dataclass
class Card:
    """How far one method of a run is: its state, its steps, and its latest picture (JPEG) with that picture's number."""

    run: PageRun
    state: str = WAITING
    done: int = 0
    total: int = 0
    began: float = 0.0
    frame: int = 0
    picture: bytes | None = None
    _framed: float = 0.0

    def begin(self) -> None:
        """The method begins."""
        self.run.check()
        self.state, self.began = RUNNING, time.monotonic()

    def step(self, step: int, alphas: Tensor) -> None:
        """It has done a step; now and then a picture of its masks (n, k, c, H, W) is kept."""
        self.run.check()
        if time.monotonic() - self._framed >= _FRAME_SECONDS:
            self._show(alphas[0].float().mean((0, 1)))

    def end(self, maps: Tensor) -> None:
        """It has found its maps (N, 1, H, W), which are measured now."""
        self.run.check()
        self._show(maps[0, 0])
        self.state = MEASURING

    def words(self) -> str:
        """How far it is, and for how long it will take."""
        if self.state != RUNNING or self.total < 2:
            return self.state
        seconds = (time.monotonic() - self.began) / max(self.done, 1) * (self.total - self.done)
        return f"step {self.done} of {self.total}" + (f", about {_span(seconds)} left" if self.done else "")

    def share(self) -> float:
        """How far it is, from 0 to 1."""
        found = _FOUND * self.done / max(self.total, 1)
        return {WAITING: 0.0, RUNNING: found, MEASURING: _FOUND, DONE: 1.0}[self.state]

    def _show(self, attribution: Tensor) -> None:
        picture = overlay(photo(self.run.order.look.inputs[0]), attribution.detach().cpu().numpy())
        self.picture, self._framed, self.frame = jpeg(Image.fromarray(picture)), time.monotonic(), self.frame + 1


@dataclass(eq=False)
class PageRun:
    """One run of several methods on one photo.

    Args:
        order: What to do.
        owner: Whose it is.
        folder: Where its results go, in a folder of their own.
        seconds: How long it may take.

    Attributes:
        token: Its name, which no other run has.
        state: "waiting", "running", "done" or "stopped".
        message: Why it stopped, or how long it took, for the visitor.
        cards: How far its methods are, by name.
        results: The files to download, when it is done.
    """

    order: Order
    owner: str
    folder: Path
    seconds: float
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    state: str = WAITING
    message: str = ""
    cards: dict[str, Card] = field(default_factory=dict)
    results: dict[str, Path] = field(default_factory=dict)
    _started: float = 0.0
    _reason: str = ""

    def __post_init__(self) -> None:
        """Start with nothing done."""
        self.cards = {name: Card(self) for name in self.order.methods}

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in (DONE, STOPPED)

    def cancel(self, reason: str = "The run was cancelled.") -> None:
        """Have it end at its next step; one that waits ends at once."""
        self._reason = self._reason or reason
        if self.state == WAITING:
            self.message, self.state = self._reason, STOPPED

    def check(self) -> None:
        """Raise if it has to end."""
        if not self._reason and time.monotonic() - self._started > self.seconds:
            self._reason = (
                f"The run took longer than {self.seconds:g} s and was stopped; choose fewer or quicker methods, or the "
                "preset fast."
            )
        if self._reason:
            raise Stopped(self._reason)

    def run(self) -> None:
        """Do the work; whatever happens, the run is over afterwards, and keeps results only if it is done."""
        if self.over:
            return
        self.state, self._started = RUNNING, time.monotonic()
        folder = self.folder / self.token
        try:
            folder.mkdir()
            self.results = self._work(folder)
            self._finish_cards()
            self.message, self.state = f"Done in {_span(time.monotonic() - self._started)}.", DONE
        except Exception as error:
            shutil.rmtree(folder, ignore_errors=True)
            # whatever our stopping it made of itself on its way up
            self.message, self.state = self._reason or sentence(error, "The run failed"), STOPPED

    def told(self, ahead: int) -> dict[str, Any]:
        """The run as the page shows it; `ahead` of it are so many, while it waits."""
        cards = self.cards.items()
        return {
            "token": self.token,
            "state": self.state,
            "words": f"Waiting: {ahead} run(s) come first." if self.state == WAITING else self._words(),
            "share": round(sum(card.share() for _, card in cards) / len(cards), 3),
            "cards": [{"method": name, "words": card.words(), "frame": card.frame} for name, card in cards],
        }

    def _words(self) -> str:
        if self.over:
            return self.message
        done = sum(card.state == DONE for card in self.cards.values())
        now = [(name, card) for name, card in self.cards.items() if card.state in (RUNNING, MEASURING)]
        doing = f"{now[0][0]}, {now[0][1].words()}" if now else "Starting"
        return f"{doing} ({done} of {len(self.cards)} methods done, {_span(time.monotonic() - self._started)})."

    def _work(self, folder: Path) -> dict[str, Path]:
        order, classifier = self.order, self.order.network.classifier
        watched = {
            name: Watched(methods.create(name, **order.request(name).options), card)
            for name, card in self.cards.items()
        }
        # Between two reports of a method, and while metrics are measured, the network itself is the clock.
        hook = classifier.register_forward_pre_hook(lambda *_: self.check())
        try:
            (shown,) = collect(
                classifier,
                [order.look],
                watched,
                target=order.target,
                seed=order.seed,
                progress=self._progress,
                tell=lambda _: self._finish_cards(),
            )
        finally:
            hook.remove()
        self.check()
        return write_results(folder, order, shown, self.check)

    def _progress(self, done: int, total: int) -> None:
        self.check()
        for card in self.cards.values():
            if card.state == RUNNING:
                card.done, card.total = done, total

    def _finish_cards(self) -> None:
        self.check()
        for card in self.cards.values():
            card.state = DONE if card.state == MEASURING else card.state


class Lane:
    """Runs one after the other, in the order in which they came, one for each visitor at a time.

    Methods hang hooks on the networks, and two at once would share the processor anyway.

    Args:
        length: How many may wait.
    """

    def __init__(self, length: int) -> None:
        self._length, self._runs = length, list[PageRun]()
        self._lock, self._thread = threading.Lock(), ThreadPoolExecutor(1, "fei-runs")

    def submit(self, run: PageRun) -> None:
        """Have a run go on when its turn comes.

        Raises:
            InputError: If too many wait already, or its owner has one that is not over.
        """
        with self._lock:
            self._runs = [other for other in self._runs if not other.over]
            if any(other.owner == run.owner for other in self._runs):
                raise InputError("Your last run is not over yet; wait for it, or cancel it.")
            waiting = len(self._runs) - 1
            if waiting >= self._length:
                raise InputError(
                    f"The server is busy and {waiting} more run(s) wait already; try again in a few minutes."
                )
            self._runs.append(run)
            self._thread.submit(run.run)

    def ahead(self, run: PageRun) -> int:
        """How many runs come before one that waits."""
        with self._lock:
            runs = [other for other in self._runs if not other.over]
            return runs.index(run) if run in runs else 0

    def close(self) -> None:
        """End everything, and wait for it."""
        with self._lock:
            for run in self._runs:
                if not run.over:
                    run.cancel("The server was stopped.")
        self._thread.shutdown()


def sentence(error: Exception, what: str) -> str:
    """An error as a visitor reads it; what is no fault of the visitor's is told on the server's terminal too."""
    if isinstance(error, FEIError):
        return str(error)
    traceback.print_exception(error, file=sys.stderr)
    return f"{what} ({type(error).__name__}); the server's terminal shows more."


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
