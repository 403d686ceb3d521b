"""The table behind docs/diagnostics.md: variants and simple baselines from outside, inside, and on black images.

    python benchmarks/diagnostics.py [--networks …] [--parts scores,black] [--table]

Results go to benchmarks/results/diagnostics.jsonl; a second run computes only what is missing.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from typing import Any

import torch
from _common import PHOTOS, Results, load, photo

import fei
from fei.metrics import bootstrap_interval
from fei.models import Classifier

NETWORKS = ("squeezenet", "efficientnet_lite0")
# the four of the other benchmarks, and four more of which every network is sure
EIGHT = (*PHOTOS, "n02085620", "n02317335", "n03935335", "n04389033")  # Chihuahua, starfish, piggy bank, tank
METHODS = ("fei-none", "fei-vm", "fei-ivm", "fei-avm", "fei-ibm", "saliency", "gradcam", "random")
BLACK = ("fei-none", "fei-vm", "fei-ivm", "fei-avm", "fei-ibm")
TRIALS = 20
COLUMNS = ("insertion", "deletion", "mse", "cosine")


def scores(model: Classifier, synset: str, name: str) -> dict[str, Any]:
    """One method on one photograph under the paper's protocol."""
    x = photo(model, synset)
    target = int(model(x).argmax())
    maps, cost = fei.metrics.measure_cost(model, lambda: fei.methods.create(name)(model, x, target))
    result = fei.metrics.evaluate(model, x, maps, target)
    last = list(result.internal.values())[-1]
    layers = {
        layer: [similar.mse.item(), similar.cosine.item(), similar.pearson.item()]
        for layer, similar in result.internal.items()
    }
    return {
        "insertion": result.insertion.auc.item(),
        "deletion": result.deletion.auc.item(),
        "mse": last.mse.item(),
        "cosine": last.cosine.item(),
        "ties": result.insertion.ties.item(),
        "rank_tv": fei.metrics.rank_total_variation(maps).item(),
        "forwards": cost.forwards,
        "backwards": cost.backwards,
        "protocol": result.insertion.protocol,
        "layers": layers,
    }


def black(model: Classifier, name: str) -> dict[str, Any]:
    """The black-image test of one method."""
    result = fei.metrics.black_image(model, fei.methods.create(name), trials=TRIALS)
    return {
        "rate": result.rate,
        "interval": list(result.interval),
        "thresholds": {str(k): v for k, v in result.thresholds.items()},
        "gain": float(torch.as_tensor(result.gain).mean()),
    }


def table(results: Results, network: str) -> str:
    """Means over the photographs with 95 % bootstrap intervals, and the black-image rates."""
    lines = [
        "| method | n | insertion ↑ | deletion ↓ | MSE ↓ | cosine ↑ | black image ↓ |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in METHODS:
        rows = [r for r in results.rows if r["part"] == "scores" and r["network"] == network and r["method"] == name]
        if not rows:
            continue
        cells = []
        for column in COLUMNS:
            values = torch.tensor([row[column] for row in rows])
            low, high = bootstrap_interval(values)
            cells.append(f"{statistics.mean(values.tolist()):.3f} ({low:.3f}–{high:.3f})")
        tests = [r for r in results.rows if r["part"] == "black" and r["network"] == network and r["method"] == name]
        cells.append("{:.2f} ({:.2f}–{:.2f})".format(tests[0]["rate"], *tests[0]["interval"]) if tests else "–")
        lines.append(f"| {name} | {len(rows)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--parts", default="scores,black")
    parser.add_argument("--table", action="store_true", help="only print what has been measured")
    options = parser.parse_args()
    results = Results("diagnostics")
    for network in options.networks.split(",") if not options.table else ():
        model = load(network)
        if "scores" in options.parts:
            for synset, name in itertools.product(EIGHT, METHODS):
                key = {"part": "scores", "network": network, "photo": synset, "method": name}
                row = results.once(key, lambda: scores(model, synset, name))  # noqa: B023
                print(network, synset, name, {c: round(row[c], 3) for c in COLUMNS}, flush=True)
        if "black" in options.parts:
            for name in BLACK:
                key = {"part": "black", "network": network, "method": name, "trials": TRIALS}
                print(network, name, results.once(key, lambda: black(model, name)), flush=True)  # noqa: B023
    for network in NETWORKS:
        print(f"\n{network}\n\n{table(results, network)}", flush=True)


if __name__ == "__main__":
    main()
