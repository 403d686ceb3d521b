"""The progress of a run: a bar on a terminal, a line now and then elsewhere, JSON lines for machines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import typer

from fei.cli._common import note

if TYPE_CHECKING:
    from fei.bench.engine.runner import OnProgress, Pace

_JSON_SECONDS, _LINE_SECONDS = 1.0, 30.0


class Interrupted(Exception):  # noqa: N818
    """Ctrl-C, with a sentence on how to go on; typer would swallow what a KeyboardInterrupt says."""


@contextmanager
def shown_progress(as_json: bool) -> Iterator[OnProgress]:
    """A function to give to a run as `on_progress`."""
    if as_json:
        yield _paced(_JSON_SECONDS, _json_lines(sys.stdout))
    elif sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield _paced(
            _LINE_SECONDS, lambda done, bad, total, pace: note(f"{done} of {total} units, {_words(bad, pace)}")
        )


def print_line(document: Any, stream: TextIO | None = None) -> None:
    """Print a JSON document on a line of its own, on standard output if not told otherwise."""
    typer.echo(json.dumps(document, allow_nan=False), file=stream)


def in_words(seconds: float) -> str:
    """A time as people say it, in at most two parts."""
    left = round(seconds)
    words: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count or (unit == "s" and not words):
            words.append(f"{count} {unit}")
    return " ".join(words[:2])


def _paced(seconds: float, tell: OnProgress) -> OnProgress:
    """Tell no more often than every so many seconds; the end of short work is left to the summary."""
    last = time.monotonic()

    def show(done: int, failed: int, total: int, pace: Pace) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            tell(done, failed, total, pace)

    return show


def _words(failed: int, pace: Pace) -> str:
    failures = f"{failed} failed, " if failed else ""
    left = f", {in_words(pace.left)} left" if pace.left is not None else ""
    return f"{failures}{pace.rate:.3g} per second{left}"


def _json_lines(stream: TextIO) -> OnProgress:
    def tell(done: int, failed: int, total: int, pace: Pace) -> None:
        left = None if pace.left is None else round(pace.left, 1)
        line = {"done": done, "failed": failed, "total": total, "rate": round(pace.rate, 4), "seconds_left": left}
        print_line(line, stream)

    return tell


@contextmanager
def _bar() -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("looking at networks and images", total=None)

        def show(done: int, failed: int, total: int, pace: Pace) -> None:
            bar.update(task, completed=done + failed, total=total, description=_words(failed, pace))

        yield show
