"""Compute the study, or what is missing of it, and keep its scores in studies/scores.

    python -m studies.run [--workers 2] [--only PLAN …] [--keep-maps]      # again to go on after an interruption
    python -m studies.run --at-most 4                                       # a few photographs of every plan first
    python -m studies.run --export                                          # only write the scores computed so far
    python -m studies.run --costs                                           # passes and seconds that each plan takes
    python -m studies.run --trial --out FOLDER                              # everything once, as small as it gets

Each plan is run by `fei bench run` or `fei bench resume` in a folder of its own below `--out`. Whatever another plan of
the study has computed already, on this machine or in the committed scores, is taken over, so that on a machine with
nothing but a checkout nothing is computed twice. The networks and photographs are read from the folder that the
environment variable FEI_ASSETS names.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from studies._plans import ORDER, SCORES, SECOND, changed, plan_of
from studies._scores import counted, keep
from studies.photographs import ASSETS, ROOT

from fei.bench.store import Store

_STOPPED = 3


def run_plan(name: str, options: argparse.Namespace) -> int:
    """Compute what is missing of a plan and keep its scores: 0, 1 if units failed, more if it did not end by itself."""
    folder = options.out / name
    there = counted(name, options.scores)
    plan = changed(
        plan_of(name), trial=options.trial, keep_maps=options.keep_maps, at_most=options.at_most, there=there
    )
    written = options.out / f"{name}.toml"
    written.write_text(plan.text, encoding="utf-8")
    if Store.begun(folder):
        command = ["resume", str(folder), "--plan", str(written)]
        command += ["--retry-failed"] if options.retry_failed else []
    else:
        command = ["run", str(written), "--out", str(folder)]
    command += ["--workers", str(options.workers), "--threads", str(options.threads)]
    for source in _others(name, options):
        command += ["--reuse", str(source)]
    print(f"{name}: {plan.name}", flush=True)
    code = _bench(*command)
    if code not in (0, 1) or not _is_through(folder):  # of units in part from other plans the store does not tell
        return code if code > 1 else _STOPPED
    export_plan(name, options)
    return code


def export_plan(name: str, options: argparse.Namespace) -> None:
    """Write the scores of a plan's run, if it was begun."""
    folder, table = options.out / name, options.out / f"{name}.parquet"
    if not Store.begun(folder):
        return
    if _bench("export", str(folder), str(table)) == 0 and keep(folder, table, options.scores / name):
        print(f"{options.scores / name}.parquet is new", flush=True)
    table.unlink(missing_ok=True)


def main() -> int:
    """Do what was asked for; 0 if all units are there, 1 if some failed, another code if a plan could not be run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "study", help="folder of the runs")
    every = (*ORDER, *SECOND)
    parser.add_argument(
        "--only", nargs="+", choices=every, default=SECOND, metavar="PLAN",
        help=f"the second edition if not given; {', '.join(every)}",
    )  # fmt: skip
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of torch in each worker")
    parser.add_argument("--keep-maps", action="store_true", help="keep the maps too, for studies/gallery.py")
    parser.add_argument(
        "--at-most",
        type=int,
        metavar="N",
        help="photographs and trials, those that have scores apart; again without it for the rest",
    )
    parser.add_argument("--retry-failed", action="store_true", help="try units that failed again")
    parser.add_argument("--export", action="store_true", help="only write the scores computed so far")
    parser.add_argument("--costs", action="store_true", help="only print what each plan takes")
    parser.add_argument("--trial", action="store_true", help="one photograph, one seed and two steps; needs --out")
    options = parser.parse_args()
    if options.trial and options.out == parser.get_default("out"):
        parser.error("--trial needs an --out of its own: its results are not those of the study")
    if options.at_most is not None and options.at_most < 1:
        parser.error(f"--at-most is {options.at_most}; give at least 1")
    if options.costs:
        from studies._costs import cost_table

        print(cost_table(options.only))
        return 0
    if not (ASSETS / "zoo.py").is_file():
        parser.error(f"there are no networks and photographs in {ASSETS}; set FEI_ASSETS to the folder with zoo.py")
    options.out = options.out.resolve()
    options.scores = options.out / "scores" if options.trial else SCORES
    for folder in (options.out, options.scores):
        folder.mkdir(parents=True, exist_ok=True)
    worst = 0
    for name in options.only:
        if options.export:
            export_plan(name, options)
            continue
        worst = max(worst, code := run_plan(name, options))
        if code > 1:
            return code  # interrupted, or refused with a sentence
    return worst


def _is_through(folder: Path) -> bool:
    """Whether every unit of a run is done or has failed."""
    if not Store.begun(folder):
        return False
    with Store.open(folder, readonly=True) as store:
        counts = store.counts()
    return counts["pending"] == 0 and counts["done"] + counts["failed"] > 0


def _others(name: str, options: argparse.Namespace) -> list[Path]:
    """What a plan may take results from: the runs of the others, with their maps, and then all committed scores."""
    every = (*ORDER, *SECOND)
    runs = [options.out / other for other in every if other != name and Store.begun(options.out / other)]
    files = [] if options.trial else [SCORES / f"{other}.parquet" for other in every]
    return runs + [file for file in files if file.is_file()]


def _bench(*words: str) -> int:
    """A command of `fei bench`, in the folder that the plans' paths count from."""
    command = [sys.executable, "-m", "fei", "bench", *words]
    return subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
