"""Choose what "auto" clips in a transformer: a trial of sites, rules and masks on DeiT-tiny.

    python studies/transformers/choose.py NETWORK PHOTOGRAPHS --count 20 --scores FILE [--settings attention-vm,…]

Photographs are drawn from a folder with seed 0; the first ones choose. Each setting is the flagship (preset "fei") with
three quantiles, 12 steps and what its name says: sites, variant, the σ of its smoothing. Each line of JSON is one
setting on one photograph; what a file holds already is not computed again.

The scores in this folder have rows whose names end in "logits" (attention clipped before its softmax), "centred" (the
same, with each row's mean taken off what is left) and "token" (one mask value per patch). These were dropped, and the
package cannot do them any more.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import fei
from fei import metrics
from fei.core.dataflow import trace
from fei.core.pathway import visit_sites
from fei.core.sites import Site, find_layer, find_sites
from fei.metrics.agreement import rank_correlation
from fei.models import Classifier

COMMON: dict[str, Any] = {"preset": "fei", "quantiles": (0.1, 0.5, 0.9), "steps": 12}
KEPT = (0.1, 0.3, 0.5)  # of the pixels, where the inside is compared
BLOCKS = {"middle": "blocks.5", "last": "blocks.11"}


def options_of(setting: str) -> dict[str, Any]:
    """The options of a setting such as "attention+mlp-vm-smooth8"."""
    sites, variant, *more = setting.split("-")
    smooth = [float(word.removeprefix("smooth")) for word in more]
    return COMMON | {"sites": sites, "variant": variant} | ({"smooth": smooth[0]} if smooth else {})


def map_of(model: Classifier, x: Tensor, target: int, setting: str) -> Tensor:
    """The map of a setting."""
    maps = fei.FEI(model, **options_of(setting)).attribute(x, target)
    assert isinstance(maps, Tensor)  # noqa: S101  # a tensor for a tensor
    return maps


def inside(model: Classifier, x: Tensor, heat: Tensor) -> dict[str, float]:
    """Cosine of class token and patches with the photograph's, where only the best pixels are left on grey."""
    flow, _ = trace(model, x)
    sites = [find_layer(model, flow, name) for name in BLOCKS.values()]
    order = heat.flatten().argsort(descending=True, stable=True)
    rows = [x]
    for share in KEPT:
        shown = torch.zeros_like(heat).flatten()
        shown[order[: round(share * len(order))]] = 1
        rows.append(torch.lerp(torch.full_like(x, 0.5), x, shown.view_as(heat)))
    values: dict[int, Tensor] = {}
    with torch.no_grad():
        visit_sites(model, sites, torch.cat(rows), lambda i, value: values.update({i: value.clone()}))
    found: dict[str, float] = {}
    for i, name in enumerate(BLOCKS):
        alike = torch.cosine_similarity(values[i][1:], values[i][:1], dim=-1)
        found |= {f"{name}_class": alike[:, 0].mean().item(), f"{name}_patches": alike[:, 1:].mean().item()}
    return found | divergence(model, torch.cat(rows), find_sites(model, flow, "attention"))


def divergence(model: Classifier, rows: Tensor, sites: list[Site]) -> dict[str, float]:
    """Jensen–Shannon divergence of the attention of all rows but the first from it, for the class token and for all."""
    patterns: dict[int, Tensor] = {}
    with torch.no_grad():
        visit_sites(model, sites, rows, lambda i, pattern: patterns.update({i: pattern.double()}))
    found = []
    for pattern in patterns.values():
        pair = (pattern[:1].expand_as(pattern[1:]), pattern[1:])
        middle = (pair[0] + pair[1]) / 2
        one, other = (torch.xlogy(p, p / middle).sum(-1) for p in pair)
        found.append((one + other) / 2)
    return {
        "js_class": torch.stack([each[:, :, 0].mean() for each in found]).mean().item(),
        "js_all": torch.stack([each.mean() for each in found]).mean().item(),
    }


def measure(model: Classifier, x: Tensor, setting: str, number: int, classes: int) -> dict[str, float]:
    """All numbers of one setting on one photograph."""
    started = time.perf_counter()
    with torch.no_grad():
        predicted = int(model(x).argmax())
    heat = map_of(model, x, predicted, setting)
    seconds = time.perf_counter() - started
    found = metrics.evaluate(model, x, heat, layers=[], protocol="held-out")
    numbers = {"insertion": found.insertion.auc.item(), "deletion": found.deletion.auc.item()} | inside(model, x, heat)
    if number < classes:
        other = random.Random(number).choice([c for c in range(1000) if c != predicted])
        numbers["other"] = rank_correlation(heat, map_of(model, x, other, setting)).item()
    return {name: round(value, 5) for name, value in numbers.items()} | {"seconds": round(seconds, 1)}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("network", help="what fei.models.load takes")
    parser.add_argument("photographs", type=Path, help="a folder of folders of photographs")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--classes", type=int, default=20, help="photographs on which another class is explained too")
    parser.add_argument("--settings", required=True)
    parser.add_argument("--scores", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = fei.models.load(options.network).eval()
    options.scores.parent.mkdir(parents=True, exist_ok=True)
    lines = options.scores.read_text(encoding="utf-8").splitlines() if options.scores.is_file() else []
    known = {(row["photograph"], row["setting"]) for row in map(json.loads, lines)}
    photographs = sorted(options.photographs.glob("*/*.JPEG"))
    random.Random(0).shuffle(photographs)
    for number, file in enumerate(photographs[: options.count]):
        x = model.preprocess(file)[None]
        for setting in options.settings.split(","):
            if (file.stem, setting) in known:
                continue
            row = {"photograph": file.stem, "setting": setting}
            row |= measure(model, x, setting, number, options.classes)
            with options.scores.open("a", encoding="utf-8") as scores:
                scores.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
