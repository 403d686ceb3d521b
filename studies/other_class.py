"""Is a map about the class? The same photograph explained for the predicted class and for one drawn at random.

    python -m studies.other_class [--second] [--count N]        # again to go on after an interruption

What is computed is the rank correlation of the two maps: 1 for a method that answers the same whatever it is asked. A
flat map has no order worth comparing, so the standard deviation of both is kept too, which the first rows do not have.
Rows go to studies/scores/other-class.json as they come. The second edition (`--second`) has the photographs of
imagenet_test, as its plans have, all variants that the paper's tables have with both presets, and `fei`; its rows go to
a file of their own. A row of a method whose settings have changed since is computed anew.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from scipy.stats import spearmanr
from studies._plans import SCORES, placed, plan_of
from studies.photographs import ASSETS

import fei
from fei.bench.plan.keys import canonical
from fei.data import load, read_image
from fei.metrics import bootstrap_interval

NAMES = ("other-class.json", "second-other-class.json")
NETWORKS = ("SqueezeNet", "MobileNetV1")
# Rows and their methods; those with the paper's preset came later, and are shown once they are computed.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in (
        "fei-vm", "fei-ivm", "fei-avm", "fei-ibm", "fei-none", "saliency", "smoothgrad", "guided-backprop", "gradcam",
        "random",
    )},
    **{f"{name}, paper": (name, {"preset": "paper"}) for name in ("fei-vm", "fei-ibm", "fei-none")},
}  # fmt: skip
# Those without `fei` first, whose maps may still change.
SECOND: dict[str, tuple[str, dict[str, Any]]] = METHODS | {"fei": ("fei", {})}
PHOTOGRAPHS = 5
FLAT = 0.1  # a map that varies less than this share of another one
FLATNESS = "deviation of the other map / of the first: median (range)"
Row = dict[str, Any]


def rows(folder: Path = SCORES, name: str = NAMES[0]) -> list[Row]:
    """What was computed so far."""
    file = folder / name
    found: list[Row] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    return found


def settings(method: str, options: dict[str, Any]) -> str:
    """A short name of all settings of a method: another one when a default changes."""
    config = getattr(fei.methods.create(method, **options), "config", options)
    return hashlib.sha256(canonical(config).encode()).hexdigest()[:12]


def fresh(done: list[Row], methods: dict[str, tuple[str, dict[str, Any]]]) -> list[Row]:
    """Rows whose methods have today's settings; those of the first edition do not say which they had."""
    today = {name: settings(*asked) for name, asked in methods.items()}
    return [row for row in done if row.get("settings", today.get(row["method"])) == today.get(row["method"])]


def missing(done: list[Row], folder: Path, methods: dict[str, tuple[str, dict[str, Any]]], count: int) -> Iterator[Row]:
    """Compute what is not there yet, method by method on each photograph."""
    seen = {(row["network"], row["item"], row["method"]) for row in done}
    networks = {pair.name: placed(pair.model) for pair in plan_of("main").pairs}
    photographs = load(f"imagenet:{folder}").sample(count, 0)
    models = {network: fei.models.load(networks[network]) for network in NETWORKS}
    for name, (method_name, options) in methods.items():
        for network, model in models.items():
            for number, item in enumerate(photographs):
                if (network, item.id, name) not in seen:
                    found = alike(model, model.preprocess(read_image(item.path))[None], number, method_name, options)
                    about = {"network": network, "item": item.id, "method": name}
                    yield about | found | {"settings": settings(method_name, options)}


def alike(model: Any, image: torch.Tensor, number: int, name: str, options: dict[str, Any]) -> Row:
    """The two classes of the photograph of this number, a method's maps of them: how alike they are, and how flat."""
    logits = model(image)
    predicted = int(logits.argmax())
    draw = int(torch.randint(logits.shape[1] - 1, (), generator=torch.Generator().manual_seed(number)))
    other = draw + (draw >= predicted)  # any class but the predicted one
    method = fei.methods.create(name, **options)
    one, two = (
        method(model, image, target, generator=torch.Generator().manual_seed(0)) for target in (predicted, other)
    )
    ranked = float(spearmanr(one.flatten(), two.flatten()).statistic)
    deviations = [float(each.double().std(correction=0)) for each in (one, two)]
    return {"predicted": predicted, "other": other, "spearman": ranked, "deviations": deviations}


def table(found: list[Row]) -> str:
    """Means over the photographs with 95 % bootstrap intervals, and how many they are; how flat the second map is."""
    flat = any("deviations" in row for row in found)
    heads = ["method", *NETWORKS, "n"] + ([FLATNESS, "n"] if flat else [])
    lines = [f"| {' | '.join(heads)} |", "| :-- |" + " --: |" * (len(heads) - 1)]
    computed = {row["method"] for row in found}
    for name in (each for each in SECOND if each in computed):
        values = [
            [row["spearman"] for row in found if (row["network"], row["method"]) == (network, name)]
            for network in NETWORKS
        ]
        counts = "/".join(str(count) for count in sorted({len(each) for each in values if each}))
        cells = [name, *map(with_interval, values), counts]
        if flat:
            ratios = flatness(found, name)
            cells += [_range(ratios), str(len(ratios) or "–")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def flatness(found: list[Row], name: str) -> list[float]:
    """The other map's deviation over the first's, of each photograph on both networks where both are known."""
    return [ratio for row in found if row["method"] == name and (ratio := _ratio(row)) is not None]


def vivid(found: list[Row], name: str) -> list[float]:
    """The rank correlations of those photographs whose other map is not flat."""
    return [row["spearman"] for row in found if row["method"] == name and (_ratio(row) or 0) >= FLAT]


def _ratio(row: Row) -> float | None:
    one, two = row.get("deviations", (0, 0))
    return two / one if one else None


def _range(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else "–"


def with_interval(values: Sequence[float]) -> str:
    """Their mean with its 95 % bootstrap interval; a dash for none."""
    if not values:
        return "–"
    mean = f"{sum(values) / len(values):.2f}"
    if len(values) < 2:
        return mean
    low, high = bootstrap_interval(values)
    return f"{mean} [{low:.2f}, {high:.2f}]"


def main() -> None:
    """Compute what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--second", action="store_true", help="the second edition, on photographs of imagenet_test")
    parser.add_argument("--count", type=int, default=PHOTOGRAPHS, help="photographs for each network")
    options = parser.parse_args()
    file, methods = SCORES / NAMES[options.second], SECOND if options.second else METHODS
    folder = ASSETS / ("imagenet_test" if options.second else "imagenet")
    done = fresh(rows(SCORES, file.name), methods)
    for row in missing(done, folder, methods, options.count):
        done.append(row)
        new = file.with_name(f".{file.name}")
        new.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
        os.replace(new, file)
        print(f"{row['network']}, {row['item']}, {row['method']}: {row['spearman']:.2f}", flush=True)
    print(table(done))


if __name__ == "__main__":
    main()
