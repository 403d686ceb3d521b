"""How long it takes to start: fresh interpreters against one that only imports torch.

    python benchmarks/startup.py [--repeats 11]

All are started in turns, in one run; reported are medians, their ratio to ``import torch``, how many modules are loaded
in the end, and which packages a statement loads that ``import torch`` does not.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _common import Results, alternated, latest, markdown, spread

TORCH = "import torch"
PYTHON = "pass"
STATEMENTS = (
    PYTHON,
    TORCH,
    "import fei",
    "import fei; fei.FEI",
    "import fei; fei.models.load",
    "import fei; fei.metrics.evaluate",
    "import fei; fei.methods.create('fei-vm')",
)
COMMANDS = ("fei --help", "fei explain --help", "fei methods", "fei models")
# A command on the way to its result, up to a place in the code that ends it: who waits sees nothing before the first.
_STOPPED = """
import os, sys, {module}
def stop(*given, **more): os._exit(0)
{module}.{name} = stop
sys.stderr.isatty = lambda: True
from fei.cli import main
main(["explain", {photo!r}, "--out", {folder!r}])
"""
ON_THE_WAY = {
    "fei explain, first word": ("fei.cli.explain", "note"),
    "fei explain, first step": ("fei.core.optimization", "Optimization.run"),
}
_RUN = "import sys; from fei.cli import main\ntry: main({words!r})\nexcept SystemExit: pass"
_REPORT = "\nimport json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
_LEAVE = "import json; print('\\n' + json.dumps(sorted(sys.modules)), file=sys.__stderr__, flush=True); os._exit(0)"
_OWN = {"fei", "json", "torch"}


@functools.cache
def _photo() -> Path:
    """A photograph to explain, in a folder of its own that is gone in the end."""
    from fei.data import demo_image

    folder = tempfile.TemporaryDirectory(prefix="fei-startup-")
    atexit.register(folder.cleanup)
    demo_image("chelsea").save(Path(folder.name) / "chelsea.png")
    return Path(folder.name) / "chelsea.png"


def program(what: str) -> str:
    """The Python code of a statement or of a command line."""
    if what in ON_THE_WAY:
        module, name = ON_THE_WAY[what]
        return _STOPPED.format(module=module, name=name, photo=str(_photo()), folder=str(_photo().parent))
    return _RUN.format(words=what.split()[1:]) if what in COMMANDS else what


def interpreter(code: str) -> list[str]:
    """A fresh interpreter that runs some code."""
    return [sys.executable, "-c", code]


@functools.cache
def modules(what: str) -> set[str]:
    """What a fresh interpreter has imported afterwards."""
    code = program(what).replace("os._exit(0)", _LEAVE) + _REPORT
    done = subprocess.run(interpreter(code), capture_output=True, text=True, check=True, encoding="utf-8")
    return set(json.loads(done.stderr.splitlines()[-1]))


def packages(names: set[str]) -> set[str]:
    """The packages that modules belong to."""
    return {name.partition(".")[0] for name in names}


def measure(cases: Sequence[str], repeats: int) -> list[dict[str, Any]]:
    """A row for each case; ``import torch`` is among them."""

    # as an installation starts: what is compiled to bytecode in the first turn, which does not count, is kept
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def start(what: str) -> None:
        subprocess.run(interpreter(program(what)), capture_output=True, check=True, env=environment)

    taken = alternated({what: lambda what=what: start(what) for what in cases}, repeats)
    torchs = modules(TORCH)
    rows = []
    for what in cases:
        loaded = modules(what)
        beyond = packages(loaded) - packages(torchs) - set(sys.stdlib_module_names) - _OWN
        rows.append(
            {
                "what": what,
                **spread(taken[what], "seconds"),
                **spread([own / base for own, base in zip(taken[what], taken[TORCH], strict=True)], "ratio"),
                "modules": len(loaded),
                "torch": "torch" in loaded,
                "beyond": sorted(name for name in beyond if not name.startswith("_")),
                "repeats": repeats,
            }
        )
    return rows


def table(results: Results) -> str:
    """The last row of each case."""
    return markdown(
        ["fresh interpreter", "seconds", "relative to `import torch`", "loads torch", "packages beyond torch's"],
        [
            [
                f"`python -c {what!r}`" if what == PYTHON else f"`{what}`",
                f"{row['seconds']:.2f}",
                f"{row['ratio']:.2f} ({row['ratio_low']:.2f}–{row['ratio_high']:.2f})",
                "yes" if row["torch"] else "no",
                ", ".join(row["beyond"]) or "–",
            ]
            for (what,), row in latest(results.rows, "what").items()
        ],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true", help="three cases, started once")
    parser.add_argument("--repeats", type=int, default=11)
    options = parser.parse_args(arguments)
    cases = (TORCH, "import fei", "fei --help") if options.toy else (*STATEMENTS, *COMMANDS, *ON_THE_WAY)
    results = Results("startup")
    for row in measure(cases, options.repeats):
        results.append(row)
    print(table(results))


if __name__ == "__main__":
    main()
