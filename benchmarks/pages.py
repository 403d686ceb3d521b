"""Write the tables of docs/ from the stored results, each between a ``begin NAME`` and an ``end NAME`` comment.

The figure of docs/performance.md is drawn as well.

    python benchmarks/pages.py [--check]

`--check` changes nothing and fails where a page differs from the results.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable
from pathlib import Path

import architectures
import baselines
import defaults
import growth
import methods
import metrics
import orderings
import peers
import precision
import startup
from _common import ROOT, Results

DOCS = ROOT.parent / "docs"


def _step() -> str:
    rows = Results("step").rows
    networks = list(dict.fromkeys(row["network"] for row in rows))
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    latest = {(row["network"], row["variant"]): row for row in rows}
    head = [v.upper() for v in variants] + ["set-up, steps"]
    lines = ["| network | " + " | ".join(head) + " |", "|---|" + "---|" * len(head)]
    for network in networks:
        cells = [latest.get((network, variant)) for variant in variants]
        setups = [c["setup"] for c in cells if c and "setup" in c]
        texts = [f"{c['ratio']:.2f} ({c['low']:.2f}–{c['high']:.2f})" if c else "–" for c in cells]
        texts.append(f"{statistics.median(setups):.2f}" if setups else "–")
        lines.append(f"| {network} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _protocols() -> str:
    rows = Results("protocols").rows
    latest = {(row["protocol"], row["method"]): row for row in rows}
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = ["| protocol | " + " | ".join(methods) + " |", "|---|" + "---|" * len(methods)]
    for protocol in dict.fromkeys(row["protocol"] for row in rows):
        cells = [latest[protocol, method] for method in methods]
        lines.append(
            f"| `{protocol}` | " + " | ".join(f"{c['insertion']:.3f} / {c['deletion']:.3f}" for c in cells) + " |"
        )
    return "\n".join(lines)


def _metrics() -> str:
    latest = {(row["network"], row["what"]): row["seconds"] for row in Results("metrics").rows}
    lines = ["| network | what | seconds per image |", "|---|---|---|"]
    return "\n".join(lines + [f"| {network} | {what} | {taken:.2f} |" for (network, what), taken in latest.items()])


BLOCKS: dict[str, Callable[[], str]] = {
    "architectures": lambda: architectures.table(Results("architectures")),
    "orderings": lambda: orderings.table(Results("orderings")),
    "step": _step,
    "protocols": _protocols,
    "metrics": _metrics,
    "passes": lambda: metrics.passes_table(Results("passes")),
    "layout": lambda: metrics.layout_table(Results("layout")),
    "peers": lambda: peers.table(Results("peers")),
    "growth": lambda: growth.table(Results("growth")),
    "growth-rows": lambda: growth.rows_table(Results("growth")),
    "precision": lambda: precision.table(Results("precision")),
    "startup": lambda: startup.table(Results("startup")),
    "baselines": lambda: baselines.table(Results("baselines")),
    "methods": lambda: methods.table(Results("methods")),
}
BLOCKS |= {f"defaults-{part}": lambda part=part: defaults.table(Results("defaults"), part) for part in defaults.PARTS}


def filled(text: str) -> str:
    """A page with its blocks written again; blocks that another tool fills stay as they are."""

    def block(match: re.Match[str]) -> str:
        name = match.group(1)
        return match.group() if name not in BLOCKS else f"<!-- begin {name} -->\n{BLOCKS[name]()}\n<!-- end {name} -->"

    return re.sub(r"<!-- begin (\S+) -->\n.*?<!-- end \1 -->", block, text, flags=re.DOTALL)


def main() -> None:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale: list[Path] = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = filled(text)
        if new != text:
            stale.append(page)
            if not check:
                page.write_text(new, encoding="utf-8")
                print("wrote", page.name)
    if not check and Results("growth").rows:
        growth.figure(Results("growth"), DOCS / "images" / "growth.svg")
    if check and stale:
        raise SystemExit(f"not what the results say: {', '.join(page.name for page in stale)}; run benchmarks/pages.py")


if __name__ == "__main__":
    main()
