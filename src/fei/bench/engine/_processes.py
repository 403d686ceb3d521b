"""Worker processes on this machine: each has a pipe and computes what comes through it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from fei.bench.context import WorkerContext, attempt
from fei.bench.engine._pool import Ending, Member, Said
from fei.bench.units import Unit

_GRACE = 5.0  # seconds that a worker has to end by itself


class Processes:
    """A crew of processes.

    Args:
        threads: Torch's threads in each.
        context: What all units have in common.
    """

    advice = "in a script of your own, start the run under 'if __name__ == \"__main__\":', or use workers=0"

    def __init__(self, threads: int, context: WorkerContext) -> None:
        self._threads, self._context = threads, context

    def recruit(self) -> _Process:
        """A new process."""
        return _Process(self._threads, self._context)

    def listen(self, members: Sequence[Member], seconds: float | None) -> Iterable[Member]:
        """Those that said something, or died; see `fei.bench.engine._pool.Crew`."""
        by_handle: dict[Any, Member] = {}
        for member in members:
            assert isinstance(member, _Process), "a crew listens to its own"  # noqa: S101
            by_handle |= {member.pipe: member, member.process.sentinel: member}
        return {id(m): m for m in (by_handle[handle] for handle in wait(list(by_handle), seconds))}.values()


class _Process(Member):
    """A worker process.

    Attributes:
        process: The process.
        pipe: To it and from it.
    """

    def __init__(self, threads: int, context: WorkerContext) -> None:
        super().__init__()
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_serve, args=(theirs, threads, context), daemon=True)
        with _interrupts_ignored():  # a child that is still starting is not to be interrupted by Ctrl-C either
            self.process.start()
        theirs.close()

    def send(self, unit: Unit) -> bool:
        try:
            self.pipe.send(unit)
        except OSError:
            return False
        return True

    def said(self) -> Iterator[Said]:
        try:
            while self.pipe.poll():
                yield self.pipe.recv()
        except (EOFError, OSError):
            self.dead = True

    def dismiss(self) -> None:
        if self.units or not self.started:
            self.process.terminate()
        self.pipe.close()

    def kill(self) -> None:
        self.process.kill()

    def end(self) -> Ending:
        self.pipe.close()
        self.process.join(_GRACE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode or 0
        if code >= 0:
            return Ending(f"exit code {code}")
        with suppress(ValueError):
            return Ending(f"signal {-code}, {signal.Signals(-code).name}")
        return Ending(f"signal {-code}")


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
    from fei.bench.engine.worker import Worker

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
