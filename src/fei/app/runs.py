"""Runs: methods on a photo, one run at a time, with progress, a time limit, and an end whenever it is asked for."""

from __future__ import annotations

import inspect
import secrets
import shutil
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from fei import methods
from fei.app.limits import sentence
from fei.app.photos import Photo, encoded
from fei.core.explanation import Explanation
from fei.errors import InputError
from fei.methods.fei import FEIMethod
from fei.models import Classifier
from fei.report.drawing import QUIET, overlay, photo
from fei.report.explorer import Panel, Shown, explorer_html
from fei.service import Inquiry, Look, Request, explanation_files
from fei.service.outputs import class_parts

WAITING, RUNNING, MEASURING, DONE, STOPPED = "waiting", "running", "measuring its faithfulness", "done", "stopped"
EXPLORER, ARCHIVE = "explorer.html", "fei-results.zip"
_FRAME_SECONDS = 0.3  # masks change slowly; more pictures would only cost time
_BEYOND = 2  # times the steps of a preview, from where on masks that form are nearer to the map than the preview is
_FOUND = 0.8  # of a method's work is done when its map is found; the rest is measuring


class Stopped(Exception):  # noqa: N818 (not an error: someone asked for it)
    """Raised inside a run that has to end."""


@dataclass
class Card:
    """How far one method of a run is: its state, its steps, and its latest picture (JPEG) and the number of it.

    The first picture may be a preview, which stays until the run has more to show.
    """

    state: str = WAITING
    done: int = 0
    total: int = 0
    began: float = 0.0
    frame: int = 0
    picture: bytes | None = None
    framed: float = 0.0
    preview: bool = False

    def show(self, image: Tensor, attribution: Tensor, *, silent: bool = False, preview: bool = False) -> None:
        """Keep a picture of a map (H, W) over the image (3, H, W); a faint one where nothing was found."""
        picture = overlay(photo(image), attribution.detach().cpu().numpy(), **(QUIET if silent else {}))
        self.picture, self.framed = encoded(Image.fromarray(picture)), time.monotonic()
        self.frame, self.preview = self.frame + 1, preview

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


@dataclass(eq=False)
class PageRun:
    """One run: what was asked for, checked, on what a network sees in a photo, for its owner, in bounded time.

    Attributes:
        requests: One for each class that is explained; they differ in nothing else.
        token: Its name, which no other run has, and that of a folder for its results beside the photo.
        state: "waiting", "running", "done" or "stopped".
        message: Why it stopped, or how long it took, for the visitor.
        cards: How far its methods are, by name.
        results: The files to download, when it is done.
    """

    classifier: Classifier
    requests: Sequence[Request]
    photo: Photo
    seen: Look
    owner: str
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
        self.cards = {name: Card() for name in self.requests[0].methods}

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
            took = f"The run took longer than {self.seconds:g} s and was stopped"
            self._reason = f"{took}; choose fewer classes, fewer or quicker methods, or the default preset."
        if self._reason:
            raise Stopped(self._reason)

    def run(self) -> None:
        """Do the work; whatever happens, the run is over afterwards, and keeps results only if it is done."""
        if self.over:
            return
        self.state, self._started = RUNNING, time.monotonic()
        folder = self.photo.file.parent / self.token
        try:
            folder.mkdir()
            self.results = self._work(folder)
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
            "cards": [
                {"method": name, "words": card.words(), "frame": card.frame, "preview": card.preview}
                for name, card in cards
            ],
        }

    def _words(self) -> str:
        if self.over:
            return self.message
        done = sum(card.state == DONE for card in self.cards.values())
        now = [(name, card) for name, card in self.cards.items() if card.state in (RUNNING, MEASURING)]
        doing = f"{now[0][0]}, {now[0][1].words()}" if now else "Starting"
        return f"{doing} ({done} of {len(self.cards)} methods done, {_span(time.monotonic() - self._started)})."

    def _work(self, folder: Path) -> dict[str, Path]:
        first = self.requests[0]
        made = {name: methods.create(name, **options) for name, options in first.methods.items()}
        inquiries = [Inquiry(self.classifier, made, one.seed, target=int(one.target or 0)) for one in self.requests]
        # Between two reports of a method, and while metrics are measured, the network itself is the clock.
        hook = self.classifier.register_forward_pre_hook(lambda *_: self.check())
        try:
            panels = [self._panels(inquiries, name) for name in made]
        finally:
            hook.remove()
        self.check()
        seen = replace(self.seen, source=self.photo.file.name)  # nobody learns of our folders
        shown = [one.shown(seen, found) for one, found in zip(inquiries, zip(*panels, strict=True), strict=True)]
        return self._write(folder, inquiries, shown)

    def _panels(self, inquiries: Sequence[Inquiry], name: str) -> list[Panel]:
        """What one method finds for each class, with its card kept up to date."""
        card, image = self.cards[name], self.seen.inputs[0]
        how: Any = inquiries[0].methods[name]
        preview = how.preview if isinstance(how, FEIMethod) else None
        targets, first = [one.target for one in inquiries], None

        def progress(done: int, total: int) -> None:
            self.check()
            card.done, card.total = done, total

        def step(number: int, alphas: Tensor) -> None:
            self.check()
            shows_more = first is None or number >= _BEYOND * first.config["settings"]["steps"]
            if shows_more and time.monotonic() - card.framed >= _FRAME_SECONDS:
                card.show(image, _map_so_far(alphas, first))

        self.check()
        card.state = RUNNING
        if preview is not None:
            first, _ = replace(inquiries[0], methods={name: preview}).ask(name, self.seen, targets[:1])
            card.show(image, first.maps[0, 0], preview=True)
        card.began = time.monotonic()
        show_masks(how, step)
        found = replace(inquiries[0], progress=progress).find_classes(name, self.seen, targets)
        card.show(image, found[0].map, silent=found[0].silent)
        card.state = MEASURING
        measured = [one.measure(self.seen, panel) for one, panel in zip(inquiries, found, strict=True)]
        card.state = DONE
        return measured

    def _write(self, folder: Path, inquiries: Sequence[Inquiry], shown: Sequence[Shown]) -> dict[str, Path]:
        """The explorer; and a zip of it, of the photo, and of what ``fei explain`` writes for each method and class."""
        files = {name: folder / name for name in (EXPLORER, ARCHIVE)}
        parts = class_parts([(one.target, one.label) for one in shown])
        files[EXPLORER].write_text(explorer_html(shown), encoding="utf-8")
        with zipfile.ZipFile(files[ARCHIVE], "w") as archive:
            _add(archive, self.photo.file.name, self.photo.file.read_bytes())
            _add(archive, EXPLORER, files[EXPLORER].read_bytes())
            for request, inquiry, one, part in zip(self.requests, inquiries, shown, parts, strict=True):
                for panel in one.panels:
                    self.check()
                    asked = request.model_copy(update={"methods": {panel.method: request.methods[panel.method]}})
                    _, made = explanation_files(inquiry, asked, self.seen, panel, image_path=self.photo.file.name)
                    for ending, content in made.items():
                        _add(archive, panel.method + part + ending, content)
        self.check()
        return files


def _add(archive: zipfile.ZipFile, name: str, content: bytes | str) -> None:
    """Add a file to a zip, which tells nothing of this machine's clock and time zone."""
    member = zipfile.ZipInfo(name)  # of 1980, the first year that a zip knows
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, content)


def _map_so_far(alphas: Tensor, first: Explanation | None) -> Tensor:
    """The map (H, W) of the masks (n, k, c, H, W) of a step; what counts beside masks is known from a preview."""
    masks = alphas[0].float().mean((0, 1))
    if first is None:
        return masks
    beside = first.config["settings"].get("prior", 0.0) if "focus" in first.config else 0.0
    return first.maps[0, 0] + (masks - first.alphas[0].float().mean((0, 1))) / (1 + beside)


def show_masks(method: Any, on_step: Callable[[int, Tensor], None]) -> None:
    """Have a method tell the number of each step and its masks (n, k, c, H, W), if it is one that does."""
    explain = getattr(method, "explain", None)
    if explain is not None and "on_step" in inspect.signature(explain).parameters:
        method.explain = partial(explain, on_step=on_step)


class Lane:
    """Runs one after the other, in the order in which they came, one for each visitor at a time.

    Methods hang hooks on the networks, and two at once would share the processor anyway; `length` of them may wait.
    """

    def __init__(self, length: int) -> None:
        self._length, self._runs, self._clients = length, list[PageRun](), dict[PageRun, str]()
        self._lock, self._thread = threading.Lock(), ThreadPoolExecutor(1, "fei-runs")

    def submit(self, run: PageRun, client: str = "", most: int | None = None) -> None:
        """Have a run go on when its turn comes, of a client that may have so many.

        Raises:
            InputError: If too many wait, of all or of the client, or its owner's last is not over.
        """
        with self._lock:
            self._runs = [other for other in self._runs if not other.over]
            self._clients = {other: self._clients[other] for other in self._runs}
            if any(other.owner == run.owner for other in self._runs):
                raise InputError("Your last run is not over yet; wait for it, or cancel it.")
            waiting = len(self._runs) - 1
            if waiting >= self._length:
                busy = f"The server is busy and {waiting} more run(s) wait already"
                raise InputError(f"{busy}; try again in a few minutes.")
            if most is not None and sum(owner == client for owner in self._clients.values()) >= most:
                raise InputError(f"{most} run(s) of your address wait already; try again in a few minutes.")
            self._runs.append(run)
            self._clients[run] = client
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


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
