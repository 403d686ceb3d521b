"""Write the tables of docs/transformers.md from the scores that the other scripts of this folder wrote.

python -m studies.transformers.page
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

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
# Of the final measurement: kind, number, title.
MEASURED = (
    ("held-out", "insertion", "insertion"),
    ("held-out", "deletion", "deletion"),
    ("token-drop", "insertion", "token-drop insertion"),
    ("token-drop", "deletion", "token-drop deletion"),
    ("held-out", "11 cls_cosine", "class token"),
    ("held-out", "11 patch_cosine", "patches"),
    ("held-out", "11 relevant_cosine", "relevant cosine"),
)
DEEP = ("fei", "fei-none", "libra-fullgrad", "generic-attention", "random")
DEPENDS = {
    "seeds": "between seeds",
    "random_class": "with a random class",
    "runner_up": "with the runner-up",
    "classifier": "classifier redrawn",
}
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


def rows_of(name: str) -> Iterator[dict[str, Any]]:
    """The lines of a file of scores; none where nothing was measured."""
    file = HERE / "scores" / f"{name}.jsonl"
    if file.is_file():
        yield from map(json.loads, file.read_text(encoding="utf-8").splitlines())


def final() -> str:
    """Every method on photographs that chose nothing, with what the flagship is ahead by."""
    known: dict[str, Numbers] = defaultdict(lambda: defaultdict(dict))
    for row in rows_of("final"):
        known[row["kind"]][row["method"]][row["photograph"]] = row
    if not known:
        return "Not measured yet."
    lines = ["| method | n | " + " | ".join(title for _, _, title in MEASURED) + " |"]
    lines.append("|---" * (len(MEASURED) + 2) + "|")
    for method in known["held-out"]:
        cells = []
        for kind, name, _ in MEASURED:
            own, flagship = known[kind][method], known[kind]["fei"]
            shared = [photo for photo in own if photo in flagship]
            ahead = [flagship[photo][name] - own[photo][name] for photo in shared]
            told = mean(own.values(), name)
            if method != "fei" and len(shared) > 1:
                low, high = bootstrap_interval(ahead)
                told += f" ({sum(ahead) / len(ahead):+.3f} [{low:.3f}, {high:.3f}])"
            cells.append(told)
        lines.append(f"| `{method}` | {len(known['held-out'][method])} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_blocks(known["held-out"]), "", *_depends(known)])


def _blocks(known: Numbers) -> Iterator[str]:
    """Cosine of class token and patches with the photograph's, block by block."""
    yield "| block | " + " | ".join(f"`{method}`, class token, patches" for method in DEEP) + " |"
    yield "|---" * (len(DEEP) + 1) + "|"
    for block in range(12):
        cells = [
            ", ".join(mean(known[method].values(), f"{block} {part}_cosine") for part in ("cls", "patch"))
            for method in DEEP
        ]
        yield f"| {block} | {' | '.join(cells)} |"


def _depends(known: dict[str, Numbers]) -> Iterator[str]:
    """What the maps depend on, and black images."""
    yield "| method | n | " + " | ".join(f"ρ {title}" for title in DEPENDS.values()) + " |"
    yield "|---" * (len(DEPENDS) + 2) + "|"
    for method, rows in known["trust"].items():
        cells = [mean(rows.values(), name) for name in DEPENDS]
        yield f"| `{method}` | {len(rows)} | {' | '.join(cells)} |"
    for rows in known["black image"].values():
        for row in rows.values():
            yield ""
            yield f"Black images: {row['fired']:.0f} of {row['trials']:.0f} fire (largest score {row['largest']:.3f})."


BLOCKS = {"trial": lambda: table(read()), "evidence": evidence, "final": final}


def main() -> None:
    """Write the tables between their comments."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), BLOCKS), encoding="utf-8")


if __name__ == "__main__":
    main()
