"""The page under load: honest visitors among hostile clients, and what the server opens, holds and leaves meanwhile.

    python reliability/load.py                  five minutes, writes reliability/results/load.json
    python reliability/load.py --seconds 60     shorter; --quick for a look of 8 seconds; --out FILE to write elsewhere

The server runs in a process of its own with a tiny network, under an audit hook that writes down every file that is
opened, changed or listed, every process started and every connection made; where strace is installed, the kernel's own
account of files is taken as well. Honest visitors (photo, classes, run, download of the zip, which is checked) first
come one after the other, for comparison, and then several at a time while hostile clients do what `_load_attacks.py`
lists, in a seeded random mix. Memory, descriptors and threads are read from /proc every half second. The exit code is 1
if a visitor was not served, something outside the server's folder was touched, a secret was told, or anything was left.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from _load_attacks import ATTACKS, Target
from _load_client import Site, Visit, visit

from fei.app.limits import Limits
from fei.app.server import MOST_TURNED_AWAY

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "load.json"
LIMITS = {"upload_bytes": 2_000_000, "pixels": 1_000_000, "seconds": 60, "queue": 8}
VISITORS, ATTACKERS = 4, 12
MOST_GROWTH_MB = 200.0
MOST_AT_ONCE = Limits().connections + MOST_TURNED_AWAY  # those that the server keeps, and those on their way out
MOST_THREADS = 42  # 40 threads answer, and go when there is nothing to do
MOST_LEFT_OPEN = 5


@dataclass
class Server:
    """A running server, and where its traces are."""

    address: str
    process: subprocess.Popen[str]
    pid: int
    folder: Path
    log: Path
    kernel_log: Path | None

    def held(self) -> tuple[float, int, int]:
        """Memory in MB, descriptors and threads."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        memory, threads = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "Threads"))
        return memory / 1024, len(os.listdir(f"/proc/{self.pid}/fd")), threads

    def files(self) -> list[str]:
        """What is in its folder, but for its lock. A folder that goes while this looks is passed over by os.walk."""
        found = (Path(top, name).relative_to(self.folder) for top, _, names in os.walk(self.folder) for name in names)
        return sorted(str(path) for path in found if len(path.parts) > 2)


@dataclass
class Outcome:
    """What was seen."""

    alone: list[Visit] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    attacks: Counter[str] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)
    broken_off: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)
    samples: list[tuple[float, int, int]] = field(default_factory=list)
    before: tuple[float, int, int] = (0.0, 0, 0)
    after: tuple[float, int, int] = (0.0, 0, 0)
    left: list[str] = field(default_factory=list)


@contextmanager
def server(root: Path, *, kernel: bool, quick: bool) -> Iterator[Server]:
    """A server with its folder below a given one, which it may not leave."""
    folder, empty, log, kernel_log = root / "server", root / "empty", root / "opened.jsonl", root / "strace.txt"
    folder.mkdir()
    empty.mkdir()
    log.touch()
    given = {
        "models": [f"{HERE / '_tiny.py'}:tiny"],
        "limits": LIMITS,
        "folder": str(folder),
        "log": str(log),
        "grace": 2,
        "sweep_seconds": 1 if quick else 5,
        "head_seconds": 2 if quick else 10,  # for who says nothing: too long to wait for in a quick look
    }
    words = [sys.executable, "-B", str(HERE / "_load_server.py"), json.dumps(given)]
    if kernel:
        words = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=%file", "-o", str(kernel_log), *words]
    with (
        (root / "terminal.txt").open("w", encoding="utf-8") as terminal,
        subprocess.Popen(
            words,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=terminal,
            cwd=empty,
            encoding="utf-8",
        ) as process,
    ):
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError(
                f"the server did not start: {(root / 'terminal.txt').read_text(encoding='utf-8')[-2000:]}"
            )
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()
        pid = int(children[0]) if kernel else process.pid
        try:
            yield Server(address, process, pid, folder, log, kernel_log if kernel else None)
        finally:
            process.stdin.close()
            process.wait(60)


async def load(running: Server, target: Target, seconds: float, seed: int, compared: int) -> Outcome:
    """Visitors alone, then among attackers, then nobody."""
    parts = urlsplit(running.address)
    site, seen = Site(str(parts.hostname), int(parts.port or 0), "_tiny.py:tiny"), Outcome()
    for number in range(compared + 1):
        seen.alone.append(await visit(site, number))
    seen.alone = seen.alone[1:]  # the first one has the server import what it needs
    _mark(running, "attacks begin")
    seen.before = running.held()
    end = time.monotonic() + seconds
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_sample(running, seen, end))
        for number in range(VISITORS):
            tasks.create_task(_visitor(site, seen, end, 1000 * (number + 1)))
        for number in range(ATTACKERS):
            tasks.create_task(_attacker(site, seen, target, end, random.Random(seed + number)))
    seen.visits.append(await visit(site, 999_999))  # it still serves
    await _settle(running, seen)
    return seen


def _mark(running: Server, what: str) -> None:
    with running.log.open("a", encoding="utf-8") as log:
        log.write(json.dumps(["mark", what]) + "\n")


async def _sample(running: Server, seen: Outcome, end: float) -> None:
    while time.monotonic() < end:
        seen.samples.append(running.held())
        await asyncio.sleep(0.5)


async def _visitor(site: Site, seen: Outcome, end: float, number: int) -> None:
    while time.monotonic() < end:
        number += 1
        seen.visits.append(await visit(site, number))


async def _attacker(site: Site, seen: Outcome, target: Target, end: float, chance: random.Random) -> None:
    weights = [weight for _, weight in ATTACKS.values()]
    while time.monotonic() < end:
        (name,) = chance.choices(list(ATTACKS), weights)
        try:
            async with asyncio.timeout(end - time.monotonic()):  # whoever waits then, leaves
                answers = await ATTACKS[name][0](site, chance, target)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            seen.broken_off[type(error).__name__] += 1
            answers = []
        seen.attacks[name] += 1
        for status, body in answers:
            seen.answers[status] += 1
            if target.words in body or b"Traceback" in body:
                seen.told.append(f"{name}: {body[:200]!r}")


async def _settle(running: Server, seen: Outcome, seconds: float = 90) -> None:
    """Wait until everything that visitors left is gone, and idle threads are."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(0.5)
        seen.after, seen.left = running.held(), running.files()
        if not seen.left and seen.after[1] <= seen.before[1] + MOST_LEFT_OPEN:
            return


def allowed() -> list[str]:
    """Where the server may read besides its folder: Python and its packages, fei itself, and matplotlib's cache."""
    import matplotlib

    import fei

    code = {sys.prefix, sys.base_prefix, str(Path(os.__file__).parent), str(Path(fei.__file__).parent), str(HERE)}
    return [*code, matplotlib.get_cachedir(), matplotlib.get_configdir()]


def touched(running: Server) -> dict[str, list[str]]:
    """What the server wrote outside its folder, read that it had no business with, or should never do at all."""
    lines = [json.loads(line) for line in running.log.read_text(encoding="utf-8").splitlines()]
    begin = lines.index(["mark", "attacks begin"])
    inside, code = str(running.folder), allowed()
    known = {path for kind, path in lines[:begin] if kind == "read"}
    written = {path for kind, path in lines if kind == "write" and not _below(path, [inside, "/dev/null"])}
    read = {path for kind, path in lines[begin:] if kind == "read" and path not in known}
    return {
        "written": sorted(path for path in written if not _below(path, code[-2:])),
        "read": sorted(path for path in read if not _below(path, [inside, *code])),
        "never": sorted({what for kind, what in lines if kind == "never" and "AF_UNIX" not in what}),
    }


def kernel_touched(running: Server) -> dict[str, Any]:
    """The same from the kernel's account: files opened to be written, made, renamed or removed outside the folder."""
    if running.kernel_log is None:
        return {"used": False, "calls": 0, "written": [], "secret": 0}
    written, calls, secret = set(), 0, 0
    changes = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")
    names = re.compile(
        r"\b(?:creat|unlink|unlinkat|rename|renameat2?|mkdir|mkdirat|rmdir|link|symlink|chmod|truncate)\("
    )
    with running.kernel_log.open(errors="replace", encoding="utf-8") as log:
        for line in log:
            calls += 1
            secret += "secret.txt" in line
            if " = -1 " not in line and (names.search(line) or ("open" in line and changes.search(line))):
                written.update(re.findall(r'"(/[^"]*)"', line))
    fine = [str(running.folder), str(running.log), "/dev", "/proc/self", *allowed()[-2:]]
    outside = sorted(path for path in written if not _below(path, fine))
    return {"used": True, "calls": calls, "written": outside, "secret": secret}


def _below(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def measure(seconds: float, *, seed: int = 0, kernel: bool = False, quick: bool = False) -> dict[str, Any]:
    """Run everything; what was seen, and the findings, of which there should be none."""
    with tempfile.TemporaryDirectory(prefix="fei-load-") as made:
        root = Path(made).resolve()
        target = Target(root / "secret.txt", LIMITS["upload_bytes"])
        with server(root, kernel=kernel, quick=quick) as running:
            seen = asyncio.run(load(running, target, seconds, seed, 1 if quick else 3))
            paths = touched(running)
        code = running.process.returncode
        by_kernel = kernel_touched(running)
        unchanged = target.secret.read_bytes() == target.words
        litter = sorted(path.name for path in (*root.iterdir(), *root.glob("server/*"), *root.glob("empty/*")))
    return report(seen, paths, by_kernel, code, litter, unchanged) | {"seconds": seconds, "seed": seed}


def report(
    seen: Outcome, paths: dict[str, list[str]], by_kernel: dict[str, Any], code: int, litter: list[str], unchanged: bool
) -> dict[str, Any]:
    """The figures, flat."""
    good = [one for one in seen.visits if not one.fault]
    memory = [sample[0] for sample in seen.samples]
    tail = memory[-max(1, len(memory) // 10) :]
    alone = statistics.median(one.seconds for one in seen.alone)
    figures: dict[str, Any] = {
        "python": platform.python_version(),
        "mix": {name: weight for name, (_, weight) in ATTACKS.items()},
        "honest_at_a_time": VISITORS,
        "hostile_at_a_time": ATTACKERS,
        "visits": len(seen.visits),
        "visits_served": len(good),
        "asked_to_try_again": sum(one.later for one in seen.visits),
        "visit_seconds_alone": round(alone, 3),
        "visit_seconds_median": round(statistics.median(one.seconds for one in good), 3) if good else None,
        "visit_ratio": round(statistics.median(one.seconds for one in good) / alone, 2) if good else None,
        "page_ratio": round(_page(good) / _page(seen.alone), 2) if good else None,
        "attacks": sum(seen.attacks.values()),
        "attacks_by_kind": dict(sorted(seen.attacks.items())),
        "answers_by_status": {str(status): number for status, number in sorted(seen.answers.items())},
        "connections_lost_by_attackers": dict(seen.broken_off),
        "memory_mb_before": round(seen.before[0], 1),
        "memory_mb_peak": round(max(memory), 1),
        "memory_mb_end": round(statistics.median(tail), 1),
        "memory_mb_after": round(seen.after[0], 1),
        "descriptors_before": seen.before[1],
        "descriptors_peak": max(sample[1] for sample in seen.samples),
        "descriptors_after": seen.after[1],
        "threads_before": seen.before[2],
        "threads_peak": max(sample[2] for sample in seen.samples),
        "threads_after": seen.after[2],
        "files_left_when_all_had_gone": seen.left,
        "paths_touched_outside": paths,
        "kernel_account": by_kernel,
    }
    return figures | {"findings": _findings(seen, figures, code, litter, unchanged)}


def _page(visits: Sequence[Visit]) -> float:
    return max(statistics.median(one.page_seconds for one in visits), 1e-3)


def _findings(seen: Outcome, figures: dict[str, Any], code: int, litter: list[str], unchanged: bool) -> list[str]:
    """What should not be, in sentences."""
    found = [f"a visitor was not served: {one.fault}" for one in (*seen.alone, *seen.visits) if one.fault]
    found += [f"an answer told too much: {what}" for what in seen.told]
    found += [f"left behind: {name}" for name in figures["files_left_when_all_had_gone"]]
    for kind, names in figures["paths_touched_outside"].items():
        found += [f"{kind} outside: {name}" for name in names]
    found += [f"by the kernel's account, changed outside: {name}" for name in figures["kernel_account"]["written"]]
    if figures["kernel_account"]["secret"]:
        found.append(f"the secret file was asked for {figures['kernel_account']['secret']} times")
    if not unchanged:
        found.append("the secret file was changed")
    if code != 0:
        found.append(f"the server ended with {code}")
    known = {"secret.txt", "opened.jsonl", "strace.txt", "terminal.txt", "server", "empty"}
    found += [f"made outside, or left by the server: {name}" for name in litter if name not in known]
    for what, most in (("memory_mb", MOST_GROWTH_MB), ("descriptors", MOST_AT_ONCE), ("threads", MOST_THREADS)):
        if figures[f"{what}_peak"] > figures[f"{what}_before"] + most:
            found.append(f"{what} grew from {figures[f'{what}_before']} to {figures[f'{what}_peak']}")
    if figures["descriptors_after"] > figures["descriptors_before"] + MOST_LEFT_OPEN:
        found.append(f"descriptors: {figures['descriptors_before']} before, {figures['descriptors_after']} after")
    return found


def main() -> int:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300, help="how long the attacks last")
    parser.add_argument("--quick", action="store_true", help="eight seconds, without strace")
    parser.add_argument("--seed", type=int, default=0, help="of the mix")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the figures go")
    given = parser.parse_args()
    kernel = not given.quick and shutil.which("strace") is not None
    figures = measure(8 if given.quick else given.seconds, seed=given.seed, kernel=kernel, quick=given.quick)
    text = json.dumps(figures, indent=2, ensure_ascii=False) + "\n"
    print(text)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(text, encoding="utf-8")
    return 1 if figures["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
