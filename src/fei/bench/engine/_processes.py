"""Worker processes on this machine: each has a pipe and computes what comes through it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from fei.bench.context import WorkerContext, attempt
from fei.bench.engine._pool import Ending, Member, Said
from fei.bench.units import Unit

_GRACE = 5.0  # seconds that a worker has to end by itself
# Where processes can be forked, workers are forked from a server that has loaded torch and done nothing else, so
# that one of them loads it for all. Elsewhere each loads it itself.
_FORKED = "forkserver" in multiprocessing.get_all_start_methods()
_SAFE, _OURS = "PYTHONSAFEPATH", "fei"  # any text will do, so that ours can be told


def start_helpers() -> None:
    """Start what the first worker starts by itself and what then stays: multiprocessing's own helpers."""
    resource_tracker.ensure_running()
    if _FORKED:
        from multiprocessing import forkserver

        _context()
        forkserver.ensure_running()


def _context() -> Any:
    start = multiprocessing.get_context("forkserver" if _FORKED else "spawn")
    if _FORKED:
        start.set_forkserver_preload([__name__])
    return start


@dataclass
class Processes:
    """A crew of processes, with so many of torch's threads each."""

    threads: int
    context: WorkerContext
    advice: str = "in a script of your own, start the run under 'if __name__ == \"__main__\":', or use workers=0"

    def recruit(self) -> _Process:
        """A new process."""
        return _Process(self.threads, self.context)

    def listen(self, members: Sequence[Member], seconds: float | None) -> Iterable[Member]:
        """Those that said something, or died; see `fei.bench.engine._pool.Crew`."""
        own = [member for member in members if isinstance(member, _Process)]
        ready = wait([handle for member in own for handle in member.handles], seconds)
        return [member for member in own if any(handle in ready for handle in member.handles)]


class _Process(Member):
    """A worker process; `handles` are what becomes ready when it says something or dies."""

    def __init__(self, threads: int, context: WorkerContext) -> None:
        super().__init__()
        start = _context()
        self._pipe, theirs = start.Pipe()
        arguments = (theirs, threads, context, dict(os.environ))
        self._process = start.Process(target=_serve, args=arguments, daemon=True)
        # a child that is still starting is not to be interrupted by Ctrl-C either
        with _interrupts_ignored(), _without_this_folder():
            self._process.start()
        theirs.close()
        self.handles: tuple[Any, int] = (self._pipe, self._process.sentinel)

    def send(self, unit: Unit) -> bool:
        try:
            self._pipe.send(unit)
        except OSError:
            return False
        return True

    def said(self) -> Iterator[Said]:
        try:
            while self._pipe.poll():
                yield self._pipe.recv()
        except (EOFError, OSError):
            self.dead = True

    def dismiss(self) -> None:
        if self.units or not self.started:
            self._process.terminate()
        self._pipe.close()

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> Ending:
        self._pipe.close()
        self._process.join(_GRACE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        code = self._process.exitcode or 0
        names = {each.value: f", {each.name}" for each in signal.Signals}
        return Ending(f"exit code {code}" if code >= 0 else f"signal {-code}{names.get(-code, '')}")


@contextmanager
def _without_this_folder() -> Iterator[None]:
    """Within the block a Python that is started does not look for modules in the folder that it is started in.

    It does until it is told where we look; a file there that is called like a module of Python's would run.
    """
    os.environ.setdefault(_SAFE, _OURS)
    try:
        yield
    finally:
        _forget_that()


def _forget_that() -> None:
    """Programs that a network starts are to find their modules as ever."""
    if os.environ.get(_SAFE) == _OURS:
        del os.environ[_SAFE]


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


def _serve(pipe: Connection[Any, Any], threads: int, context: WorkerContext, environment: dict[str, str]) -> None:
    """A worker process: says None when it runs, a pair's index when its network is loaded, and outcomes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's affair
    os.environ.clear()  # the server's is as it was when the first worker was started
    os.environ.update(environment)
    _forget_that()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.stdout = sys.stderr  # what a user's own network prints is not the driver's result
    torch.set_num_threads(threads)
    worker = context.worker()
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
