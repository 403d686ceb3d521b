"""Progress of long work: a bar with the time left, or the caller's own callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]


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
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = ("[progress.description]{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Bar(*columns, TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
            task = bar.add_task("working", total=total)
            yield lambda: bar.update(task, completed=count())
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
