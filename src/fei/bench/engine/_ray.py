"""The benchmark on Ray: an actor for each CPU slot or GPU, on one machine or many; the driver alone writes results."""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fei.bench.context import WorkerContext
from fei.bench.engine._pool import Pool, checked_count
from fei.bench.engine._ray_crew import Actors, import_ray
from fei.bench.units import Outcome, Unit, storable
from fei.common.machine import usable_processors
from fei.errors import InputError

_REACH_SECONDS = 10.0  # that the machine at an address has to answer
_OBJECT_STORE = 200_000_000  # bytes that Ray may keep results in on this machine: maps on their way to the driver
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


class RayEngine:
    """Computes on a Ray cluster, or with a Ray of its own on this machine.

    The same bits come out as of `fei.bench.engine.engines.LocalEngine` at the same number of threads.

    Args:
        workers: How many actors; 0 for as many as the cluster has room for when the run starts.
        threads: Torch's threads in each, and the CPU slots that each takes; 1 without.
        address: The cluster's address, as `ray.init` takes it ("auto", "10.0.0.1:6379"). Without one, Ray is started on
            this machine for the run, and can be reached from nowhere else.
        gpus_per_worker: GPUs of each actor: 1, or a part of one that actors share; 0 to compute on CPUs.

    Raises:
        InputError: If one of them is not such a number, or Ray is not installed.
    """

    def __init__(
        self, workers: int = 0, threads: int | None = None, *, address: str | None = None, gpus_per_worker: float = 0
    ) -> None:
        gpus = gpus_per_worker
        if isinstance(gpus, bool) or not isinstance(gpus, (int, float)) or not 0 <= gpus < math.inf:
            raise InputError(f"`gpus_per_worker` is {gpus!r}; give a number, 0 to compute on CPUs.")
        self.workers = checked_count("workers", workers, 0, "0 for as many as there is room for")
        self.threads = 1 if threads is None else checked_count("threads", threads, 1)
        self.address, self.gpus_per_worker = address, gpus
        self._ray = import_ray()

    def run(self, units: Iterable[Unit], context: WorkerContext) -> Iterator[Outcome]:
        """Compute units; see `fei.bench.engine.engines.Engine`."""
        ray = self._ray
        with self._connected(ray):
            # where no GPU was asked for, Ray hides them
            context = replace(context, device="cuda" if self.gpus_per_worker else "cpu")
            crew = Actors(ray, {"num_cpus": self.threads, "num_gpus": self.gpus_per_worker}, context)
            yield from Pool(self.workers or self._room(ray), context, crew).run(units)

    @contextmanager
    def _connected(self, ray: Any) -> Iterator[None]:
        """Ray, for as long as the block runs; one that the caller has connected to is left as it is."""
        if ray.is_initialized():
            yield
            return
        if self.address is None:
            with _loopback_alone():
                ray.init(
                    "local",
                    # more workers than processors are the caller's wish
                    num_cpus=max(usable_processors(), self.workers * self.threads),
                    object_store_memory=_OBJECT_STORE,
                    include_dashboard=False,
                    _node_ip_address="127.0.0.1",
                    **_QUIET,
                )
        else:
            _join(ray, self.address)
        try:
            yield
        finally:
            ray.shutdown()

    def _room(self, ray: Any) -> int:
        """How many actors the cluster has room for."""
        there = ray.cluster_resources()
        room = int(there.get("CPU", 0) // self.threads)
        if self.gpus_per_worker:
            room = min(room, int(there.get("GPU", 0) / self.gpus_per_worker + 1e-9))
        if not room:
            raise InputError(
                f"The Ray cluster has {there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs, no room for a "
                f"worker with {self.threads} and {self.gpus_per_worker:g}; ask for less, or say with --workers how "
                "many there will be once the cluster has grown."
            )
        return room


def _join(ray: Any, address: str) -> None:
    """Connect to a cluster; Ray itself would try for minutes where there is none."""
    host, colon, port = address.rpartition(":")
    try:
        if address != "auto":
            if not (host and colon and port.isdecimal()) or "//" in host:
                raise ValueError("it is not of the form HOST:PORT")
            socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
        ray.init(address, **_QUIET)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        raise InputError(
            f"There is no Ray cluster to reach at '{address}' ({storable(error).rstrip('.')}); call this on a machine "
            "of the cluster with the address that 'ray start --head' printed, or leave the address out to compute "
            "on this machine alone."
        ) from error


@contextmanager
def _loopback_alone() -> Iterator[None]:
    """Within the block a Ray that is started listens on loopback only, and reports to no one.

    On Linux there is no public setting for that: this asks for what Ray does by itself on macOS and Windows.
    """
    from ray._private import ray_constants

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
