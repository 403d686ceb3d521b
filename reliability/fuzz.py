"""Gives damaged files to everything that reads files, and sees that nothing but an answer or one sentence comes back.

    python reliability/fuzz.py [--cases 100000] [--seed 0] [--only images,plans] [--seconds 600]
    python reliability/fuzz.py --case images:4711                       # one case again, with its traceback
    python reliability/fuzz.py --resume reliability/results/fuzz.json   # goes on with a run that was broken off

Cases are made from whole files that the library itself wrote, changed where their format has structure (a PNG's chunks
with right checksums, a pickle in a checkpoint, cells of a run's database, tokens of a plan), and by plain damage to
bytes. A case is a function of target, seed and number alone. Each runs in a worker process that lives on, and is judged
there, see `_fuzz_worker.py`; a worker that dies or hangs is a finding too, and is replaced. Findings are saved with
their files, made small where that is quick, to --findings; the exit code is 1 if there are any.

The mutations are our own and not atheris': that stops at the first finding and sees no branch of the decoders, which
are in C, and hypothesis keeps a data base and cannot go on behind a crash. So a number names a case for good.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from _fuzz_targets import TARGETS
from _fuzz_worker import ADDRESS_SPACE, MAX_CPU_SECONDS, MEBIBYTE, Case, Judge, Target, Verdict, Watch, make_case, work

RESULTS = Path(__file__).parent / "results" / "fuzz.json"
PATIENCE = 60.0
"""Seconds on the clock after which a case hangs; the machine may be busy with other things."""

_LOADING = 300.0
_BATCH, _SAVED = 50, 20.0  # cases sent at once, and seconds between two states on disk


@dataclass
class Tally:
    """What came of a target's cases."""

    target: str
    cases: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest_case: int = -1
    slowest_seconds: float = 0.0
    largest_case: int = -1
    peak_mib: float = 0.0
    findings: list[dict[str, Any]] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """Count a case."""
        self.cases += 1
        self.accepted += verdict.accepted and verdict.finding is None
        self.refused += not verdict.accepted and verdict.finding is None
        self.seconds = round(self.seconds + verdict.seconds, 3)
        if verdict.seconds > self.slowest_seconds:
            self.slowest_case, self.slowest_seconds = verdict.number, round(verdict.seconds, 3)
        if verdict.peak / MEBIBYTE > self.peak_mib:
            self.largest_case, self.peak_mib = verdict.number, round(verdict.peak / MEBIBYTE, 1)


class Crew:
    """One worker for a target, replaced when it dies or hangs."""

    def __init__(self, target: Target, seed: int, patience: float, max_seconds: float) -> None:
        self._target, self._seed, self._patience, self._max_seconds = target, seed, patience, max_seconds
        self._process: Any = None
        self._root: Path | None = None

    def judge(self, numbers: Sequence[int]) -> list[Verdict]:
        """The verdicts on some cases; on all up to the first that killed the worker, or made it hang."""
        if self._process is None:
            self._start()
        self._connection.send(numbers)
        verdicts: list[Verdict] = []
        for number in numbers:
            try:
                if self._connection.poll(self._patience):
                    verdicts.append(self._connection.recv())
                    continue
                finding = f"it hung for more than {self._patience:g} s"
            except EOFError:
                self._process.join()
                finding = f"the process died with exit code {self._process.exitcode}"
            self.close()
            files = dict(make_case(self._target, self._seed, number).files)
            return [*verdicts, Verdict(number, False, 0.0, 0, finding, files=files)]
        return verdicts

    def close(self) -> None:
        """End the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)

    def _start(self) -> None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        context = multiprocessing.get_context("spawn")  # torch and forks do not agree
        memory = Path("/dev/shm")  # a disk would be worn out for nothing
        self._root = Path(tempfile.mkdtemp(prefix="fei-fuzz-", dir=memory if os.access(memory, os.W_OK) else None))
        self._connection, theirs = context.Pipe()
        arguments = (theirs, self._target, self._seed, str(self._root), self._max_seconds)
        self._process = context.Process(target=work, args=arguments)
        self._process.start()
        theirs.close()
        if not self._connection.poll(_LOADING):
            raise RuntimeError(f"the worker for '{self._target.name}' did not start in {_LOADING:g} s")
        self._connection.recv()


def fuzz(
    target: Target, cases: int, seed: int, *, seconds: float = float("inf"), findings: Path | None = None,
    patience: float = PATIENCE,
    max_seconds: float = MAX_CPU_SECONDS,
    tally: Tally | None = None,
    save: Callable[[Tally], None] = lambda tally: None,
) -> Tally:  # fmt: skip
    """Run the first cases of a target, as many as there is time for.

    Args:
        target: What to fuzz.
        cases: How many.
        seed: Of the cases.
        seconds: When to stop.
        findings: A folder for the files of findings, if they are to be kept.
        patience: After how many seconds a case hangs.
        max_seconds: Of the processor, for one case.
        tally: What came of the first cases before, to go on behind them.
        save: Called now and then with what came of the cases so far.
    """
    tally, crew = tally or Tally(target.name), Crew(target, seed, patience, max_seconds)
    end, saved = time.monotonic() + seconds, time.monotonic()
    try:
        while tally.cases < cases and time.monotonic() < end:
            for verdict in crew.judge(range(tally.cases, min(tally.cases + _BATCH, cases))):
                tally.add(verdict)
                if verdict.finding is not None:
                    tally.findings.append({"case": f"{target.name}:{verdict.number}", "what": verdict.finding})
                    _keep(findings, target.name, verdict)
            if time.monotonic() > saved + _SAVED:
                save(tally)
                saved = time.monotonic()
    finally:
        crew.close()
    return tally


def _keep(folder: Path | None, target: str, verdict: Verdict) -> None:
    """Save the files of a finding, and what is wrong."""
    if folder is None:
        return
    place = folder / f"{target}-{verdict.number}"
    for name, content in verdict.files.items():
        file = place / "files" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    place.mkdir(parents=True, exist_ok=True)
    (place / "finding.txt").write_text(f"{verdict.finding}\n\n{verdict.details}", encoding="utf-8", errors="replace")


def replay(target: Target, seed: int, number: int) -> int:
    """Run one case in this process, and show what comes of it; it stays in a folder to look at."""
    root = Path(tempfile.mkdtemp(prefix="fei-fuzz-case-"))
    judge = Judge(target, root, Watch())
    judge.accept_valid()
    verdict = judge.judge(seed, number)
    case: Case = make_case(target, seed, number)
    _keep(root / "found", target.name, verdict)
    print(
        f"{len(case.files)} files, damaged: {case.victim} ({len(case.files.get(case.victim, b''))} bytes), {case.ask}"
    )
    print(f"accepted: {verdict.accepted}, {verdict.seconds:.3f} s, {verdict.peak / MEBIBYTE:.1f} MiB, in {root}")
    print(f"finding: {verdict.finding}\n{verdict.details}")
    return int(verdict.finding is not None)


def shares(cases: int, only: Sequence[str]) -> dict[str, int]:
    """How many cases each target gets: by its weight, which goes by its speed."""
    chosen = {name: entry.weight for name, entry in TARGETS.items() if name in only}
    return {name: -(-cases * weight // sum(chosen.values())) for name, weight in chosen.items()}


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    names = ("fei", "torch", "numpy", "pillow", "safetensors", "pydantic", "pyarrow", "scipy", "transformers")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def _document(arguments: argparse.Namespace, tallies: list[Tally], started: float) -> dict[str, Any]:
    return {
        "what": "damaged files given to every reader; a case passes if it is read or refused in one sentence",
        "command": f"python reliability/fuzz.py --cases {arguments.cases} --seed {arguments.seed}",
        "seed": arguments.seed,
        "cases": sum(tally.cases for tally in tallies),
        "accepted": sum(tally.accepted for tally in tallies),
        "refused": sum(tally.refused for tally in tallies),
        "findings": sum(len(tally.findings) for tally in tallies),
        "minutes": round((time.monotonic() - started) / 60, 1),
        "limits": {
            "processor_seconds": MAX_CPU_SECONDS,
            "hang_seconds": PATIENCE,
            "address_space_gib": ADDRESS_SPACE >> 30,
            "memory_mib": {name: TARGETS[name].target.max_bytes // MEBIBYTE for name in TARGETS},
        },
        "versions": _versions(),
        "targets": {tally.target: asdict(tally) for tally in tallies},
    }


def _earlier(file: Path | None) -> dict[str, Any]:
    """The figures of a run that was broken off."""
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file is not None else {}
    return document


def main(words: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(TARGETS), help="targets, with commas")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of all together; each gets its share")
    parser.add_argument("--case", help="TARGET:NUMBER, to run one again")
    parser.add_argument("--findings", type=Path, default=Path(tempfile.gettempdir()) / "fei-fuzz-findings")
    parser.add_argument("--resume", type=Path, help="figures of a run that was broken off, to go on with it")
    parser.add_argument("--json", type=Path, default=None, help=f"where figures go; {RESULTS.name} after a full run")
    arguments = parser.parse_args(words)
    if arguments.case:
        name, _, number = arguments.case.partition(":")
        return replay(TARGETS[name].target, arguments.seed, int(number))
    plan = shares(arguments.cases, arguments.only.split(","))
    file = arguments.json or (RESULTS if plan.keys() == TARGETS.keys() else None)
    before = _earlier(arguments.resume)
    started = time.monotonic() - 60 * before.get("minutes", 0)
    tallies: list[Tally] = []

    def save(tally: Tally) -> None:
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            document = _document(arguments, [*tallies, tally], started)
            file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    for name, cases in plan.items():
        share = arguments.seconds * cases / sum(plan.values())
        earlier = Tally(**before["targets"][name]) if name in before.get("targets", {}) else None
        tally = fuzz(
            TARGETS[name].target, cases, arguments.seed, seconds=share, findings=arguments.findings, tally=earlier,
            save=save,
        )  # fmt: skip
        save(tally)
        tallies.append(tally)
        print(
            f"{name:13}{tally.cases:8} cases {tally.accepted:7} read {tally.refused:7} refused "
            f"{len(tally.findings):5} findings; slowest {tally.slowest_seconds:.2f} s, peak {tally.peak_mib:.0f} MiB",
            flush=True,
        )
        for finding in tally.findings[:10]:
            print(f"    {finding['case']}: {finding['what']}", flush=True)
    found = sum(len(tally.findings) for tally in tallies)
    if found:
        print(f"The files of {found} findings are in {arguments.findings}.")
    return int(found > 0)


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "agg")
    sys.exit(main())
