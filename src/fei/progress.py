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
