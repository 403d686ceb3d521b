"""How fast a run's driver is, and what a second worker brings.

    python benchmarks/driver.py [--parts trivial,workers] [--units 200000] [--images 24]

trivial: units on which a worker does nothing, through the whole of a run (keys, links, engine, commits), in this
process and through two workers: units a second, and how far the driver's memory grows from a tenth of the way to the
end. workers: real work (SqueezeNet; saliency, Grad-CAM and the default) with one worker and with two, one thread each:
the ratio of units a second, from the first outcome to the last, so that loading does not count.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from _common import ASSETS, Results
from PIL import Image

from fei.bench import LocalEngine, Outcome, Plan, Unit, run
from fei.bench.context import WorkerContext
from fei.bench.plan import parse_plan
from fei.common.machine import usable_processors

_MEGABYTE = 1_000_000
_IMAGES, _METHODS = 10, 10  # of the trivial units; the rest are seeds

_NETWORK = """
from torch import nn

def network():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()
    for parameter in net.parameters():
        nn.init.constant_(parameter, 0.1)
    net.input_size = 16
    return net
"""


class Nothing:
    """A worker that does nothing and reports that everything is done."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context

    def prepare(self, pair: int) -> str | None:
        return None

    def compute(self, unit: Unit) -> Outcome:
        scores = tuple((metric, "fei-paper/1", "", 0.5) for metric in ("insertion", "deletion", "ties"))
        return self._context.outcome(unit, "done", scores=scores, groups=unit.scores, target=1, label="1")


@dataclass(frozen=True)
class TrivialEngine:
    """The local engine with workers that do nothing."""

    workers: int

    def run(self, units: Iterable[Unit], context: WorkerContext) -> Iterator[Outcome]:
        return LocalEngine(self.workers, threads=1).run(units, replace(context, make=Nothing))


@dataclass
class Watch:
    """What a run's progress tells: when it started and ended, and the driver's memory."""

    first: tuple[float, int] = (0.0, 0)
    last: tuple[float, int] = (0.0, 0)
    early_bytes: int = 0
    late_bytes: int = 0

    def __call__(self, done: int, failed: int, total: int, pace: object) -> None:
        ready = done + failed
        self.last = (time.monotonic(), ready)
        if ready and not self.first[1]:
            self.first = self.last
        if ready >= total // 10 and not self.early_bytes:
            self.early_bytes = resident_bytes()
        self.late_bytes = resident_bytes()

    @property
    def rate(self) -> float:
        return (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])


def resident_bytes() -> int:
    """Memory of this process; its peak where the system does not tell more."""
    if sys.platform == "linux":
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def trivial_plan(folder: Path, units: int) -> Plan:
    """A plan with this many units on a network of three layers."""
    (folder / "net.py").write_text(_NETWORK, encoding="utf-8")
    (folder / "photos").mkdir()
    for number in range(_IMAGES):
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{number}.png")
    seeds = list(range(units // (_IMAGES * _METHODS)))
    text = f"name = 'trivial'\nseeds = {seeds}\n[[pairs]]\nmodel = '{folder}/net.py:network'\n"
    text += f"data = '{folder}/photos'\n"
    for steps in range(1, _METHODS + 1):
        text += f"[[methods]]\nname = 'fei-vm'\nlabel = '{steps}'\noptions = {{ steps = {steps} }}\n"
    return parse_plan(text + "[metrics]\ninternal = false\n")


def real_plan(images: int) -> Plan:
    """Saliency, Grad-CAM and the default on photographs."""
    text = f"name = 'real'\n[[pairs]]\nmodel = '{ASSETS}/zoo.py:squeezenet'\ndata = '{ASSETS}/imagenet'\n"
    text += f"sample = {images}\n"
    return parse_plan(text + "".join(f"[[methods]]\nname = '{name}'\n" for name in ("saliency", "gradcam", "fei")))


def measure_trivial(results: Results, units: int) -> None:
    """Units per second and memory, in this process and through two workers."""
    for workers in (0, 2):
        with tempfile.TemporaryDirectory() as folder:
            plan, watch = trivial_plan(Path(folder), units), Watch()
            start = time.monotonic()
            summary = run(plan, Path(folder) / "run", engine=TrivialEngine(workers), on_progress=watch)
            row = {
                "part": "trivial",
                "units": summary.done,
                "workers": workers,
                "seconds": round(time.monotonic() - start, 2),
                "units_per_second": round(watch.rate, 1),
                "units_per_second_in_all": round(summary.done / summary.seconds, 1),
                "driver_megabytes": round(watch.late_bytes / _MEGABYTE, 1),
                "driver_growth_megabytes": round((watch.late_bytes - watch.early_bytes) / _MEGABYTE, 1),
            }
        results.append(row)
        print(row, flush=True)


def measure_workers(results: Results, images: int) -> None:
    """Units per second with one worker and with two."""
    rates = {}
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            watch = Watch()
            summary = run(real_plan(images), Path(folder) / "run", workers=workers, threads=1, on_progress=watch)
        rates[workers] = watch.rate
        print(f"{workers} worker(s): {watch.rate:.2f} units a second, {summary.failed} failed", flush=True)
    row = {
        "part": "workers",
        "units": images * 3,
        "work": "saliency, gradcam, fei",
        "rate_1": round(rates[1], 3),
        "rate_2": round(rates[2], 3),
        "ratio": round(rates[2] / rates[1], 3),
        "processors": usable_processors(),
        "load": round(os.getloadavg()[0], 2),
    }
    results.append(row)
    print(row)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="trivial,workers")
    parser.add_argument("--units", type=int, default=200_000)
    parser.add_argument("--images", type=int, default=24)
    options = parser.parse_args()
    results = Results("driver")
    if "trivial" in options.parts:
        measure_trivial(results, options.units)
    if "workers" in options.parts:
        measure_workers(results, options.images)


if __name__ == "__main__":
    main()
