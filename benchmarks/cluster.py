"""The benchmark on Ray against the local engine, and what the paper's full benchmark would take on a cluster.

    python benchmarks/cluster.py [--parts trivial,overhead,real,rows,estimate] [--units 200000] [--repeats 3]

trivial: units on which a worker does nothing through a run on Ray with two actors: units a second, and how far the
driver's memory grows from a tenth of the way to the end. overhead: some thousand of them on Ray and on two local
workers, in turns: what Ray adds to a unit. real: SqueezeNet with saliency, Grad-CAM and a short FEI-VM, one worker of
each engine, in turns: the ratio of units a second from the first outcome to the last, that of the CPU time of all
processes together (which a busy machine does not disturb), and the bytes a unit takes in the store. rows: CPU seconds
of a forward row of the paper's networks on one thread. estimate: from all of these and from
benchmarks/results/baselines.jsonl the tables of docs/cluster.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from _common import Results
from _estimate import NETWORKS, write_estimate
from driver import Nothing, Watch, real_plan, trivial_plan

from fei.bench import Engine, LocalEngine, Outcome, RayEngine, Unit, run
from fei.bench.context import WorkerContext
from fei.bench.store.disk import DATABASE
from fei.models import load

PARTS = ("trivial", "overhead", "real", "rows", "estimate")
_MEGABYTE = 1_000_000
_FEW = 4000  # trivial units of a turn
_BATCH, _PASSES = 8, 3


@dataclass(frozen=True)
class Idle:
    """An engine whose workers do nothing."""

    engine: Engine

    def run(self, units: Iterable[Unit], context: WorkerContext) -> Iterator[Outcome]:
        return self.engine.run(units, replace(context, make=Nothing))


@dataclass
class CpuWatch(Watch):
    """Notes the CPU time of the driver as well: what it could do with its own processor."""

    cpu_first: float = 0.0
    cpu_last: float = 0.0

    def __call__(self, done: int, failed: int, total: int, pace: object) -> None:
        before = self.first[1]
        super().__call__(done, failed, total, pace)
        self.cpu_last = time.process_time()
        if not before:
            self.cpu_first = self.cpu_last

    @property
    def cpu_milliseconds(self) -> float:
        return 1000 * (self.cpu_last - self.cpu_first) / (self.last[1] - self.first[1])


@dataclass
class FamilyWatch(Watch):
    """Notes the CPU time of the driver and of all processes that it started, while these are there."""

    cpu_first: tuple[float, int] = (0.0, 0)
    cpu_last: tuple[float, int] = (0.0, 0)

    def __call__(self, done: int, failed: int, total: int, pace: object) -> None:
        super().__call__(done, failed, total, pace)
        if 0 < done + failed < total:
            self.cpu_last = (family_seconds(), done + failed)
            self.cpu_first = self.cpu_first if self.cpu_first[1] else self.cpu_last

    @property
    def cpu_seconds(self) -> float:
        return (self.cpu_last[0] - self.cpu_first[0]) / (self.cpu_last[1] - self.cpu_first[1])


def family_seconds() -> float:
    """CPU seconds of this process and its descendants that are alive; on Linux only."""
    parents, ticks = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = file.read_text(encoding="utf-8").rpartition(")")[2].split()
            pid = int(file.parent.name)
            parents[pid], ticks[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks.get(pid, 0) for pid in family) / os.sysconf("SC_CLK_TCK")


def idle_run(engine: Engine, units: int) -> tuple[CpuWatch, float]:
    """A run of trivial units: what its progress reported, and the total seconds."""
    with tempfile.TemporaryDirectory() as folder:
        watch = CpuWatch()
        summary = run(trivial_plan(Path(folder), units), Path(folder) / "run", engine=Idle(engine), on_progress=watch)
    return watch, summary.seconds


def measure_trivial(results: Results, units: int) -> None:
    """Units per second and memory of the driver over a long run."""
    watch, seconds = idle_run(RayEngine(2), units)
    row = {
        "part": "trivial",
        "units": units,
        "workers": 2,
        "seconds": round(seconds, 1),
        "units_per_second": round(watch.rate, 1),
        "driver_cpu_ms": round(watch.cpu_milliseconds, 3),
        "driver_megabytes": round(watch.late_bytes / _MEGABYTE, 1),
        "driver_growth_megabytes": round((watch.late_bytes - watch.early_bytes) / _MEGABYTE, 1),
        "load": round(os.getloadavg()[0], 2),
    }
    print(results.append(row), flush=True)


def measure_overhead(results: Results, repeats: int) -> None:
    """Milliseconds per trivial unit, on Ray and on local workers."""
    watches: dict[str, list[CpuWatch]] = {"local": [], "ray": []}
    for _ in range(repeats):
        for name, engine in (("local", LocalEngine(2, threads=1)), ("ray", RayEngine(2))):
            watches[name].append(idle_run(engine, _FEW)[0])
    milliseconds = {name: [1000 / watch.rate for watch in some] for name, some in watches.items()}
    cpu = {name: statistics.median(watch.cpu_milliseconds for watch in some) for name, some in watches.items()}
    row = {
        "part": "overhead",
        "units": _FEW,
        "repeats": repeats,
        **{f"{name}_ms": round(statistics.median(some), 3) for name, some in milliseconds.items()},
        **{f"{name}_range_ms": [round(min(some), 3), round(max(some), 3)] for name, some in milliseconds.items()},
        **{f"{name}_driver_cpu_ms": round(each, 3) for name, each in cpu.items()},
        "load": round(os.getloadavg()[0], 2),
    }
    print(results.append(row), flush=True)


def measure_real(results: Results, images: int, repeats: int) -> None:
    """Units per second of real work, Ray relative to local."""
    ratios, costs, rates, size = [], [], [], 0.0
    for _ in range(repeats):
        turn = {}
        for name, engine in (("local", LocalEngine(1, threads=1)), ("ray", RayEngine(1))):
            with tempfile.TemporaryDirectory() as folder:
                watch = turn[name] = FamilyWatch()
                summary = run(real_plan(images), Path(folder) / "run", engine=engine, device="cpu", on_progress=watch)
                size = (Path(folder) / "run" / DATABASE).stat().st_size / summary.done
        rates.append(turn["local"].rate)
        ratios.append(turn["ray"].rate / turn["local"].rate)
        costs.append(turn["ray"].cpu_seconds / turn["local"].cpu_seconds)
    row = {
        "part": "real",
        "units": images * 3,
        "repeats": repeats,
        "local_rate": round(statistics.median(rates), 3),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_low": round(min(ratios), 3),
        "ratio_high": round(max(ratios), 3),
        "cpu_ratio": round(statistics.median(costs), 3),
        "cpu_ratio_low": round(min(costs), 3),
        "cpu_ratio_high": round(max(costs), 3),
        "bytes_per_unit": round(size),
        "load": round(os.getloadavg()[0], 2),
    }
    print(results.append(row), flush=True)


@torch.no_grad()
def measure_rows(results: Results) -> None:
    """CPU seconds of a forward row on one thread, in batches of eight."""
    torch.set_num_threads(1)
    for name, spec in NETWORKS.items():
        model = load(spec).eval()
        rows = torch.rand(_BATCH, 3, model.input_size, model.input_size).contiguous(memory_format=torch.channels_last)
        model(rows)
        times = []
        for _ in range(_PASSES):
            start = time.process_time()
            model(rows)
            times.append((time.process_time() - start) / _BATCH)
        print(
            results.append({"part": "rows", "network": name, "seconds": round(statistics.median(times), 4)}), flush=True
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--units", type=int, default=200_000)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    parts = options.parts.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"no part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    results = Results("cluster")
    if "overhead" in parts:
        measure_overhead(results, options.repeats)
    if "real" in parts:
        measure_real(results, options.images, options.repeats)
    if "rows" in parts:
        measure_rows(results)
    if "trivial" in parts:
        measure_trivial(results, options.units)
    if "estimate" in parts:
        write_estimate(results.rows)


if __name__ == "__main__":
    main()
