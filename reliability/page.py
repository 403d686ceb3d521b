"""Write docs/reliability.md from the figures of each tool's last run.

python reliability/page.py            writes the page
python reliability/page.py --check    says whether it is up to date, by its exit code

The words are here, the numbers are in `results/`. The page says which tools have not been run yet.
"""

from __future__ import annotations

import json
import re
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
    """Files that were damaged on purpose."""
    targets = found["targets"].values()
    rows = [
        (t["target"], t["cases"], t["accepted"], t["refused"], len(t["findings"]), t["slowest_seconds"], t["peak_mib"])
        for t in targets
    ]
    cases, findings = (sum(row[place] for row in rows) for place in (1, 4))
    return (
        f"{cases:,} damaged files, each made from its number alone so that it can be made again: {findings} "
        "finding(s). A file must be read, or refused with one sentence. Anything else is a finding, and so is a file "
        "that is written elsewhere, or more memory or time than the limit.\n\n"
        + table(("what", "files", "read", "refused", "findings", "slowest, s", "peak, MiB"), rows)
    )


def properties(found: Figures) -> str:
    """Random arguments."""
    rows = [
        (name, len(area["examples"]), sum(area["examples"].values()), "passed" if area["passed"] else "**failed**")
        for name, area in found["files"].items()
    ]
    return (
        f"{len(found['functions_covered'])} public functions are called with random arguments; a test fails if a "
        f"public function is added without this. {found['total_examples']:,} examples in the last long run.\n\n"
        + table(("area", "tests", "examples", "outcome"), rows)
        + "\nWhat this found, mended unless it says otherwise:\n\n"
        + bullets(found["findings"])
    )


def soak(found: Figures) -> str:
    """Half an hour of mixed work."""
    rows = [
        (name.replace("_", " "), v["second_quarter"], v["last_quarter"], v["last"], "yes" if v["passed"] else "**no**")
        for name, v in found["verdicts"].items()
    ]
    return (
        f"{found['minutes']:g} minutes, {found['jobs']:,} jobs of {len(found['jobs_by_kind'])} kinds in one process, "
        "in which memory, open files and threads must not grow: "
        f"**{'passed' if found['passed'] else 'failed'}**. Medians over samples taken during the run:\n\n"
        + table(("", "second quarter", "last quarter", "last sample", "flat"), rows)
    )


def load(found: Figures) -> str:
    """The page among hostile visitors."""
    rows = [
        ("honest visits, and how many of them were served", f"{found['visits']}, {found['visits_served']}"),
        ("median time of a visit, relative to a visit alone", f"{found['visit_ratio']} ×"),
        ("attacks, of 15 kinds", found["attacks"]),
        ("memory before, peak, after, MB", _three(found, "memory_mb")),
        ("file descriptors before, peak, after", _three(found, "descriptors")),
        ("threads before, peak, after", _three(found, "threads")),
        ("files left when everyone had gone", len(found["files_left_when_all_had_gone"])),
        (
            "paths outside its folder that it wrote, or read without need",
            sum(map(len, found["paths_touched_outside"].values())),
        ),
        ("system calls that were checked", found["kernel_account"].get("calls", "not watched")),
        ("findings", len(found["findings"])),
    ]
    return f"{found['seconds']:g} seconds against `fei serve` in its own process, on this machine alone.\n\n" + table(
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
        "A mutant is the code with one small change, such as `<` in place of `<=`. A good test fails on it.\n\n"
        + table(("file", *names), rows)
        + (f"\nNot tried yet: {', '.join(missing)}.\n" if missing else "")
        + "\n`reliability/equivalent_mutants.toml` explains why a mutant counts as equivalent, that is, as code that "
        "does the same; the tool reports an entry there that no longer fits the code.\n"
    )


def coverage(found: Figures) -> str:
    """Lines and branches that the tests reach."""
    names = ("lines", "line coverage", "branches", "branch coverage", "lines and branches together")
    rows = [(f"`{package}`", *(figures[name] for name in names)) for package, figures in found["packages"].items()]
    heads = ("package", "lines", "reached, %", "branches", "taken, %", "together, %")
    return table(heads, rows) + "\nRay's actors run in other processes, which are not counted.\n"


def elsewhere(found: Figures) -> str:
    """The tests on imitated machines."""
    rows = [
        (name, result.get("passed", "not imitated"), len(result.get("failed", ())), len(result.get("skipped", ())))
        for name, result in found["machines"].items()
    ]
    return (
        "The tests run as they would on other machines. Environment variables hide processor features from torch, "
        "oneDNN, MKL, OpenBLAS and NumPy; where only the arithmetic differs, tests of pages are left out.\n\n"
        + table(("machine", "passed", "failed", "skipped"), rows)
        + "\nWhat this found, mended unless it says otherwise:\n\n"
        + bullets(found["findings"])
    )


def oldest(found: Figures) -> str:
    """The oldest torch that is supported."""
    versions = found["versions"]
    words = f"torch {versions['torch']}, torchvision {versions['torchvision']}, others as new as these allow: "
    words += f"{found['passed']:,} tests passed, {found['failed']} failed, {found['skipped']} skipped"
    missing = found["not_run"]
    words += f" in {found['files']} files; not run yet: {', '.join(missing)}.\n" if missing else ".\n"
    return words


SECTIONS: dict[str, tuple[str, str, Callable[[Figures], str]]] = {
    "fuzz": ("Damaged files", "make fuzz", fuzz),
    "properties": ("Random arguments", "python reliability/properties.py", properties),
    "soak": ("Half an hour of mixed work", "make soak", soak),
    "load": ("Many visitors, some of them hostile", "make load", load),
    "mutate": ("Would the tests notice?", "make mutate", mutate),
    "coverage": ("What the tests reach", "make coverage", coverage),
    "elsewhere": ("Other machines", "make test-elsewhere", elsewhere),
    "oldest": ("The oldest torch", "python reliability/oldest.py --python OLD/bin/python", oldest),
}
INTRODUCTION = """# Reliability

<!-- Written by `python reliability/page.py` from reliability/results. -->

Besides its tests the project is checked by the tools below. Each section has the command and the figures of the tool's
last run. A small part of each is in `make test`. [SECURITY.md](../SECURITY.md) says which threats are considered and
what is not defended against.
"""
CLOSING = """
## Numbers that repeat

`tests/golden/` holds small tensors from every method and numbers from every metric on the embedded network, each with
its tolerance and the reason for it. `tests/test_golden.py` fails if a new version of torch computes something else.
After an intended change, `python reliability/golden.py --write` writes the values again.

## Supply chain

Every package that the tests install is pinned exactly in `constraints.txt`. `pip-audit -r constraints.txt --no-deps
--disable-pip` looks these up in a database of known vulnerabilities. On the machine where these figures were made, no
such database could be reached (neither PyPI's nor OSV's), so the answer is **not known** and you have to make this
check yourself. The one database that ships in a package, safety-db, was last published in July 2021: it knows 18 of
the 150 pinned packages and objects to none of these versions, which says little of today. The package has no `eval`,
no `exec`, no unpickling of files, no YAML and no shell, and `ruff`'s security rules are on.
"""


def page() -> str:
    """The page as it should be."""
    titles = [title for title, _, _ in SECTIONS.values()] + re.findall(r"^## (.+)$", CLOSING, flags=re.MULTILINE)
    anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
    links = [f"[{title}](#{anchor})" for title, anchor in zip(titles, anchors, strict=True)]
    parts = [INTRODUCTION, "\n" + " ·\n".join(links) + "\n"]
    for name, (title, command, words) in SECTIONS.items():
        file = HERE / "results" / f"{name}.json"
        told = words(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else "Not run in full yet.\n"
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
