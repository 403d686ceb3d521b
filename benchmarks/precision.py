"""What bfloat16 does to maps: the same explanation in single precision and under ``torch.autocast``, on a CPU.

    python benchmarks/precision.py [--networks squeezenet,mobilenet_v1] [--photos 6] [--preset preview]

Both maps are measured in single precision (see `quality`), and compared by rank. Each row is computed once.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from _common import ASSETS, PHOTOS, TOY, Results, load, markdown, photo, quality

import fei
from fei.metrics import rank_correlation
from fei.models import Classifier

SCORES = ("insertion", "deletion", "mse", "cosine")
HEAD = ["network", "preset", "photographs", "rank correlation", *(f"{score}, float32 / bfloat16" for score in SCORES)]


def compare(model: Classifier, synset: str, preset: str) -> dict[str, Any]:
    """Both maps of one photograph."""
    x, found = photo(model, synset), {}
    with torch.no_grad():
        target = int(model(x).argmax())
    for name in ("float32", "bfloat16"):
        with torch.autocast("cpu", torch.bfloat16, enabled=name == "bfloat16"):
            found[name] = fei.FEI(model, preset=preset).explain(x, target, evidence=False)
    row: dict[str, Any] = {"rank": rank_correlation(found["float32"].maps, found["bfloat16"].maps).item()}
    for name, one in found.items():
        row |= {f"{score} {name}": v for score, v in quality(model, x, one.maps, target, one.reference).items()}
    return row


def table(results: Results) -> str:
    """Means over photographs; of the rank correlation also the lowest."""
    cells = []
    for network, preset in dict.fromkeys((row["network"], row["preset"]) for row in results.rows):
        rows = [row for row in results.rows if (row["network"], row["preset"]) == (network, preset)]
        ranks = [row["rank"] for row in rows]
        means = {name: statistics.mean(row[name] for row in rows) for name in rows[0] if name.split()[0] in SCORES}
        both = [f"{means[f'{score} float32']:.3f} / {means[f'{score} bfloat16']:.3f}" for score in SCORES]
        told = f"{statistics.mean(ranks):.3f} (lowest {min(ranks):.3f})"
        cells.append([network, f"`{preset}`", str(len(rows)), told, *both])
    return markdown(HEAD, cells)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="squeezenet,mobilenet_v1")
    parser.add_argument("--photos", type=int, default=6)
    parser.add_argument("--preset", default="preview")
    parser.add_argument("--toy", action="store_true", help="a tiny network on noise")
    options = parser.parse_args(arguments)
    synsets = list(PHOTOS)
    if not options.toy:
        folders = sorted(folder.name for folder in (ASSETS / "imagenet").iterdir() if folder.is_dir())
        synsets += [name for name in folders if name not in PHOTOS]
    results = Results("precision")
    for network in [TOY] if options.toy else options.networks.split(","):
        model = load(network)
        for synset in synsets[: options.photos]:
            key = {"network": network, "photo": synset, "preset": options.preset}
            results.once(key, lambda model=model, synset=synset: compare(model, synset, options.preset))
    print(table(results))


if __name__ == "__main__":
    main()
