"""The tests on machines that are not at hand: other instructions, memory, place, user, order and load.

    python reliability/elsewhere.py                  all of them, one after the other
    python reliability/elsewhere.py "AVX2" user      those whose names contain one of these

Each machine's outcome is written to `reliability/results/elsewhere.json` as it comes; `findings` there is written by
hand, one sentence for each fault that was found this way, and kept. A machine that cannot be played
here (no Turkish locale, no user namespaces) is said to be so, and counts as a failure where CI=true.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import page
from _junit import outcome
from _machines import PROCESSORS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "reliability" / "results" / "elsewhere.json"
# Where only the arithmetic differs: what computes, and what reads and draws its numbers.
ARITHMETIC = tuple(
    f"--ignore-glob=*test_{name}*"
    for name in (
        "serve",
        "explorer_b",
        "bench_page",
        "bench_ray",
        "cli.",
        "cli_",
        "examples",
        "benchmarks",
        "fuzz",
        "mutation",
        "soak",
    )
)
TURKISH = "tr_TR.UTF-8"  # where an i has no dot, and a half is 0,5


@dataclass(frozen=True)
class Machine:
    """One of them.

    Attributes:
        environment: Variables that make it.
        options: Of pytest.
        prefix: Words before the command.
        needs: A program without which it cannot be played.
        busy: Loops that run beside the tests.
    """

    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    needs: str | None = None
    busy: int = 0


MACHINES = {
    "plain instructions, one thread, memory that is never zero": Machine(
        PROCESSORS["plain instructions"]
        | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_PERTURB_": "165"},
        ARITHMETIC,
    ),
    "AVX2, two threads": Machine(PROCESSORS["AVX2"] | {"OMP_NUM_THREADS": "2"}, (*ARITHMETIC, "-n1")),
    "an ordinary user, in Turkish, on Kiritimati, in random order": Machine(
        {"LC_ALL": TURKISH, "TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "random"},
        ("--shuffle", "{seed}"),
        ("unshare", "--user", "--map-user=1000", "--map-group=1000"),
        "unshare",
    ),
    "beside two busy loops": Machine(busy=2),
}
# what `make test` takes a few tests to: everything but the load
_FIRST, _, _ABROAD, _ = MACHINES.values()
ALL_AT_ONCE = Machine(
    _FIRST.environment | _ABROAD.environment, ("-n0", "--shuffle", "{seed}"), _ABROAD.prefix, _ABROAD.needs
)


@contextlib.contextmanager
def _locale() -> Iterator[dict[str, str]]:
    """A folder with the Turkish locale, which few machines have."""
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(
            ["localedef", "--inputfile=tr_TR", "--charmap=UTF-8", f"{folder}/{TURKISH}"],
            capture_output=True,
            encoding="utf-8",
        )
        if made.returncode:
            raise FileNotFoundError(f"localedef cannot make {TURKISH}; install Debian's package 'locales'")
        Path(folder).chmod(0o755)
        yield {"LOCPATH": folder}


@contextlib.contextmanager
def _busy(loops: int) -> Iterator[None]:
    """Processes that do nothing, as fast as they can."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def run(machine: Machine, seed: int, tests: list[str]) -> dict[str, Any]:
    """The tests on a machine: counts, failures, and seconds."""
    if machine.needs is not None and shutil.which(machine.needs) is None:
        return {"not played": f"there is no '{machine.needs}' here"}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        environment = os.environ | machine.environment
        try:
            environment |= stack.enter_context(_locale()) if machine.environment.get("LC_ALL") == TURKISH else {}
        except FileNotFoundError as error:
            return {"not played": str(error)}
        report = Path(folder) / "report.xml"
        Path(folder).chmod(0o777)
        options = [option.format(seed=seed) for option in machine.options]
        fixed = ["-q", "--tb=short", "-p", "no:cacheprovider", "-n2", "--dist=worksteal", f"--junitxml={report}"]
        stack.enter_context(_busy(machine.busy))
        started = time.monotonic()
        command = [*machine.prefix, sys.executable, "-m", "pytest", *fixed, *options, *tests]
        done = subprocess.run(command, cwd=ROOT, env=environment)
        if not report.exists():
            return {"not played": f"pytest ended with {done.returncode}"}
        return outcome(report) | {"seconds": round(time.monotonic() - started)}


def main() -> int:
    """Read the command line and run the tests on each machine."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("machines", nargs="*", help="parts of their names; all if none are given")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the random order")
    parser.add_argument("--tests", nargs="*", default=[], help="as pytest takes them; all if none are given")
    given = parser.parse_args()
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    found = {"what": "the tests on machines that this one plays", "findings": []} | found
    chosen = [name for name in MACHINES if not given.machines or any(part in name for part in given.machines)]
    failed = False
    for name in chosen:
        print(f"== {name} (order {given.seed})", flush=True)
        result = run(MACHINES[name], given.seed, given.tests)
        failed |= bool(result.get("failed")) or ("not played" in result and os.environ.get("CI") == "true")
        print(f"== {name}: {_told(result)}", flush=True)
        if not given.tests:
            found.setdefault("machines", {})[name] = result | {"seed": given.seed}
            RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            page.write()  # which the tests on the next machine compare with the results
    return int(failed)


def _told(result: dict[str, Any]) -> str:
    if "not played" in result:
        return f"not played: {result['not played']}"
    return f"{result['passed']} passed, {len(result['failed'])} failed, {len(result['skipped'])} skipped"


if __name__ == "__main__":
    sys.exit(main())
