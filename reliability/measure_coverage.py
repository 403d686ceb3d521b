"""Line and branch coverage of the core, the metrics and the benchmark, with their worker processes.

    python reliability/measure_coverage.py [--tests tests/test_quantiles.py ...] [--data FOLDER]

Runs the tests that concern these packages, or those named, under coverage.py (`coverage.toml` has the settings),
prints what was not reached and, of a whole run, writes `results/coverage.json`. With `--data` measurements are kept in
a folder and added to those already there, so that a run may be made in pieces; `--tests` without a name then only
counts.

The exit code is 1 if tests fail or a package is below the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROJECT = HERE.parent
SETTINGS = HERE / "coverage.toml"
RESULTS = HERE / "results" / "coverage.json"
PACKAGES = ("core", "metrics", "bench")
LIMIT = 95.0  # percent, of lines and branches together, for each package

# browsers, the served application, real networks and the study say little about these packages and take long
_ABOUT_OTHERS: tuple[str, ...] = (
    "browser",
    "serve",
    "explorer",
    "study",
    "examples",
    "benchmarks",
    "finetune",
    "model",
    "startup",
)
_ABOUT_OTHERS += ("datasets", "images", "real_networks", "mutation", "install", "kill", "fuzz", "soak")


def default_tests() -> list[str]:
    """The test files that concern the three packages."""
    files = sorted((PROJECT / "tests").glob("test_*.py"))
    return [f"tests/{file.name}" for file in files if not any(word in file.stem for word in _ABOUT_OTHERS)]


def _coverage(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """One command of coverage.py on the data in a folder."""
    command, *rest = words
    environment = os.environ | {"COVERAGE_FILE": str(folder / ".coverage"), "PYTHONPATH": str(PROJECT / "src")}
    line = [sys.executable, "-m", "coverage", command, f"--rcfile={SETTINGS}", *rest]
    return subprocess.run(line, cwd=PROJECT, env=environment, text=True, check=False, encoding="utf-8")


def measure(tests: Sequence[str], folder: Path) -> int:
    """Run tests, each file by itself, and add to the measurements; how many files failed."""
    return sum(_coverage(folder, "run", "-m", "pytest", "-q", test).returncode != 0 for test in tests)


def count(folder: Path) -> dict[str, Any]:
    """The figures of each package, and what was not reached."""
    _coverage(folder, "combine", "--quiet", "--keep", "--append")
    report = folder / "report.json"
    _coverage(folder, "json", "--ignore-errors", "--quiet", "-o", str(report))
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    return {package: _package(package, files) for package in PACKAGES}


def _package(package: str, files: dict[str, Any]) -> dict[str, Any]:
    own = {Path(name).name: data for name, data in files.items() if f"fei/{package}/" in name}
    names = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    lines, reached, branches, taken = (sum(data["summary"][name] for data in own.values()) for name in names)
    return {
        "lines": lines,
        "lines reached": reached,
        "branches": branches,
        "branches taken": taken,
        "line coverage": round(100 * reached / lines, 2),
        "branch coverage": round(100 * taken / branches, 2),
        "lines and branches together": round(100 * (reached + taken) / (lines + branches), 2),
        "not reached": {name: _missing(data) for name, data in own.items() if _missing(data)},
    }


def _missing(data: dict[str, Any]) -> str:
    """Lines that were not reached, and branches not taken from lines that were."""
    lines = [str(line) for line in data["missing_lines"]]
    lost = set(data["missing_lines"])
    arrows = [f"{a}->{b if b > 0 else 'exit'}" for a, b in data["missing_branches"] if a not in lost and b not in lost]
    return ", ".join(lines + arrows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Coverage of the core, the metrics and the benchmark.")
    parser.add_argument("--tests", nargs="*", help="run these test files only, and write no results")
    parser.add_argument("--data", type=Path, help="keep measurements in this folder, and count those already there")
    options = parser.parse_args(arguments)
    tests = default_tests() if options.tests is None else options.tests
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.data or Path(temporary)).resolve()
        failed = measure(tests, folder)
        packages = count(folder)
    for package, figures in packages.items():
        print(package, {name: value for name, value in figures.items() if name != "not reached"})
        for name, lines in figures["not reached"].items():
            print(f"  {name}: {lines}")
    if options.tests is None or (options.data and not tests):
        head: dict[str, Any] = {"what": "python reliability/measure_coverage.py", "python": platform.python_version()}
        head |= {"coverage": version("coverage"), "limit, percent": LIMIT}
        head |= {"test files": len(tests)} if tests else {"test files": "those measured before"}
        text = json.dumps(head | {"packages": packages}, indent=1)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text + "\n", encoding="utf-8")
    below = any(figures["lines and branches together"] < LIMIT for figures in packages.values())
    return int(bool(failed) or below)


if __name__ == "__main__":
    sys.exit(main())
