"""Half an hour of mixed work in one process, watched for what does not come back.

    python reliability/soak.py                 30 minutes, writes reliability/results/soak.json
    python reliability/soak.py --minutes 2     shorter, for a look; --out FILE to write elsewhere

A seeded random mix of the jobs in `_soak_jobs.py`: explanations, metrics, diagnostics, files, benchmark runs with
worker processes, refused input, work that Ctrl-C strikes. Every few seconds, after a garbage collection, a sample is
taken of memory, open file descriptors, threads, child processes, temporary files, hooks on the networks and live
tensors. Everything that imports a package on first use, and each kind of job, runs once before the first sample; the
first quarter of the samples is warm-up. The exit code is 1 if anything grew. Linux alone has what it looks at.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from _soak_jobs import JOBS, WEIGHTS, Bench, warm_up
from torch import nn

from fei.bench.engine._processes import start_helpers

RESULTS = Path(__file__).parent / "results" / "soak.json"
# memory is never quite flat: allocators keep a part of what they had
MOST_GROWTH_MB, MOST_GROWTH_SHARE, MOST_SLOPE_MB_PER_HOUR = 30.0, 0.05, 100.0
COUNTED = ("descriptors", "threads", "children", "temporary", "hooks", "tensors")
KEPT_SAMPLES = 120
_C = ctypes.CDLL(None)


@dataclass(frozen=True)
class Sample:
    """What the process holds at a moment between two jobs."""

    seconds: float
    jobs: int
    rss_mb: float
    descriptors: int
    threads: int
    children: int
    temporary: int
    hooks: int
    tensors: int


@dataclass
class Soak:
    """The jobs done so far, and what they left."""

    bench: Bench
    root: Path
    started: float = field(default_factory=time.monotonic)
    done: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    litter: list[str] = field(default_factory=list)

    def do(self, kind: str) -> None:
        """One job, in a folder of its own; an exception is a finding, and so is a temporary file beside its results."""
        with tempfile.TemporaryDirectory(dir=self.root) as folder:
            self.bench.folder = Path(folder)
            try:
                JOBS[kind](self.bench)
            except Exception:  # the soak is to go on, and to tell
                self.failures.append(f"{kind}: {traceback.format_exc(limit=-3)}")
            self.litter += [f"{kind}: {path.name}" for path in Path(folder).rglob(".*") if path.is_file()]
        self.done[kind] += 1

    def random_kind(self) -> str:
        """The kind of the next job."""
        return self.bench.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]

    def sample(self) -> Sample:
        """What is there now, after a garbage collection and with free memory given back."""
        gc.collect()
        _C.malloc_trim(0)  # what is free goes back to the system, so that memory is what is held
        return Sample(
            seconds=round(time.monotonic() - self.started, 1),
            jobs=self.done.total(),
            rss_mb=round(_resident() / 2**20, 1),
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=len(os.listdir("/proc/self/task")),
            children=sum(1 for _ in _children()),
            temporary=sum(len(folders) + len(files) for _, folders, files in os.walk(tempfile.gettempdir())),
            hooks=_hooks(self.bench.tiny) + _hooks(self.bench.embedded) + _hooks_on_all_modules(),
            tensors=sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()),
        )


@contextmanager
def soaking(seed: int) -> Iterator[Soak]:
    """A soak with temporary folders of its own: one for the jobs, one that the library's temporary files go to."""
    before, environment = tempfile.tempdir, os.environ.get("TMPDIR")
    start_helpers()
    with tempfile.TemporaryDirectory(prefix="fei-soak-") as root:
        places = {name: Path(root) / name for name in ("jobs", "temporary")}
        for place in places.values():
            place.mkdir()
        tempfile.tempdir = os.environ["TMPDIR"] = str(places["temporary"])  # the latter for worker processes
        try:
            yield Soak(Bench.make(seed, places["jobs"]), places["jobs"])
        finally:
            tempfile.tempdir = before
            os.environ.pop("TMPDIR") if environment is None else os.environ.__setitem__("TMPDIR", environment)


def verdicts(samples: Sequence[Sample]) -> dict[str, dict[str, Any]]:
    """For each quantity what it was after the warm-up, what it was in the end, and whether that will do.

    Counts must be the same in the median of the second quarter of the samples and of the last, and in the last sample
    not above the highest of the second quarter. Memory must rise slower than its threshold (Theil and Sen's slope) and
    end within 30 MB and 5 % of where it was.
    """
    quarter = max(1, len(samples) // 4)
    warm, early, late = samples[quarter:], samples[quarter : 2 * quarter], samples[-quarter:]
    found: dict[str, dict[str, Any]] = {}
    for name in COUNTED:
        before, after = ([getattr(sample, name) for sample in part] for part in (early, late))
        same = statistics.median_low(before) == statistics.median_low(after) and after[-1] <= max(before)
        found[name] = {
            "second_quarter": statistics.median_low(before),
            "last_quarter": statistics.median_low(after),
            "last": after[-1],
            "passed": same,
        }
    before_mb, after_mb = (statistics.median(sample.rss_mb for sample in part) for part in (early, late))
    slope = _slope([(sample.seconds / 3600, sample.rss_mb) for sample in warm])
    growth = after_mb - before_mb
    found["rss_mb"] = {
        "second_quarter": before_mb,
        "last_quarter": after_mb,
        "last": samples[-1].rss_mb,
        "slope_mb_per_hour": round(slope, 1),
        "passed": growth <= min(MOST_GROWTH_MB, MOST_GROWTH_SHARE * before_mb) and slope <= MOST_SLOPE_MB_PER_HOUR,
    }
    return found


def run(minutes: float, every: float, seed: int, out: Path) -> bool:
    """The whole soak; writes the result now and then, and at the end."""
    samples: list[Sample] = []
    with soaking(seed) as soak:
        warm_up(soak.bench)
        for kind in JOBS:
            soak.do(kind)
        soak.started, end = time.monotonic(), time.monotonic() + 60 * minutes
        samples.append(soak.sample())
        while time.monotonic() < end:
            due = time.monotonic() + every
            while time.monotonic() < due:
                soak.do(soak.random_kind())
            samples.append(soak.sample())
            _write(out, soak, samples, minutes, seed)
        passed = _write(out, soak, samples, minutes, seed)
    return passed


def _write(out: Path, soak: Soak, samples: Sequence[Sample], minutes: float, seed: int) -> bool:
    found = verdicts(samples)
    passed = all(verdict["passed"] for verdict in found.values()) and not soak.failures and not soak.litter
    step = -(-len(samples) // KEPT_SAMPLES)
    facts = {
        "what": "seeded random mix of jobs in one process; every few seconds a sample, free memory given back before",
        "command": f"python reliability/soak.py --minutes {minutes:g} --seed {seed}",
        "passed": passed,
        "minutes": round(samples[-1].seconds / 60, 1),
        "jobs": soak.done.total(),
        "jobs_by_kind": dict(soak.done),
        "verdicts": found,
        "thresholds": {
            "counts": "equal medians of the second and the last quarter; last sample not above the second quarter",
            "rss_growth_mb": MOST_GROWTH_MB,
            "rss_growth_share": MOST_GROWTH_SHARE,
            "rss_slope_mb_per_hour": MOST_SLOPE_MB_PER_HOUR,
        },
        "failures": soak.failures[:20],
        "temporary_files_beside_results": soak.litter[:20],
        "versions": {"torch": str(torch.__version__), "python": platform.python_version()},
        "threads_of_torch": torch.get_num_threads(),
        "samples_taken": len(samples),
        "samples": [asdict(sample) for sample in samples[::step]],
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(_lines(facts), encoding="utf-8")
    return passed


def _lines(facts: dict[str, Any]) -> str:
    """JSON with one line a sample."""
    samples = facts.pop("samples")
    text = json.dumps(facts, indent=2)[:-2]
    return text + ',\n  "samples": [\n    ' + ",\n    ".join(map(json.dumps, samples)) + "\n  ]\n}\n"


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs of points: a few high samples do not move it."""
    slopes = [(y1 - y0) / (x1 - x0) for i, (x0, y0) in enumerate(points) for x1, y1 in points[i + 1 :] if x1 > x0]
    return statistics.median(slopes) if slopes else 0.0


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _children() -> Iterator[int]:
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # of a thread that has ended since
            yield from map(int, (task / "children").read_text(encoding="utf-8").split())


def _hooks(model: nn.Module) -> int:
    return sum(map(_hooks_of, model.modules()))


def _hooks_of(module: nn.Module) -> int:
    return sum(len(value) for name, value in vars(module).items() if name.endswith("_hooks") and value)


def _hooks_on_all_modules() -> int:
    """Those that torch calls for every module there is."""
    return _count(value for name, value in vars(nn.modules.module).items() if name.startswith("_global_"))


def _count(values: Iterable[Any]) -> int:
    return sum(len(value) for value in values if isinstance(value, dict))


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between samples")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs deaf to Ctrl-C
    passed = run(given.minutes, given.every, given.seed, given.out)
    print(f"{'passed' if passed else 'FAILED'}: {given.out}", file=sys.stderr)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
