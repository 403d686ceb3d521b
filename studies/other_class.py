"""Is a map about the class? The same photograph explained for the predicted class and for one drawn at random.

    python -m studies.other_class            # again to go on after an interruption

What is computed is the rank correlation of the two maps: 1 for a method that answers the same whatever it is asked.
Rows go to studies/scores/other-class.json as they come.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr
from studies._plans import SCORES, placed, plan_of
from studies.photographs import ASSETS

import fei
from fei.data import load, read_image
from fei.metrics import bootstrap_interval

NAME = "other-class.json"
NETWORKS = ("SqueezeNet", "MobileNetV1")
# Rows and their methods; those with the paper's preset came later, and are shown once they are computed.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in (
        "fei-vm", "fei-ivm", "fei-avm", "fei-ibm", "fei-none", "saliency", "smoothgrad", "guided-backprop", "gradcam",
        "random",
    )},
    **{f"{name}, paper": (name, {"preset": "paper"}) for name in ("fei-vm", "fei-ibm", "fei-none")},
}  # fmt: skip
PHOTOGRAPHS = 5
Row = dict[str, Any]


def rows(folder: Path = SCORES) -> list[Row]:
    """What was computed so far."""
    file = folder / NAME
    found: list[Row] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    return found


def missing(done: list[Row]) -> Iterator[Row]:
    """Compute what is not there yet, network by network."""
    seen = {(row["network"], row["item"], row["method"]) for row in done}
    networks = {pair.name: placed(pair.model) for pair in plan_of("main").pairs}
    photographs = load(f"imagenet:{ASSETS / 'imagenet'}").sample(PHOTOGRAPHS, 0)
    for network in NETWORKS:
        model = fei.models.load(networks[network])
        for number, item in enumerate(photographs):
            image = model.preprocess(read_image(item.path))[None]
            predicted = int(model(image).argmax())
            draw = int(torch.randint(999, (), generator=torch.Generator().manual_seed(number)))
            other = draw + (draw >= predicted)  # any class but the predicted one
            for name, (method_name, options) in METHODS.items():
                if (network, item.id, name) not in seen:
                    method = fei.methods.create(method_name, **options)
                    one, two = (
                        method(model, image, target, generator=torch.Generator().manual_seed(0))
                        for target in (predicted, other)
                    )
                    alike = float(spearmanr(one.flatten(), two.flatten()).statistic)
                    classes = {"predicted": predicted, "other": other}
                    yield {"network": network, "item": item.id, "method": name, **classes, "spearman": alike}


def table(found: list[Row]) -> str:
    """Means over the photographs with 95 % bootstrap intervals."""
    lines = ["| method | " + " | ".join(NETWORKS) + " |", "| :-- |" + " --: |" * len(NETWORKS)]
    computed = {row["method"] for row in found}
    for name in (each for each in METHODS if each in computed):
        cells = []
        for network in NETWORKS:
            values = [row["spearman"] for row in found if (row["network"], row["method"]) == (network, name)]
            cells.append(_mean(values) if values else "–")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mean(values: list[float]) -> str:
    low, high = bootstrap_interval(values)
    return f"{sum(values) / len(values):.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    """Compute what is missing, and print the table."""
    done = rows()
    for row in missing(done):
        done.append(row)
        (SCORES / NAME).write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
        print(f"{row['network']}, {row['item']}, {row['method']}: {row['spearman']:.2f}", flush=True)
    print(table(done))


if __name__ == "__main__":
    main()
