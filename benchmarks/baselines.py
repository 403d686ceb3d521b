"""Every method on SqueezeNet and eight photographs: the table of docs/methods.md, and the picture of all maps.

    python benchmarks/baselines.py [--methods …] [--maps FOLDER] [--table]
    python benchmarks/baselines.py --figure NETWORK --photo DEMO --maps FOLDER [--methods …]

Results go to benchmarks/results/baselines.jsonl; a second run computes only what is missing. Maps are kept in the named
folder, for the picture.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from _common import PHOTOS, ROOT, Results, load, photo
from torch import Tensor

import fei
from fei.data import demo_image
from fei.methods import available
from fei.metrics import bootstrap_interval
from fei.models import Classifier

NETWORK = "squeezenet"
# the four of the other benchmarks, and four more of which every network is sure
EIGHT = (*PHOTOS, "n02085620", "n02317335", "n03935335", "n04389033")  # Chihuahua, starfish, piggy bank, tank
COLUMNS = ("insertion", "deletion", "mse", "cosine")
IMAGES = ROOT.parent / "docs" / "images"


def kept_map(
    model: Classifier, x: Tensor, network: str, image: str, name: str, folder: Path | None
) -> tuple[Tensor, Any]:
    """A method's map with its cost, from the folder if it is there."""
    path = None if folder is None else folder / f"{network}-{image}-{name}.pt"
    if path is not None and path.exists():
        maps, cost = torch.load(path, weights_only=True)
        return maps, fei.metrics.Cost(**cost)
    target = int(model(x).argmax())
    maps, cost = fei.metrics.measure_cost(model, lambda: fei.methods.create(name)(model, x, target))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save((maps, vars(cost)), path)
    return maps, cost


def scores(model: Classifier, synset: str, name: str, folder: Path | None) -> dict[str, Any]:
    """One method with its default options on one photograph under the paper's protocol."""
    x = photo(model, synset)
    maps, cost = kept_map(model, x, NETWORK, synset, name, folder)
    result = fei.metrics.evaluate(model, x, maps, int(model(x).argmax()))
    last = list(result.internal.values())[-1]
    return {
        "insertion": result.insertion.auc.item(),
        "deletion": result.deletion.auc.item(),
        "mse": last.mse.item(),
        "cosine": last.cosine.item(),
        "ties": result.insertion.ties.item(),
        "forwards": cost.forwards,
        "backwards": cost.backwards,
        "seconds": round(cost.seconds, 2),
        "threads": torch.get_num_threads(),
        "protocol": result.insertion.protocol,
    }


def table(results: Results) -> str:
    """Means over the photographs with 95 % bootstrap intervals, and what a map costs."""
    lines = [
        "| method | n | insertion ↑ | deletion ↓ | MSE ↓ | cosine ↑ | passes | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in available():
        rows = [row for row in results.rows if row["method"] == name]
        if not rows:
            continue
        cells = []
        for column in COLUMNS:
            values = torch.tensor([row[column] for row in rows])
            low, high = bootstrap_interval(values)
            digits = 1 if column == "mse" else 3
            cells.append(f"{statistics.mean(values.tolist()):.{digits}f} ({low:.{digits}f}–{high:.{digits}f})")
        passes = "{:.0f} + {:.0f}".format(*(statistics.mean(r[c] for r in rows) for c in ("forwards", "backwards")))
        seconds = statistics.median(row["seconds"] for row in rows)
        digits = 0 if seconds >= 10 else 2
        lines.append(f"| {name} | {len(rows)} | {' | '.join(cells)} | {passes} | {seconds:.{digits}f} |")
    return "\n".join(lines)


def figure(network: str, demo: str, folder: Path, names: Sequence[str]) -> Path:
    """Maps on one of scikit-image's photographs."""
    from fei.report.comparison import grid
    from fei.report.drawing import photo as picture

    model = load(network)
    x = model.preprocess(demo_image(demo))[None]
    planes = {name: kept_map(model, x, network, demo, name, folder)[0][0, 0].numpy() for name in names}
    path = IMAGES / f"methods-{network}.jpg"
    grid(picture(x[0]), planes, f"{network}: {model.label(int(model(x).argmax()))}").savefig(path)
    return path


def main() -> None:
    """Measure what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(available()))
    parser.add_argument("--maps", type=Path)
    parser.add_argument("--table", action="store_true", help="only print what has been measured")
    parser.add_argument("--figure", metavar="NETWORK")
    parser.add_argument("--photo", default="chelsea")
    options = parser.parse_args()
    if options.figure:
        print(figure(options.figure, options.photo, options.maps, options.methods.split(",")))
        return
    results = Results("baselines")
    if not options.table:
        model = load(NETWORK)
        for name, synset in itertools.product(options.methods.split(","), EIGHT):
            row = results.once({"photo": synset, "method": name}, lambda: scores(model, synset, name, options.maps))  # noqa: B023
            print(synset, name, {c: round(row[c], 3) for c in (*COLUMNS, "seconds")}, flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
