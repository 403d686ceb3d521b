"""Mutation testing of what every number rests on: would the tests notice if the code were wrong?

    python reliability/mutate.py [--only core/clipgrad.py] [--sample 15 --seed 0] [--resume FILE] [--tests FILE ...]

One place of a file is changed at a time (`_mutants.py` lists the ways), and the file's tests are run, the quickest
first. A mutant is killed by the first test that fails, or by a timeout; it survives if all pass. Survivors
must be killed by a better test or explained in `equivalent_mutants.toml`, whose entries must match a mutant that the
source still has. The figures of each file go to `results/mutate.json` when it is done. The exit code is 1 if a mutant
survives unexplained or an explanation is stale.

With `--resume` outcomes are kept in a file, and a mutant that was killed before is not tried again as long as its file
is unchanged; with `--sample` that many mutants of each file are tried, and with `--tests` other tests are run.

Existing tools were looked at. mutmut 3 changes the bodies of undecorated functions only, and so neither the table of
rules nor a property; cosmic-ray rewrites the source files in place and starts a Python, with torch, for each mutant.
Here a mutant runs in a fork of a process that has imported all but the package itself, and no file is written.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import random
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a fork has no other threads, and must not wait for them

from _mutant_runs import PACKAGE, PROJECT, Outcome, run_all, warm_up
from _mutants import Mutant, mutants_of

HERE = Path(__file__).parent
EXPLAINED = HERE / "equivalent_mutants.toml"
RESULTS = HERE / "results" / "mutate.json"

_CURVES = [
    "tests/test_metrics.py",
    "tests/test_protocols.py",
    "tests/test_token_drop.py",
    "tests/test_transformer_metrics.py",
    "tests/test_first_hour_api.py",
]
TARGETS: dict[str, list[str]] = {
    "core/clipgrad.py": ["tests/test_clipgrad.py", "tests/test_pathway.py", "tests/test_holding.py"],
    "core/quantiles.py": ["tests/test_quantiles.py", "tests/test_device.py"],
    "metrics/curve.py": _CURVES,
    "metrics/perturbation.py": _CURVES,
    "metrics/evaluation.py": [*_CURVES, "tests/test_relevance.py", "tests/test_bench_measure.py"],
    "metrics/_passes.py": [*_CURVES, "tests/test_relevance.py"],
    "protocols.py": _CURVES,
}


@dataclass(frozen=True)
class Explanations:
    """The reasons why some mutants need not be killed."""

    entries: list[dict[str, str]]

    @classmethod
    def read(cls) -> Explanations:
        """Those of the committed list."""
        return cls(tomllib.loads(EXPLAINED.read_text(encoding="utf-8")).get("mutant", []))

    def of(self, mutant: Mutant) -> str | None:
        """Why this one is equivalent, if it is."""
        return next((e["reason"] for e in self.entries if _names(e, mutant)), None)

    def stale(self, file: str, mutants: Sequence[Mutant]) -> list[str]:
        """Entries about a file that match none of its mutants."""
        about = [entry for entry in self.entries if entry["file"] == file]
        return [f"{e['scope']}: {e['after']}" for e in about if not any(_names(e, mutant) for mutant in mutants)]


def _names(entry: dict[str, str], mutant: Mutant) -> bool:
    return (entry["file"], entry["scope"], entry["before"], entry["after"]) == mutant.key


class Journal:
    """Which mutants were killed before, in a file of JSON lines."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.ends = path, dict[str, str]()
        if path and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                note = json.loads(line)
                self.ends[note["digest"]] = note["end"]

    def before(self, mutant: Mutant) -> str | None:
        """How it was killed, if it was."""
        end = self.ends.get(_digest(mutant))
        return None if end == "passed" else end

    def add(self, mutant: Mutant, outcome: Outcome) -> None:
        """Note an outcome."""
        if self.path:
            note = {"digest": _digest(mutant), "end": outcome.end, "by": outcome.by, "after": mutant.after}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(note, ensure_ascii=False) + "\n")


def _digest(mutant: Mutant) -> str:
    return hashlib.sha256((mutant.file + mutant.source).encode()).hexdigest()


def examine(file: str, tests: Sequence[str], mutants: Sequence[Mutant], journal: Journal) -> dict[str, Any]:
    """Try mutants of one file; the figures of its table row, and who survived."""
    explanations = Explanations.read()
    ends: Counter[str] = Counter()
    survivors: list[Mutant] = []
    open_ones = []
    for mutant in mutants:
        end = "explained" if explanations.of(mutant) else journal.before(mutant)
        if end is None:
            open_ones.append(mutant)
        else:
            ends[end] += 1

    def note(mutant: Mutant, outcome: Outcome) -> None:
        journal.add(mutant, outcome)
        ends[outcome.end] += 1
        if outcome.end == "passed":
            survivors.append(mutant)
            print(f"survived: {file}:{mutant.line} {mutant.scope}\n  - {mutant.before}\n  + {mutant.after}", flush=True)

    if open_ones:
        baseline = run_all(tests, open_ones, note)
        if baseline.end != "passed" or not baseline.durations:
            raise SystemExit(
                f"the tests of {file} do not pass on the unchanged source: {baseline.by or 'none was run'}"
            )
    tried = len(mutants) - ends["explained"]
    return {
        "mutants": len(mutants),
        "killed by a test": ends["failed"],
        "killed by timeout": ends["timeout"],
        "explained as equivalent": ends["explained"],
        "survived": ends["passed"],
        "score": round((tried - ends["passed"]) / tried, 4) if tried else 1.0,
        "tests": list(tests),
        "survivors": [{"scope": m.scope, "before": m.before, "after": m.after} for m in survivors],
    }


def _sampled(mutants: list[Mutant], sample: int | None, seed: int) -> list[Mutant]:
    if sample is None or sample >= len(mutants):
        return mutants
    return random.Random(seed).sample(mutants, sample)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Mutation testing of the core and the external metrics.")
    parser.add_argument("--only", choices=TARGETS, action="append", help="this file; may be repeated")
    parser.add_argument("--sample", type=int, help="try this many mutants of each file, drawn with --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", type=Path, help="keep outcomes in this file and do not repeat what was killed")
    parser.add_argument("--tests", nargs="+", help="run these tests in place of the files' own")
    options = parser.parse_args(arguments)
    journal = Journal(options.resume and options.resume.resolve())
    chosen = {file: options.tests or TARGETS[file] for file in options.only or TARGETS}
    warm_up([test for tests in chosen.values() for test in tests])
    failed = False
    with contextlib.chdir(PROJECT):
        for file, tests in chosen.items():
            start = time.monotonic()
            mutants = mutants_of(file, (PACKAGE / file).read_text(encoding="utf-8"))
            stale = Explanations.read().stale(file, mutants)
            for entry in stale:
                print(f"stale explanation, no such mutant any more: {file} {entry}")
            row = examine(file, tests, _sampled(mutants, options.sample, options.seed), journal)
            print(file, {name: value for name, value in row.items() if isinstance(value, (int, float))}, flush=True)
            if options.sample is None and options.tests is None:
                _write(file, row if options.resume else row | {"seconds": round(time.monotonic() - start)})
            failed |= bool(stale) or row["survived"] > 0
    return int(failed)


def _write(file: str, row: dict[str, Any]) -> None:
    """Put the figures of one file into the results, beside those of the others."""
    known = json.loads(RESULTS.read_text(encoding="utf-8"))["files"] if RESULTS.exists() else {}
    rows = {name: row if name == file else known[name] for name in TARGETS if name == file or name in known}
    counts = ("mutants", "killed by a test", "killed by timeout", "explained as equivalent", "survived")
    total = {name: sum(figures[name] for figures in rows.values()) for name in counts}
    tried = total["mutants"] - total["explained as equivalent"]
    head: dict[str, Any] = {
        "what": "python reliability/mutate.py",
        "python": platform.python_version(),
        "torch": version("torch"),
    }
    head |= {"files not tried yet": [name for name in TARGETS if name not in rows]}
    summary = head | {"all": total | {"score": round((tried - total["survived"]) / tried, 4)}, "files": rows}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
