"""Write the tables of docs/flagship.md from the scores that the other scripts of this folder wrote.

python -m studies.flagship.page
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from studies._blocks import written

from fei.core.evidence import Evidence
from fei.metrics import bootstrap_interval, wilson_interval

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "flagship.md"
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
# What the trade-off shows: number, title.
TRADED = (
    ("insertion", "insertion"),
    ("deletion", "deletion"),
    ("cosine", "cosine inside"),
    ("relevant_cosine", "relevant cosine"),
    ("random_class", "ρ with a random class"),
    ("runner_up", "ρ with the runner-up"),
)
Numbers = dict[tuple[str, str], dict[str, dict[str, float]]]


def lines_of(name: str) -> list[dict[str, Any]]:
    """The lines of a file of scores; none where nothing was measured."""
    file = HERE / "scores" / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []


def read(network: str) -> Numbers:
    """By kind and method, the numbers of each photograph."""
    found: Numbers = defaultdict(dict)
    for row in lines_of(network):
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
        if not scores[kind, FLAGSHIP]:  # as RISE's protocol on a network where it takes too long
            continue
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
    """A table in Markdown, or a word where there is nothing to show."""
    if not rows:
        return ["Not measured yet."]
    return ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]


def _known() -> dict[str, Numbers]:
    return {n: read(n) for n in NETWORKS if (HERE / "scores" / f"{n}.jsonl").is_file()}


def flagship() -> str:
    """Against what is cheap, and what the map depends on."""
    outside = [row for network, scores in _known().items() for row in compared(network, scores)]
    head = ["network", "measure", "n", "`fei`", "best of the others", "ahead by", "95 % interval", "verdict"]
    return "\n".join([*table(head, outside), "", *depends()])


def depends() -> list[str]:
    """A table of what the map depends on."""
    rows = [row for network, scores in _known().items() for row in asked(network, scores)]
    return table(["network", "measure", "n", "target", "`fei`", "Grad-CAM"], rows)


def expensive() -> str:
    """Against what costs more than ten passes, on the photographs of SqueezeNet that these were measured on."""
    own, others = read("SqueezeNet"), read("SqueezeNet-expensive")
    kind = "held-out"
    rows = []
    for (_, method), found in others.items():
        shared = sorted(set(found) & set(own[kind, FLAGSHIP]))
        cells = [f"`{method}`", str(len(shared)), f"{mean([found[photo]['map_seconds'] for photo in shared]):.1f}"]
        for _, name, _, more in [row for row in COMPARED if row[0] == kind]:
            ahead = [(1 if more else -1) * (own[kind, FLAGSHIP][p][name] - found[p][name]) for p in shared]
            low, high = bootstrap_interval(ahead)
            cells.append(f"{mean(ahead):+.3g} [{low:.3g}, {high:.3g}]")
        rows.append(cells)
    titles = [title for k, _, title, _ in COMPARED if k == kind]
    return "\n".join(table(["`fei` ahead of", "n", "seconds", *titles], rows))


def evidence() -> str:
    """How often evidence is found, where it should be and where it should not."""
    rows = []
    for network in (*NETWORKS, "all"):
        for kind, target in (("absent", "≤ 2 %"), ("black", "≤ 2 %"), ("predicted", "≥ 95 %")):
            cases = [row for row in lines_of("evidence") if row["kind"] == kind and network in ("all", row["network"])]
            if cases:
                found = sum(map(is_found, cases))
                low, high = wilson_interval(found, len(cases))
                rows.append([network, kind, target, f"{found} of {len(cases)}", f"[{low:.1%}, {high:.1%}]"])
    return "\n".join(table(["network", "class", "target", "evidence found", "95 % interval"], rows))


def is_found(row: dict[str, Any]) -> bool:
    """What `fei.Explanation.evidence` says of the numbers of a line."""
    kept, chance = ([row[f"{name} {mask}"] for mask in range(5)] for name in ("kept", "chance"))
    weighed = Evidence(torch.tensor([kept]), torch.tensor([chance]), torch.tensor([row["whole"]]))
    return bool(weighed.found)


def tradeoff() -> str:
    """What each option buys and costs."""
    rows = []
    known = lines_of("tradeoff")
    for network in dict.fromkeys(row["network"] for row in known):
        for setting in dict.fromkeys(row["method"] for row in known):
            found = [row for row in known if (row["network"], row["method"]) == (network, setting)]
            photos = [row for row in found if row["kind"] == "photograph"]
            black = [f"{row['largest']:.3f}" for row in found if row["kind"] == "black"] or ["–"]
            if photos:
                cells = [f"{mean([row[name] for row in photos]):.3f}" for name, _ in TRADED]
                rows.append([network, setting, str(len(photos)), *cells, *black])
    head = ["network", "setting", "n", *(title for _, title in TRADED), "largest score on black"]
    return "\n".join(table(head, rows))


def cost() -> str:
    """CPU time over that of the default of version 0.1."""
    known = lines_of("cost")
    rows = []
    for network in dict.fromkeys(row["network"] for row in known):
        seconds = {(row["method"], row["photograph"]): row["cpu"] for row in known if row["network"] == network}
        photographs = [photograph for method, photograph in seconds if method == "fei-vm"]
        cells = []
        for method in (FLAGSHIP, f"{FLAGSHIP}, evidence"):
            ratios = sorted(seconds[method, photo] / seconds["fei-vm", photo] for photo in photographs)
            cells.append(f"{median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})")
        rows.append([network, str(len(photographs)), *cells])
    return "\n".join(table(["network", "n", "the map", "the map and its evidence"], rows))


def passes() -> str:
    """A third of the passes against all of them, on the photographs that both were measured on."""
    known = lines_of("passes")
    rows = []
    for network in (name for name in NETWORKS if any(row["network"] == name for row in known)):
        for kind, measures in (("passes", [each[1:] for each in COMPARED if each[0] == "held-out"]), ("trust", ASKED)):
            scores: dict[str, dict[str, dict[str, Any]]] = {"hundred": {}, "thirty": {}}
            for row in known:
                if (row["network"], row["kind"]) == (network, kind):
                    gain = {"gain": row["insertion"] - row["deletion"]} if kind == "passes" else {}
                    scores[row["method"]][row["photograph"]] = row | gain
            shared = sorted(set(scores["hundred"]) & set(scores["thirty"]))
            for name, title, _ in measures if len(shared) > 1 else ():
                values = [[scores[setting][photo][name] for photo in shared] for setting in ("hundred", "thirty")]
                apart = [few - many for many, few in zip(*values, strict=True)]
                low, high = bootstrap_interval(apart)
                means = [f"{mean(each):.4g}" for each in values]
                rows.append([network, title, str(len(shared)), *means, f"{mean(apart):+.3g} [{low:.3g}, {high:.3g}]"])
    return "\n".join(table(["network", "measure", "n", "100 passes", "30 passes", "difference"], rows))


BLOCKS = {
    "cost": cost,
    "fewer passes": passes,
    "flagship": flagship,
    "expensive": expensive,
    "evidence": evidence,
    "tradeoff": tradeoff,
}


def main() -> None:
    """Run from the command line."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), BLOCKS), encoding="utf-8")


if __name__ == "__main__":
    main()
