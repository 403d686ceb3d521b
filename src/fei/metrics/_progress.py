"""One bar over a job of several parts, each of which counts its own steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fei.progress import Progress


@contextmanager
def part(tick: Callable[[], None], units: int) -> Iterator[Progress]:
    """A callback on (done, total) for one part of a job, which comes to `units` ticks whatever the part counts.

    Args:
        tick: What the whole job's `fei.progress.reporter` gave.
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
