"""What the evidence of all blocks adds on a transformer: masks, evidence, and both, against baselines near to it.

    python studies/transformers/evidence.py NETWORK PHOTOGRAPHS --count 20 --scores FILE

Photographs are drawn from a folder with seed 0. One optimisation with `prior=1` gives the masks' mean a and the ranks r
of the evidence; "s3 w0.5" is a + .5·r with a smoothing of 3 pixels, which is the flagship. A line of JSON for each.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import torch
from torch import Tensor

import fei
from fei import metrics
from fei.models import Classifier

LAST = "blocks.11"
SMOOTHINGS, WEIGHTS, BASELINES = (3.0, 8.0), (0, 0.5, 1, 2), ("libra-fullgrad", "generic-attention")


def maps_of(model: Classifier, x: Tensor) -> dict[str, Tensor]:
    """All maps of one photograph, by what they are called in the scores."""
    found: dict[str, Tensor] = {}
    generator = torch.Generator().manual_seed(0)
    for smooth in SMOOTHINGS:
        made = fei.FEI(model, preset="fei", prior=1.0, smooth=smooth).explain(x, generator=generator, evidence=False)
        masks = made.alphas.mean(1).double()
        ranks = 2 * made.maps.double() - masks
        found |= {f"s{smooth:g} w{weight:g}": (masks + weight * ranks).float() for weight in WEIGHTS}
        found["E"] = ranks.float()
    return found | {name: fei.methods.create(name)(model, x, generator=generator) for name in BASELINES}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Measure what the evidence adds on a transformer.")
    parser.add_argument("network", help="what fei.models.load takes")
    parser.add_argument("photographs", type=Path, help="a folder of folders of photographs")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--scores", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = fei.models.load(options.network).eval()
    photographs = sorted(options.photographs.glob("*/*.JPEG"))
    random.Random(0).shuffle(photographs)
    for file in photographs[: options.count]:
        x = model.preprocess(file)[None]
        for name, maps in maps_of(model, x).items():
            found = metrics.evaluate(model, x, maps, layers=[LAST], protocol="held-out")
            inside = found.internal[LAST]
            numbers = {"insertion": found.insertion.auc, "deletion": found.deletion.auc, "cos": inside.cosine}
            numbers |= {"cls": inside.numbers["cls_cosine"], "patch": inside.numbers["patch_cosine"]}
            row = {"photograph": file.stem, "k": name} | {key: value.item() for key, value in numbers.items()}
            with options.scores.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
