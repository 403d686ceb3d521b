"""Write the table of docs/flagship.md from the scores that `measure.py` wrote.

python studies/flagship/page.py
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fei.metrics import bootstrap_interval

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "flagship.md"
BEGIN, END = "<!-- begin flagship -->", "<!-- end flagship -->"
NETWORKS = ("EfficientNet-Lite0", "SqueezeNet", "MobileNetV1", "ResNet50")
FLAGSHIP = "fei"
CONTROLS = ("random", "smooth-noise", "centre", "brightness", "edges")
# What is compared with the best of the others: kind, number, title, whether more is better.
COMPARED = (
    ("held-out", "insertion", "insertion", True),
    ("held-out", "gain", "insertion − deletion", True),
    ("rise", "insertion", "insertion, `rise`", True),
    ("rise", "gain", "insertion − deletion, `rise`", True),
    ("held-out", "mse", "MSE inside", False),
    ("held-out", "cosine", "cosine inside", True),
    ("held-out", "relevant_mse", "relevant MSE", False),
    ("held-out", "relevant_cosine", "relevant cosine", True),
)
ASKED = (
    ("seeds", "ρ between seeds", "≥ .9"),
    ("random_class", "ρ with a random class", "≤ .4"),
    ("runner_up", "ρ with the runner-up", "≤ .7"),
    ("classifier", "ρ, classifier redrawn", "≤ .4"),
)
Numbers = dict[tuple[str, str], dict[str, dict[str, float]]]


def read(network: str) -> Numbers:
    """By kind and method, the numbers of each photograph."""
    found: Numbers = defaultdict(dict)
    for line in (HERE / "scores" / f"{network}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "insertion" in row:
            row["gain"] = row["insertion"] - row["deletion"]
        found[row["kind"], row["method"]][row["photograph"]] = row
    return found


def mean(values: list[float]) -> float:
    """The mean."""
    return sum(values) / len(values)


def compared(network: str, scores: Numbers) -> Iterator[list[str]]:
    """Rows of the flagship against the best of the others, on the photographs that all of them have."""
    for kind, name, title, more in COMPARED:
        enough = len(scores[kind, FLAGSHIP]) / 2  # a method that was measured on few would leave few to compare
        methods = [method for (k, method), found in scores.items() if k == kind and len(found) >= enough]
        shared = sorted(set.intersection(*(set(scores[kind, method]) for method in methods)))
        values = {method: [scores[kind, method][photo][name] for photo in shared] for method in methods}
        others = {method: mean(numbers) for method, numbers in values.items() if method != FLAGSHIP}
        best = (max if more else min)(others, key=lambda method: others[method])
        sign = 1 if more else -1
        ahead = [sign * (own - other) for own, other in zip(values[FLAGSHIP], values[best], strict=True)]
        low, high = bootstrap_interval(ahead)
        verdict = "ahead" if low > 0 else "behind" if high < 0 else "level"
        numbers = [f"{mean(values[FLAGSHIP]):.4g}", f"{others[best]:.4g} ({best})", f"{mean(ahead):+.3g}"]
        yield [network, title, str(len(shared)), *numbers, f"[{low:.3g}, {high:.3g}]", verdict]


def asked(network: str, scores: Numbers) -> Iterator[list[str]]:
    """Rows of what the map should depend on, and not depend on."""
    for name, title, target in ASKED:
        cells = []
        for method in (FLAGSHIP, "gradcam"):
            values = [row[name] for row in scores["trust", method].values()]
            low, high = bootstrap_interval(values)
            cells.append(f"{mean(values):.2f} [{low:.2f}, {high:.2f}]")
        yield [network, title, str(len(scores["trust", FLAGSHIP])), target, *cells]
    for kind, told in (("grid", ("rank", "energy")), ("black image", ("fired",))):
        for name in told:
            rows = [scores[kind, method].get("all") for method in (FLAGSHIP, "gradcam")]
            if rows[0] is not None:
                count = int(rows[0]["mosaics" if kind == "grid" else "trials"])
                cells = ["–" if row is None else f"{row[name]:.3g}" for row in rows]
                yield [network, f"{kind}, {name}", str(count), "≥ Grad-CAM" if kind == "grid" else "0", *cells]


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    return ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]


def text() -> str:
    """Both tables."""
    known: dict[str, Any] = {n: read(n) for n in NETWORKS if (HERE / "scores" / f"{n}.jsonl").is_file()}
    outside = [row for network, scores in known.items() for row in compared(network, scores)]
    depends = [row for network, scores in known.items() for row in asked(network, scores)]
    head = ["network", "measure", "n", "`fei`", "best of the others", "ahead by", "95 % interval", "verdict"]
    lines = table(head, outside)
    lines += ["", *table(["network", "measure", "n", "target", "`fei`", "Grad-CAM"], depends)]
    return "\n".join(lines)


def main() -> None:
    """Run from the command line."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
