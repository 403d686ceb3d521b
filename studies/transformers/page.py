"""Write the tables of docs/transformers.md from the scores that `choose.py` and `evidence.py` wrote.

python -m studies.transformers.page
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from studies._blocks import written

from fei.metrics import bootstrap_interval

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "transformers.md"
# Those that are compared on all photographs that they have in common; the last one is what "auto" stands for.
FINAL = (
    "activation-ibm",
    "mlp-ibm",
    "activation+mlp-ibm",
    "activation+attention+mlp-ibm-logits",
    "activation+attention+mlp-ibm",
)
FLAGSHIP = "s3 w0.5"
INSIDE = ("middle_class", "middle_patches", "last_class", "last_patches")
Numbers = dict[str, dict[str, dict[str, float]]]


def read() -> Numbers:
    """By setting and photograph."""
    found: Numbers = defaultdict(dict)
    for line in (HERE / "scores" / "choose.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found[row["setting"]][row["photograph"]] = row | {"inside": sum(row[name] for name in INSIDE) / len(INSIDE)}
    return found


def mean(rows: Iterable[dict[str, float]], name: str) -> str:
    """A mean to three digits, or a dash where nothing was measured."""
    values = [row[name] for row in rows if name in row]
    return f"{sum(values) / len(values):.3f}" if values else "–"


def table(scores: Numbers) -> str:
    """The final settings on the photographs that they have in common, and the others beside the chosen one."""
    shared = set.intersection(*(set(scores[setting]) for setting in FINAL))
    lines = [
        "| setting | n | insertion | deletion | cosine inside | class token, last block | ρ with another class |",
        "|---|---|---|---|---|---|---|",
    ]
    asked = [name for name in sorted(shared) if all("other" in scores[setting][name] for setting in FINAL)]
    for setting in FINAL:
        rows = [scores[setting][name] for name in sorted(shared)]
        numbers = [mean(rows, name) for name in ("insertion", "deletion", "inside", "last_class")]
        other = mean([scores[setting][name] for name in asked], "other")
        lines.append(f"| `{setting}` | {len(rows)} | {' | '.join(numbers)} | {other} ({len(asked)}) |")
    chosen = FINAL[-1]
    lines += [
        "",
        f"| dropped | n | insertion, and `{chosen}` there | deletion | cosine inside | ρ with another class |",
        "|---|---|---|---|---|---|",
    ]
    for setting in sorted(set(scores) - set(FINAL)):
        common = sorted(set(scores[setting]) & set(scores[chosen]))
        own, others = [scores[setting][n] for n in common], [scores[chosen][n] for n in common]
        numbers = [f"{mean(own, name)} / {mean(others, name)}" for name in ("insertion", "deletion", "inside")]
        lines.append(f"| `{setting}` | {len(common)} | {' | '.join(numbers)} | {mean(own, 'other')} |")
    return "\n".join(lines)


def evidence() -> str:
    """Masks, evidence and both, with the difference of the flagship to each of them."""
    known: Numbers = defaultdict(dict)
    for line in (HERE / "scores" / "evidence.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        known[row["k"]][row["photograph"]] = row | {"gain": row["insertion"] - row["deletion"]}
    head = ["insertion", "deletion", "insertion − deletion", "class token", "patches"]
    lines = [
        f"| map | n | {' | '.join(head)} | flagship ahead in insertion − deletion | … in the class token |",
        "|---" * (len(head) + 4) + "|",
    ]
    for name, rows in known.items():
        cells = [mean(rows.values(), key) for key in ("insertion", "deletion", "gain", "cls", "patch")]
        for key in ("gain", "cls"):
            ahead = [known[FLAGSHIP][photo][key] - row[key] for photo, row in rows.items()]
            low, high = bootstrap_interval(ahead)
            cells.append("–" if name == FLAGSHIP else f"{sum(ahead) / len(ahead):+.3f} [{low:.3f}, {high:.3f}]")
        lines.append(f"| `{name}` | {len(rows)} | {' | '.join(cells)} |")
    return "\n".join(lines)


BLOCKS = {"trial": lambda: table(read()), "evidence": evidence}


def main() -> None:
    """Write the tables between their comments."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), BLOCKS), encoding="utf-8")


if __name__ == "__main__":
    main()
