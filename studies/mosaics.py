"""Does a map point at the class it was asked for? The grid pointing game, in which four photographs make a mosaic.

    python -m studies.mosaics [--count 60] [--scores FILE]        # again to go on after an interruption

The first photographs of `imagenet_test`, in an order drawn with seed 0, on three networks; those of which a network is
sure (a probability of .9) make its mosaics. A line of JSON for each network and method, as it comes, with the numbers
of each mosaic, as means over its four cells.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from studies._plans import SCORES, placed, plan_of
from studies.flagship.measure import GRID_CONFIDENCE, drawn, seeded
from studies.other_class import with_interval
from studies.photographs import ASSETS

import fei
from fei import metrics
from fei.metrics._attribution import AnyMethod

NAME, PLAN = "second-mosaics.jsonl", "second-trust"  # the plan says on which networks
METHODS = (
    "fei", "fei-vm", "fei-ivm", "fei-avm", "fei-ibm", "fei-none",
    "saliency", "guided-backprop", "gradcam", "gradcam++", "layercam",
    "random", "smooth-noise", "centre", "brightness", "edges",
)  # fmt: skip
TITLES = {"rank": "top pixels in the cell ↑", "energy": "energy in the cell ↑"}
Row = dict[str, Any]


def rows(file: Path) -> list[Row]:
    """What was computed so far."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [json.loads(line) for line in lines]


def played(model: fei.models.Classifier, inputs: torch.Tensor, method: AnyMethod, confidence: float) -> Row:
    """The numbers of each mosaic."""
    found = metrics.grid_pointing_game(model, method, inputs, confidence=confidence, generator=seeded())
    return {name: [round(value, 6) for value in getattr(found, name).mean(1).tolist()] for name in TITLES}


def table(found: Sequence[Row]) -> str:
    """Means over the mosaics of each network, with 95 % bootstrap intervals."""
    networks = list(dict.fromkeys(row["network"] for row in found))
    counts = {row["network"]: len(row["rank"]) for row in found}
    heads = [f"{name}, n {counts[name]}<br>{title}" for name in networks for title in TITLES.values()]
    lines = [f"| method | {' | '.join(heads)} |", "| :-- |" + " --: |" * len(heads)]
    known = {(row["network"], row["method"]): row for row in found}
    for method in METHODS:
        each: list[list[float]] = [
            known.get((network, method), {}).get(name, []) for network in networks for name in TITLES
        ]
        if any(each):
            lines.append(f"| `{method}` | {' | '.join(map(with_interval, each))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Compute what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="photographs from which the mosaics are made")
    parser.add_argument("--scores", type=Path, default=SCORES / NAME)
    options = parser.parse_args()
    torch.set_num_threads(1)
    seen = {(row["network"], row["method"], row["photographs"]) for row in rows(options.scores)}
    for pair in plan_of(PLAN).pairs:
        model = fei.models.load(placed(pair.model)).eval()
        files = drawn(ASSETS / "imagenet_test", options.count)
        inputs = torch.stack([model.preprocess(file) for file in files])
        for method in METHODS:
            if (pair.name, method, options.count) in seen:
                continue
            about: Row = {"network": pair.name, "method": method, "photographs": options.count}
            made = about | played(model, inputs, method, GRID_CONFIDENCE)
            with options.scores.open("a", encoding="utf-8") as file:
                file.write(json.dumps(made) + "\n")
            print(f"{pair.name}, {method}: {np.mean(made['rank']):.2f} of {len(made['rank'])} mosaics", flush=True)
    print(table(rows(options.scores)))


if __name__ == "__main__":
    main()
