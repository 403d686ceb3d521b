"""Engines: what computes the units of a run, and where."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Protocol

import torch

from fei.bench.context import WorkerContext, attempt
from fei.bench.engine._pool import Pool, checked_count
from fei.bench.engine._processes import Processes
from fei.bench.engine._ray import RayEngine
from fei.bench.units import Outcome, Unit
from fei.common.exits import exits_caught
from fei.common.machine import usable_processors
from fei.errors import InputError


class Engine(Protocol):
    """Something that computes units.

    Examples:
        >>> class Patient:  # computes one unit after the other, and says so
        ...     def run(self, units, context):
        ...         for outcome in fei.bench.LocalEngine().run(units, context):
        ...             print(outcome.item)
        ...             yield outcome
        >>> _ = fei.bench.run(fei.bench.load_plan("plan.toml"), "a fifth", engine=Patient())
        a.png
        b.png
    """

    def run(self, units: Iterable[Unit], context: WorkerContext) -> Iterator[Outcome]:
        """Compute units.

        Args:
            units: The units, pair by pair; taken one at a time, as there is room.
            context: What they have in common.

        Yields:
            The outcome of each, in any order.
        """
        ...


class LocalEngine:
    """Computes on this machine: in this process, or in processes of its own.

    The same bits come out for any number of workers at the same number of threads.

    Args:
        workers: How many processes; 0 for this one.
        threads: Torch's threads in each. None: as torch has it in this process, or the machine's processors divided
            among the workers.

    Raises:
        InputError: If one of them is not such a number.

    Examples:
        >>> fei.bench.run(fei.bench.load_plan("plan.toml"), "a sixth", engine=fei.bench.LocalEngine(threads=1)).done
        2
    """

    def __init__(self, workers: int = 0, threads: int | None = None) -> None:
        self.workers = checked_count("workers", workers, 0, "0 for this process alone")
        self.threads = None if threads is None else checked_count("threads", threads, 1)

    def run(self, units: Iterable[Unit], context: WorkerContext) -> Iterator[Outcome]:
        """Compute units; see `Engine`."""
        if self.workers:
            threads = self.threads or max(1, usable_processors() // self.workers)
            return Pool(self.workers, context, Processes(threads, context)).run(units)
        if context.unit_timeout is not None:
            raise InputError("A time-out needs workers that can be ended; compute with at least one (--workers 1).")
        return self._run_here(units, context)

    def _run_here(self, units: Iterable[Unit], context: WorkerContext) -> Iterator[Outcome]:
        worker = context.worker()
        with torch_threads(self.threads):
            for unit in units:
                with exits_caught():
                    outcome = attempt(worker, unit, context.retries)
                yield outcome


def make_engine(
    name: str, workers: int = 0, threads: int | None = None, *, address: str | None = None, gpus: float | None = None
) -> Engine:
    """An engine by its name.

    Args:
        name: "local" or "ray".
        workers: As the engine takes it.
        threads: As the engine takes it.
        address: The address of a Ray cluster, see `RayEngine`.
        gpus: GPUs per worker, see `RayEngine`.

    Raises:
        InputError: If there is no such engine, or it does not take one of these.
    """
    if name == "ray":
        return RayEngine(workers, threads, address=address, gpus_per_worker=gpus or 0)
    if name != "local":
        raise InputError(f"There is no engine '{name}'; choose one of local, ray.")
    if address is not None or gpus is not None:
        option = "address" if address is not None else "gpus-per-worker"
        raise InputError(f"The engine 'local' takes no --{option}; add --engine ray.")
    return LocalEngine(workers, threads)


@contextlib.contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Within the block torch has that many threads; None leaves it as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
