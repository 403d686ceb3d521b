"""The benchmark on Ray: an actor for each CPU slot or GPU, on one machine or many; the driver alone writes results."""

from __future__ import annotations

import logging
import math
import os
import socket
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from fei import __version__
from fei.bench.context import Computer, WorkerContext, attempt, sentence
from fei.bench.engine._pool import Ending, Member, Pool, Said, checked_count
from fei.bench.units import FAILED, Outcome, Unit, storable
from fei.common.machine import usable_processors
from fei.common.packages import need
from fei.errors import InputError

_REACH_SECONDS = 10.0  # that the machine at an address has to answer
_OBJECT_STORE = 200_000_000  # bytes that Ray may keep results in on this machine: maps on their way to the driver
_SHORT = "/tmp" if os.path.isdir("/tmp") else None  # noqa: S108 (TMPDIR may be too long for the name of a socket)
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
_DOUBT_SECONDS = 0.1  # between two questions to an actor that cannot be reached
_NO_ROOM_SECONDS = 60.0  # how long no worker may start before that is said


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
        InputError: If one of them is not such a number.
        PackageError: If Ray is not installed.

    Examples:
        >>> engine = fei.bench.RayEngine(workers=2, address="10.0.0.1:6379")  # nothing is started before the run
        >>> engine.workers, engine.threads
        (2, 1)
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
        self._ray = _import_ray()

    def run(self, units: Iterable[Unit], context: WorkerContext) -> Iterator[Outcome]:
        """Compute units; see `fei.bench.engine.engines.Engine`."""
        ray = self._ray
        with self._connected(ray):
            # where no GPU was asked for, Ray hides them
            context = replace(context, device="cuda" if self.gpus_per_worker else "cpu")
            crew = _Actors(ray, {"num_cpus": self.threads, "num_gpus": self.gpus_per_worker}, context)
            yield from Pool(self.workers or self._room(ray), context, crew).run(units)

    @contextmanager
    def _connected(self, ray: Any) -> Iterator[None]:
        """Ray, for as long as the block runs; one that the caller has connected to is left as it is."""
        if ray.is_initialized():
            yield
            return
        with ExitStack() as after:
            if self.address is None:
                # Ray's own folder for sockets and logs is open to all, and so it makes any that it is given
                private = tempfile.TemporaryDirectory(prefix="fei-", dir=_SHORT, ignore_cleanup_errors=True)
                self._start(ray, os.path.join(after.enter_context(private), "ray"))
            else:
                _join(ray, self.address)
            after.callback(ray.shutdown)
            yield

    def _start(self, ray: Any, folder: str) -> None:
        """Start Ray on this machine, for the run alone."""
        with _loopback_alone():
            ray.init(
                "local",
                # more workers than processors are the caller's wish
                num_cpus=max(usable_processors(), self.workers * self.threads),
                object_store_memory=_OBJECT_STORE,
                include_dashboard=False,
                job_config=_job(ray),
                _node_ip_address="127.0.0.1",
                _temp_dir=folder,
                **_QUIET,
            )

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
        ray.init(address, job_config=_job(ray), **_QUIET)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        raise InputError(
            f"There is no Ray cluster to reach at '{address}' ({storable(error).rstrip('.')}); call this on a machine "
            "of the cluster with the address that 'ray start --head' printed, or leave the address out to compute "
            "on this machine alone."
        ) from error


class _Nowhere(list[str]):
    """Folders in which workers look for modules, to which none can be added."""

    def extend(self, folders: Iterable[str]) -> None:
        """Leave it at that."""


def _job(ray: Any) -> Any:
    """A job of Ray's whose workers do not look for modules in the driver's folder, which by itself comes first."""
    job = ray.job_config.JobConfig()
    job._py_driver_sys_path = _Nowhere()
    return job


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


@dataclass(frozen=True)
class _Node:
    """Where an actor runs: Ray's id of the node, what people call it, and what it lacks."""

    id: str
    name: str
    problem: str | None


@dataclass(frozen=True)
class _Driver:
    """What a node must know of the driver: versions that decide the bits, its folder, and where it finds code."""

    versions: str = f"fei {__version__} with torch {torch.__version__}"
    folder: str = field(default_factory=os.getcwd)
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))


class _Actor:
    """What runs on a node: one worker, which is asked one thing after the other."""

    def __init__(self, context: bytes, threads: int, driver: _Driver) -> None:
        if os.path.isdir(driver.folder):
            os.chdir(driver.folder)
        sys.path += [entry for entry in driver.path if entry not in sys.path]
        torch.set_num_threads(threads)
        ray = _import_ray()
        # it may hold code of the user's, which is found only now
        self._context: WorkerContext = ray.cloudpickle.loads(context)
        self._driver = driver
        self._id = ray.get_runtime_context().get_node_id()
        self._name = f"{socket.gethostname()} ({ray.util.get_node_ip_address()})"

    @cached_property
    def _worker(self) -> Computer:
        return self._context.worker()

    def start(self) -> _Node:
        """Get ready, and say where."""
        problem = self._unlike_the_driver()
        if problem is None:
            _ = self._worker
        return _Node(self._id, self._name, problem)

    def _unlike_the_driver(self) -> str | None:
        here = _Driver().versions
        if here != self._driver.versions:
            return (
                f"The node {self._name} has {here} and the driver has {self._driver.versions}; install the same on all."
            )
        for index, recipe in enumerate(self._context.recipes if self._context.make is None else ()):
            try:
                self._context.method(index)
            except Exception as error:
                return (
                    f"The node {self._name} cannot make the method '{recipe.name}' ({sentence(error).rstrip('.')}); "
                    "install its code on every node."
                )
        return None

    def load(self, pair: int) -> str | None:
        """Load the network of a pair; the driver could load it, so that a failure here is this node's affair."""
        problem = self._worker.prepare(pair)
        if problem is None:
            return None
        model = self._context.networks[pair].model
        return (
            f"The node {self._name} cannot load the network '{model}' ({problem.rstrip('.')}); put its files at the "
            "same path on every node."
        )

    def compute(self, unit: Unit) -> tuple[Outcome, str | None]:
        """Compute a unit; where its image is not there, also tell which node lacks it."""
        missing = bool(unit.path) and not os.path.exists(unit.path)
        outcome = attempt(self._worker, unit, self._context.retries)
        if not missing or outcome.status != FAILED:
            return outcome, None
        lack = f"The node {self._name} has no file '{unit.path}'; put the images at the same path on every node."
        return outcome, storable(lack)

    def still_there(self) -> None:
        """Answer."""


class _Actors:
    """A crew of actors; `needs` is what each takes of a node.

    Ray could restart actors and resubmit their tasks by itself. It would then charge a death to all units that an actor
    held, the innocent ones included, and not tell; so the pool counts, and Ray finds the place for the next actor.
    """

    advice = "see that fei is installed on every node, in the version of this machine"

    def __init__(self, ray: Any, needs: dict[str, float], context: WorkerContext) -> None:
        self._ray, self._needs = ray, needs
        self._given = (ray.put(ray.cloudpickle.dumps(context)), needs["num_cpus"], _Driver())
        self._class = ray.remote(_Actor).options(**needs, max_restarts=0, max_task_retries=0)
        self._no_room_since: float | None = time.monotonic()

    def recruit(self) -> _RayMember:
        """A new actor; it starts when a node has room for it."""
        return _RayMember(self._ray, self._class.remote(*self._given))

    def listen(self, members: Sequence[Member], seconds: float | None) -> Iterable[Member]:
        """Those that said something, or died; see `fei.bench.engine._pool.Crew`."""
        waiting = {m.awaited: m for m in members if isinstance(m, _RayMember) and m.awaited is not None}
        if any(member.started for member in members):
            self._no_room_since = None
        elif self._no_room_since is not None:
            seconds = min(_NO_ROOM_SECONDS, math.inf if seconds is None else seconds)
        refs = list(waiting)
        found, _ = self._ray.wait(refs, num_returns=1, timeout=seconds)
        if found:
            found, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        elif self._no_room_since is not None and time.monotonic() - self._no_room_since >= _NO_ROOM_SECONDS:
            self._no_room_since = None
            warnings.warn(
                f"No worker has started for {_NO_ROOM_SECONDS:g} s: the cluster is busy, or has no room for "
                f"{self._needs['num_cpus']:g} CPUs and {self._needs['num_gpus']:g} GPUs each; see 'ray status'.",
                stacklevel=2,
            )
        return [waiting[ref] for ref in found]


class _RayMember(Member):
    """An actor as the driver sees it.

    An answer may be lost where the actor dies right after it. So no unit is asked of it before its network is loaded,
    and which of two units it died of is not known.
    """

    orderly = False

    def __init__(self, ray: Any, actor: Any) -> None:
        super().__init__()
        self._ray, self._actor = ray, actor
        self._node: _Node | None = None
        self._held: deque[Unit] = deque()  # units that wait for their network
        # what it was asked, and what that is: "start", "compute", "still there?" or the pair whose network it loads
        self._answers: deque[tuple[Any, str | int]] = deque([(actor.start.remote(), "start")])
        self._error: Exception | None = None

    @property
    def awaited(self) -> Any:
        """What it will say next; None if nothing is to come."""
        return self._answers[0][0] if self._answers else None

    def send(self, unit: Unit) -> bool:
        self._held.append(unit)
        self._ask()
        return True

    def _ask(self) -> None:
        """Ask what can be asked now."""
        while self._held and not any(isinstance(what, int) for _, what in self._answers):
            pair = self._held[0].pair
            if pair in self.loaded:
                self._answers.append((self._actor.compute.remote(self._held.popleft()), "compute"))
            else:
                self._answers.append((self._actor.load.remote(pair), pair))

    def said(self) -> Iterator[Said]:
        while self._answers and not self.dead and self._ray.wait([self.awaited], timeout=0)[0]:
            ref, what = self._answers.popleft()
            try:
                answer = self._ray.get(ref)
            except self._ray.exceptions.ActorUnavailableError:
                # it cannot be reached, and what became of it is not known yet: who asks again will be told
                time.sleep(_DOUBT_SECONDS)
                self._answers = deque([(self._actor.still_there.remote(), "still there?")])
            except self._ray.exceptions.RayError as error:
                self._error, self.dead = error, True
            else:
                if what == "still there?":  # and so is its node, but what it was asked before is lost
                    self.dead = True
                    return
                said = self._understood(answer, what)
                if self.lacks is not None:
                    return
                yield said
                self._ask()

    def _understood(self, answer: Any, what: str | int) -> Said:
        """What an answer says; what the node lacks is noted."""
        if isinstance(answer, _Node):
            self._node, self.lacks = answer, answer.problem
            return None
        if isinstance(what, int):
            self.lacks = answer
            return what
        outcome: Outcome = answer[0]
        if os.path.exists(self.units[0].path):  # an image that is nowhere any more is not this node's fault
            self.lacks = answer[1]
        return outcome

    def kill(self) -> None:
        self._ray.kill(self._actor)

    def end(self) -> Ending:
        node, told = self._node, storable(self._error or "")
        where = f", node {node.name}" if node is not None else ""
        gone = {each["NodeID"] for each in self._ray.nodes() if not each["Alive"]}
        self.kill()
        if "node has died" in told or (node is not None and node.id in gone):
            return Ending(f"its node is gone{where}", lost=True)
        if self.dead and self._error is None:
            return Ending(f"the connection to it broke{where}", lost=True)
        return Ending(f"{_reason(self._error)}{where}")


def _import_ray() -> Any:
    """Ray; PackageError if it is not installed."""
    need("The engine 'ray'", "ray", "ray")
    import ray

    return ray


def _reason(error: Exception | None) -> str:
    """Why an actor is no more, in a few words of what Ray tells at length."""
    if error is None:
        return "it was ended"
    if "low on memory" in storable(error):
        return "Ray ended it because its node ran out of memory"
    if "has died" in storable(error):
        return "its process has died"
    return storable(str(error).strip().splitlines()[-1])  # the last line of what was raised there
