"""Worker processes: each has a pipe, computes what comes through it, and is replaced if it dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from fei.bench._context import WorkerContext, attempt
from fei.bench.units import Outcome, Unit
from fei.errors import InputError

_AHEAD = 2  # units a worker has: one it computes, and the next one, so that it never waits
_STARTS = 3  # workers that may die in a row before they have started
_GRACE = 5.0  # seconds that a worker has to end by itself


class Pool:
    """Some worker processes and the units they have.

    Args:
        workers: How many.
        threads: Torch's threads in each.
        context: What all units have in common.
    """

    def __init__(self, workers: int, threads: int, context: WorkerContext) -> None:
        self._count, self._threads, self._context = workers, threads, context
        self._members: list[_Member] = []
        self._again: deque[Unit] = deque()  # units of workers that died
        self._deaths: Counter[Unit] = Counter()
        self._deaths_loading: Counter[int] = Counter()
        self._broken: dict[int, str] = {}  # pairs whose network kills workers
        self._starts = 0
        self._exhausted = False

    def run(self, units: Iterable[Unit]) -> Iterator[Outcome]:
        """Compute units.

        Args:
            units: The units, taken as there is room.

        Yields:
            What came of each, in the order in which they are ready.
        """
        source = iter(units)
        try:
            while True:
                yield from self._hand_out(source)
                if self._exhausted and not self._again and not any(member.units for member in self._members):
                    return
                yield from self._collect()
        except KeyboardInterrupt:
            yield from self._leftovers()
            raise
        finally:
            self._end()

    def _hand_out(self, source: Iterator[Unit]) -> Iterator[Outcome]:
        """Give the workers that run their share, and start others while there is something for them to do."""
        for depth in range(1, _AHEAD + 1):
            for member in self._members:
                if member.started and len(member.units) < depth:
                    unit = yield from self._next(source)
                    if unit is None:
                        return
                    if not member.take(unit):
                        self._again.appendleft(unit)
        ahead: list[Unit] = []
        while len(self._members) < self._count:
            unit = yield from self._next(source)
            if unit is None:
                break
            ahead.append(unit)
            self._members.append(_Member(self._threads, self._context))
        self._again.extendleft(reversed(ahead))

    def _next(self, source: Iterator[Unit]) -> Generator[Outcome, None, Unit | None]:
        """The next unit; those of a broken pair come to nothing on the way to it."""
        while True:
            unit = self._again.popleft() if self._again else next(source, None)
            if unit is None:
                self._exhausted = True
            if unit is None or unit.pair not in self._broken:
                return unit
            yield self._context.failure(unit, self._broken[unit.pair])

    def _collect(self) -> Iterator[Outcome]:
        """Wait for workers to say something, or to die."""
        by_handle: dict[Any, _Member] = {}
        for member in self._members:
            by_handle |= {member.pipe: member, member.process.sentinel: member}
        for member in {id(m): m for m in (by_handle[handle] for handle in wait(list(by_handle)))}.values():
            yield from member.outcomes()
            if member.dead:
                yield from self._replace(member)
            elif member.started:
                self._starts = 0

    def _replace(self, member: _Member) -> Iterator[Outcome]:
        """Take a dead worker's units back. The first is the one it died of: results come in order."""
        self._members.remove(member)
        reason = member.end()
        self._again.extendleft(reversed(member.units))
        if not member.started:
            self._starts += 1
            if self._starts >= _STARTS:
                raise InputError(
                    f"The worker processes end before they start ({reason}); in a script of your own, start the run "
                    "under 'if __name__ == \"__main__\":', or use workers=0."
                )
            return
        if not member.units:
            return
        unit = self._again[0]
        if unit.pair not in member.loaded:
            self._deaths_loading[unit.pair] += 1
            if self._deaths_loading[unit.pair] > self._context.retries:
                model = self._context.networks[unit.pair].model
                self._broken[unit.pair] = (
                    f"A worker process ended while it loaded the network '{model}' ({reason}); see that there is "
                    "enough memory, or use fewer workers."
                )
            return
        self._deaths[unit] += 1
        if self._deaths[unit] > self._context.retries:
            self._again.popleft()
            yield self._context.failure(
                unit,
                f"The worker process ended while it computed this ({reason}); see that there is enough memory, or use "
                "fewer workers.",
                self._deaths[unit],
            )

    def _leftovers(self) -> Iterator[Outcome]:
        """What has been computed and not been collected."""
        for member in self._members:
            yield from member.outcomes()

    def _end(self) -> None:
        for member in self._members:
            member.dismiss()
        for member in self._members:
            member.end()


class _Member:
    """A worker process as the driver sees it.

    Attributes:
        process: The process.
        pipe: To it and from it.
        units: What it has to do, in order.
        started: Whether it has said that it runs.
        loaded: The pairs whose network it has loaded, or found not to load.
        dead: Whether its pipe has ended.
    """

    def __init__(self, threads: int, context: WorkerContext) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_serve, args=(theirs, threads, context), daemon=True)
        with _interrupts_ignored():  # a child that is still starting is not to be interrupted by Ctrl-C either
            self.process.start()
        theirs.close()
        self.units: deque[Unit] = deque()
        self.started = self.dead = False
        self.loaded: set[int] = set()

    def take(self, unit: Unit) -> bool:
        """Give it a unit; False if it is no longer there to take it."""
        try:
            self.pipe.send(unit)
        except OSError:
            return False
        self.units.append(unit)
        return True

    def outcomes(self) -> Iterator[Outcome]:
        """What it has sent so far."""
        try:
            while self.pipe.poll():
                said = self.pipe.recv()
                if isinstance(said, Outcome):
                    self.units.popleft()
                    yield said
                elif said is None:
                    self.started = True
                else:
                    self.loaded.add(said)
        except (EOFError, OSError):
            self.dead = True

    def dismiss(self) -> None:
        """Let it go: at once if it is at work or not yet there, else by closing the pipe it listens to."""
        if self.units or not self.started:
            self.process.terminate()
        self.pipe.close()

    def end(self) -> str:
        """Wait for its end, and say how it came."""
        self.pipe.close()
        self.process.join(_GRACE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode or 0
        self.process.close()
        if code >= 0:
            return f"exit code {code}"
        with suppress(ValueError):
            return f"signal {-code}, {signal.Signals(-code).name}"
        return f"signal {-code}"


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(pipe: Connection[Any, Any], threads: int, context: WorkerContext) -> None:
    """A worker process: says None when it runs, a pair's index when its network is loaded, and outcomes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's affair
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.stdout = sys.stderr  # what a user's own network prints is not the driver's result
    torch.set_num_threads(threads)
    from fei.bench.worker import Worker

    worker = (context.make or Worker)(context)
    loaded: set[int] = set()
    with suppress(EOFError, OSError):  # the driver is gone, or has let us go
        pipe.send(None)
        while True:
            unit = pipe.recv()
            if unit.pair not in loaded:
                worker.prepare(unit.pair)
                loaded.add(unit.pair)
                pipe.send(unit.pair)
            pipe.send(attempt(worker, unit, context.retries))


def _end_with_parent() -> None:
    """A driver that was killed must not leave workers behind that compete with those of the next one."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
