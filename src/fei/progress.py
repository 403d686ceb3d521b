"""Progress of long work: a bar with the time left, or the caller's own callback."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[int, int], None]


_doing: ContextVar[str] = ContextVar("doing", default="working")


@contextmanager
def doing(what: str) -> Iterator[None]:
    """While this lasts, bars say what is being done."""
    token = _doing.set(what)
    try:
        yield
    finally:
        _doing.reset(token)


def time_left(done: float, total: float, elapsed: float, since: float) -> float | None:
    """The seconds that work will still take, if it goes on as it went; ``None`` before anything is done.

    Args:
        done: How many steps are done.
        total: How many there are.
        elapsed: Seconds from the beginning to the last of them.
        since: Seconds from then until now, which count down what is left, so that it never stands still.
    """
    if done <= 0:
        return None
    return max(0.0, elapsed * (total - done) / done - since)


def span(seconds: float) -> str:
    """A time as it is told: "40 s", "3 min", "2 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def reporter(progress: bool | Progress, total: int) -> Iterator[Callable[[], None]]:
    """A function to call after each of `total` steps.

    Args:
        progress: ``False`` for silence, ``True`` for a bar on standard error, or a callable on (done, total).
        total: How many steps there will be.
    """
    done = 0

    def count() -> int:
        nonlocal done
        done += 1
        return done

    if not progress:
        yield lambda: None
    elif callable(progress):
        yield lambda: progress(count(), total)
    else:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TimeElapsedColumn
        from rich.progress import Progress as Bar
        from rich.text import Text

        began = last = time.monotonic()

        class Left(ProgressColumn):
            def render(self, task: Task) -> Text:
                left = time_left(task.completed, task.total or 0, last - began, time.monotonic() - last)
                return Text("" if left is None or task.finished else f"about {span(left)} left")

        columns = ("[progress.description]{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Bar(*columns, Left(), console=Console(stderr=True)) as bar:
            task = bar.add_task(escape(_doing.get()), total=total)

            def advance() -> None:
                nonlocal last
                last = time.monotonic()
                bar.update(task, completed=count())

            yield advance
            bar.update(task, completed=total)


@contextmanager
def part(tick: Callable[[], None], units: int) -> Iterator[Progress]:
    """A callback on (done, total) for one part of a job, which comes to `units` ticks whatever the part counts.

    Args:
        tick: What the whole job's `reporter` gave.
        units: How many ticks this part is worth; those it did not report are made up at its end.
    """
    ticked = 0

    def advance(to: int) -> None:
        nonlocal ticked
        while ticked < min(to, units):
            tick()
            ticked += 1

    yield lambda done, total: advance(units * done // max(total, 1))
    advance(units)
