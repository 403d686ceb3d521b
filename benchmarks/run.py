"""All speed benchmarks, one after the other: what `make bench` runs.

    python benchmarks/run.py [--only step,peers,growth,startup,metrics] [--toy] [--repeats N] [--fresh] [--json FILE]

Each prints its tables; the rows of this run's parts go to one JSON file as well. What was measured is kept in
benchmarks/results/, and `peers` and `growth`, which take long, go on where they stopped; `--fresh` forgets their
earlier rows. Then benchmarks/pages.py writes docs/performance.md from the results. `--toy` shows in seconds that
everything runs, and keeps nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

RESULTS_OF = {
    "step": ("step",),
    "startup": ("startup",),
    "metrics": ("metrics", "passes", "layout"),
    "growth": ("growth",),
    "peers": ("peers",),
}
RESUMED = ("growth", "peers")
TOY_ARGUMENTS = {"step": ["--networks", "toy", "--variants", "none,vm"]}


def run(part: str, toy: bool, repeats: int | None) -> None:
    """One benchmark."""
    arguments = [] if repeats is None else ["--repeats", str(repeats)]
    if toy:
        arguments = ["--repeats", "1", *TOY_ARGUMENTS.get(part, ["--toy"])]
    print(f"\n== {part} ==\n", flush=True)
    importlib.import_module(part).main(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(RESULTS_OF), help="parts, separated by commas")
    parser.add_argument("--toy", action="store_true", help="a tiny network, once; results are thrown away")
    parser.add_argument("--repeats", type=int, help="of each measurement; by default what each benchmark says")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="measure anew what is there already")
    parser.add_argument("--json", type=Path, help="default: performance.json among the results")
    options = parser.parse_args(arguments)
    parts = options.only.split(",")
    if unknown := [part for part in parts if part not in RESULTS_OF]:
        parser.error(f"no part {unknown[0]!r}; choose from {', '.join(RESULTS_OF)}")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # fresh processes start with as many
    with ExitStack() as stack:
        if options.toy:
            os.environ["FEI_BENCH_RESULTS"] = stack.enter_context(tempfile.TemporaryDirectory())
        import torch
        from _common import RESULTS, Results

        torch.set_num_threads(options.threads)
        for part in parts:
            if options.fresh and part in RESUMED:
                for name in RESULTS_OF[part]:
                    Results(name).forget()
            run(part, options.toy, options.repeats)
        document = {
            "versions": {"torch": str(torch.__version__), "python": platform.python_version()},
            "threads": options.threads,
            "toy": options.toy,
            "parts": {name: Results(name).rows for part in parts for name in RESULTS_OF[part]},
        }
        path = options.json or RESULTS / "performance.json"
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(f"\nwrote {path}")


if __name__ == "__main__":
    main()
