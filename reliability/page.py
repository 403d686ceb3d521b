"""The figures of docs/reliability.md, from the last run of each tool.

python reliability/page.py            writes the page
python reliability/page.py --check    says whether it is up to date, by its exit code

The words are here, the numbers in `results/`. A tool that has not been run yet is said to be so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "reliability.md"
Figures = dict[str, Any]


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown: words to the left, numbers to the right."""
    lines = [[_cell(cell) for cell in row] for row in rows]
    heads = list(heads)
    numbers = [all(line[place][:1].isdigit() for line in lines) for place in range(len(heads))]
    ruler = ["--:" if right else ":--" for right in numbers]
    return "\n".join("| " + " | ".join(line) + " |" for line in [heads, ruler, *lines]) + "\n"


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def bullets(lines: Iterable[str]) -> str:
    """A list in Markdown."""
    return "".join(f"- {line}\n" for line in lines) or "- none\n"


def fuzz(found: Figures) -> str:
    """Files that are damaged on purpose."""
    targets = found["targets"].values()
    rows = [
        (t["target"], t["cases"], t["accepted"], t["refused"], len(t["findings"]), t["slowest_seconds"], t["peak_mib"])
        for t in targets
    ]
    cases, findings = (sum(row[place] for row in rows) for place in (1, 4))
    return (
        f"{cases:,} files, each a pure function of its number, {findings} finding(s). A file is read, or refused with "
        "one sentence; anything else, a file written elsewhere, memory beyond the bound and time beyond it included, "
        "is a finding.\n\n" + table(("what", "files", "read", "refused", "findings", "slowest, s", "peak, MiB"), rows)
    )


def properties(found: Figures) -> str:
    """Random arguments."""
    rows = [
        (name, len(area["examples"]), sum(area["examples"].values()), "passed" if area["passed"] else "**failed**")
        for name, area in found["files"].items()
    ]
    return (
        f"{len(found['functions_covered'])} public functions; a test fails if one is added without. "
        f"{found['total_examples']:,} examples in the last long run.\n\n"
        + table(("area", "tests", "examples", "outcome"), rows)
        + "\nWhat they found, all mended:\n\n"
        + bullets(found["findings"])
    )


def soak(found: Figures) -> str:
    """Half an hour of everything."""
    rows = [
        (name.replace("_", " "), v["second_quarter"], v["last_quarter"], v["last"], "yes" if v["passed"] else "**no**")
        for name, v in found["verdicts"].items()
    ]
    return (
        f"{found['minutes']:g} minutes, {found['jobs']:,} jobs of {len(found['jobs_by_kind'])} kinds in one process: "
        f"**{'passed' if found['passed'] else 'failed'}**. Medians of the samples:\n\n"
        + table(("", "second quarter", "last quarter", "last sample", "flat"), rows)
    )


def load(found: Figures) -> str:
    """The page among hostile visitors."""
    rows = [
        ("honest visits, and those served", f"{found['visits']}, {found['visits_served']}"),
        ("median visit against one alone", f"{found['visit_ratio']} ×"),
        ("hostile stays, of 15 kinds", found["attacks"]),
        ("memory before, peak, after, MB", _three(found, "memory_mb")),
        ("file descriptors before, peak, after", _three(found, "descriptors")),
        ("threads before, peak, after", _three(found, "threads")),
        ("files left when all had gone", len(found["files_left_when_all_had_gone"])),
        (
            "paths written or unexpectedly read outside its folder",
            sum(map(len, found["paths_touched_outside"].values())),
        ),
        ("calls that the kernel counted", found["kernel_account"].get("calls", "not watched")),
        ("findings", len(found["findings"])),
    ]
    return f"{found['seconds']:g} seconds against `fei serve` in a process of its own, on loopback.\n\n" + table(
        ("", "measured"), rows
    )


def _three(found: Figures, name: str) -> str:
    return ", ".join(_cell(found[f"{name}_{when}"]) for when in ("before", "peak", "after"))


def mutate(found: Figures) -> str:
    """Code changed here and there."""
    names = ("mutants", "killed by a test", "killed by timeout", "explained as equivalent", "survived")
    rows = [(f"`{file}`", *(row[name] for name in names)) for file, row in found["files"].items()]
    rows.append(("**all**", *(found["all"][name] for name in names)))
    missing = found["files not tried yet"]
    return (
        table(("file", *names), rows)
        + (f"\nNot tried yet: {', '.join(missing)}.\n" if missing else "")
        + "\nWhy a mutant counts as equivalent stands in `reliability/equivalent_mutants.toml`; the tool says when an "
        "entry there no longer fits the code.\n"
    )


def coverage(found: Figures) -> str:
    """Lines and branches that the tests reach."""
    names = ("lines", "line coverage", "branches", "branch coverage", "lines and branches together")
    rows = [(f"`{package}`", *(figures[name] for name in names)) for package, figures in found["packages"].items()]
    heads = ("package", "lines", "reached, %", "branches", "taken, %", "together, %")
    return table(heads, rows) + "\nActors of Ray run in processes that are not watched.\n"


def elsewhere(found: Figures) -> str:
    """The tests on machines that are played."""
    rows = [
        (name, result.get("passed", "not played"), len(result.get("failed", ())), len(result.get("skipped", ())))
        for name, result in found["machines"].items()
    ]
    return (
        "Processor features are taken away from torch, oneDNN, MKL, OpenBLAS and NumPy by environment variables; files "
        "about pages are left out where only the arithmetic differs.\n\n"
        + table(("machine", "passed", "failed", "skipped"), rows)
        + "\nWhat they found, all mended:\n\n"
        + bullets(found["findings"])
    )


def oldest(found: Figures) -> str:
    """The oldest torch that is supported."""
    versions = found["versions"]
    words = f"torch {versions['torch']}, torchvision {versions['torchvision']}, otherwise the newest that fit: "
    words += f"{found['passed']:,} tests passed, {found['failed']} failed, {found['skipped']} skipped"
    missing = found["not_run"]
    words += f" in {found['files']} files; not run yet: {', '.join(missing)}.\n" if missing else ".\n"
    return words


SECTIONS: dict[str, tuple[str, str, Callable[[Figures], str]]] = {
    "fuzz": ("Damaged files", "make fuzz", fuzz),
    "properties": ("Random arguments", "python reliability/properties.py", properties),
    "soak": ("Half an hour of everything", "make soak", soak),
    "load": ("Many visitors, some of them hostile", "make load", load),
    "mutate": ("Would the tests notice?", "make mutate", mutate),
    "coverage": ("What the tests reach", "make coverage", coverage),
    "elsewhere": ("Other machines", "make test-elsewhere", elsewhere),
    "oldest": ("The oldest torch", "python reliability/oldest.py --python OLD/bin/python", oldest),
}
INTRODUCTION = """# Reliability

<!-- Written by `python reliability/page.py` from reliability/results. -->

What the project is held to beside its tests: the last figures of each tool. A slice of each is part of `make test`.
Threats, and what is not defended against, are in [SECURITY.md](../SECURITY.md).
"""
CLOSING = """
## Numbers that repeat

`tests/golden/` holds small tensors of every method and numbers of every metric on the embedded network, each with its
tolerance and why it is that large; `python reliability/golden.py --write` writes them again after a change that is
meant. A new torch that computes something else is seen by `tests/test_golden.py`.

## Supply chain

Every package that the tests install is pinned exactly in `constraints.txt`. `pip-audit -r constraints.txt --no-deps
--disable-pip` asks a database of known vulnerabilities; where these figures were made no such database could be reached
(neither PyPI's nor OSV's), so its answer is **not known** and the check is yours to make. The package has no `eval`, no
`exec`, no unpickling of files, no YAML and no shell; `ruff`'s security rules are on.
"""


def page() -> str:
    """The page as it should be."""
    parts = [INTRODUCTION]
    for name, (title, command, words) in SECTIONS.items():
        file = HERE / "results" / f"{name}.json"
        told = words(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else "Not run as a whole yet.\n"
        parts.append(f"\n## {title}\n\n`{command}`\n\n{told}")
    return "".join(parts) + CLOSING


def write() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def main() -> int:
    """Write the page, or check it."""
    if "--check" in sys.argv[1:]:
        return int(not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page())
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
