"""Golden values: what every method and metric gives on the embedded network, so that a change of results is seen.

    python reliability/golden.py             compute all entries and compare them with the stored ones
    python reliability/golden.py --write     compute them anew, in several ways, and store them with their tolerances
    python reliability/golden.py --write --only "protocol rise/1"     these alone; others stay

The stored file is `tests/golden/golden.json`; `tests/test_golden.py` compares with it. `--write` computes everything
again with other processor instructions (torch's, oneDNN's, MKL's, OpenBLAS' and NumPy's), thread counts and memory
layouts, each in a process of its own; the file says which. The tolerance of an entry is ten times the largest
difference that these made, rounded up to a power of ten, and never below a floor that leaves room for processors that
were not at hand.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from _depthwise import QuickDepthwise
from _golden_entries import DOUBLE, SINGLE, Series, Setup
from _machines import PROCESSORS

STORED = Path(__file__).resolve().parents[1] / "tests" / "golden" / "golden.json"
ENTRIES = {
    **{name: (torch.float64, compute) for name, compute in DOUBLE.items()},
    **{f"{name} in single precision": (torch.float32, compute) for name, compute in SINGLE.items()},
}
MARGIN = 10
FLOOR = {torch.float64: 1e-9, torch.float32: 1e-3}
# what a processor without vector units, an older one, and another layout with two threads would compute
WAYS: dict[str, tuple[dict[str, str], list[str]]] = {
    **{name: (environment | {"OMP_NUM_THREADS": "1"}, []) for name, environment in PROCESSORS.items()},
    "two threads, channels last": ({"OMP_NUM_THREADS": "2"}, ["--channels-last"]),
}
_SETUPS: dict[torch.dtype, Setup] = {}


def compute(name: str, channels_last: bool = False) -> Series:
    """The numbers of an entry, as this machine and this torch compute them."""
    precision, entry = ENTRIES[name]
    if precision not in _SETUPS:
        _SETUPS[precision] = at = Setup.make(precision)
        if channels_last:
            at.image, at.large = (x.contiguous(memory_format=torch.channels_last) for x in (at.image, at.large))
    with QuickDepthwise():
        return entry(_SETUPS[precision])


def difference(found: Series, expected: Series) -> tuple[float, str]:
    """The largest difference in any series, relative to the largest number of that series, and where it is."""
    if {name: len(values) for name, values in found.items()} != {name: len(v) for name, v in expected.items()}:
        return math.inf, f"series {list(found)} in place of {list(expected)}, or of another length"
    worst, where = 0.0, "nowhere"
    for name, values in expected.items():
        scale = max(map(abs, values)) or 1.0
        for index, (got, wanted) in enumerate(zip(found[name], values, strict=True)):
            away = abs(got - wanted) / scale if math.isfinite(got) else math.inf
            if away > worst:
                worst, where = away, f"{name}[{index}] is {got!r}, expected {wanted!r}"
    return worst, where


def complaint(name: str, found: Series, stored: dict[str, Any]) -> str | None:
    """One sentence if an entry is not what was stored, else None."""
    entry = stored["entries"].get(name)
    if entry is None:
        return f"'{name}' has no golden value; write it with: python reliability/golden.py --write"
    away, where = difference(found, entry["series"])
    if away <= entry["tolerance"]:
        return None
    return (
        f"'{name}' differs from its golden value: {where}; that is {away:.2g} of the series' largest number, the "
        f"tolerance being {entry['tolerance']:g} (written with torch {stored['torch']}, here {torch.__version__})"
    )


def tolerance(name: str, spread: float) -> float:
    """Ten times the measured spread, rounded up to a power of ten, and at least the floor of the precision."""
    wanted = 10.0 ** math.ceil(math.log10(MARGIN * spread)) if spread > 0 else 0.0
    return max(FLOOR[ENTRIES[name][0]], wanted)


def load() -> dict[str, Any]:
    """The stored values."""
    stored: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8"))
    return stored


def write(names: Sequence[str]) -> None:
    """Compute entries in every way, and store the values, the spread and the tolerances."""
    only = [word for name in names for word in ("--only", name)]
    values = {name: compute(name) for name in names}
    others: dict[str, dict[str, Series]] = {
        way: json.loads(_printed(environment, [*how, *only])) for way, (environment, how) in WAYS.items()
    }
    kept = load()["entries"] if STORED.exists() else {}
    entries = {name: kept.get(name) for name in ENTRIES}
    for name, series in values.items():
        spread = {way: difference(found[name], series)[0] for way, found in others.items()}
        entries[name] = {
            "tolerance": tolerance(name, max(spread.values())),
            "spread": {way: float(f"{away:.1e}") for way, away in spread.items()},
            "series": series,
        }
    facts = {
        "about": "written by reliability/golden.py --write; differences are relative to the largest number of a series",
        "torch": str(torch.__version__),
        "ways": {
            way: " ".join([f"{k}={v}" for k, v in environment.items()] + how)
            for way, (environment, how) in WAYS.items()
        },
        "entries": entries,
    }
    STORED.parent.mkdir(parents=True, exist_ok=True)
    STORED.write_text(_text(facts), encoding="utf-8")


def _printed(environment: dict[str, str], options: list[str]) -> str:
    """All entries, computed by a process in another environment; one at a time, since threads in excess only wait."""
    command = [sys.executable, __file__, "--print", *options]
    return subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.PIPE, check=True, encoding="utf-8"
    ).stdout


def _text(facts: dict[str, Any]) -> str:
    """JSON with one line a series."""
    lines = [
        "{",
        *(f" {json.dumps(key)}: {json.dumps(facts[key])}," for key in ("about", "torch", "ways")),
        ' "entries": {',
    ]
    blocks = []
    for name, entry in facts["entries"].items():
        head = ", ".join(f"{json.dumps(key)}: {json.dumps(entry[key])}" for key in ("tolerance", "spread"))
        series = ",\n".join(
            f"   {json.dumps(key)}: [{', '.join(f'{value:.13g}' for value in values)}]"
            for key, values in entry["series"].items()
        )
        blocks.append(f'  {json.dumps(name)}: {{{head}, "series": {{\n{series}}}}}')
    return "\n".join([*lines, ",\n".join(blocks), " }", "}"]) + "\n"


def main() -> int:
    """Read the command line; compare, print or write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="store what is computed now")
    parser.add_argument("--print", action="store_true", help="print what is computed as JSON")
    parser.add_argument("--channels-last", action="store_true", help="give the image channels last")
    parser.add_argument("--only", action="append", choices=ENTRIES, help="this entry; may be repeated", metavar="NAME")
    given = parser.parse_args()
    names = given.only or list(ENTRIES)
    if given.print:
        print(json.dumps({name: compute(name, given.channels_last) for name in names}))
    elif given.write:
        write(names)
    else:
        stored = load()
        complaints = [text for name in names if (text := complaint(name, compute(name, given.channels_last), stored))]
        print("\n".join(complaints) or f"{len(names)} entries are as stored")
        return 1 if complaints else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
