"""The two best guesses of a network on twelve photographs, explained by `fei`, `fei-vm`, `fei-ibm` and Grad-CAM.

python -m studies.flagship.gallery --out docs/images/flagship.jpg               # scikit-image's photographs
python -m studies.flagship.gallery --folder PHOTOGRAPHS --out FILE [--network SPEC]   # others, to look at
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from PIL import Image
from studies.flagship.measure import drawn, seeded
from studies.gallery import scikit_image, sheet

import fei
from fei.core.scoring import top_classes
from fei.data import read_image
from fei.report.drawing import photo

DEMOS = (
    *("chelsea", "coffee", "astronaut", "rocket", "motorcycle_left", "camera"),
    *("clock_motion", "coins", "horse", "moon", "page", "hubble_deep_field"),
)
METHODS = ("fei", "fei-vm", "fei-ibm", "gradcam")


def photographs(folder: Path | None, count: int) -> Iterator[Image.Image]:
    """Those of scikit-image, or some of a folder of folders, drawn with seed 0."""
    if folder is None:
        yield from map(scikit_image, DEMOS[:count])
    else:
        yield from map(read_image, drawn(folder, count))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Maps of two classes side by side.")
    parser.add_argument("--network", default="efficientnet_lite0", help="what fei.models.load takes")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = fei.models.load(options.network).eval()
    rows = []
    for picture in photographs(options.folder, options.count):
        x = model.preprocess(picture)[None]
        with torch.no_grad():
            best, classes = top_classes(model(x).softmax(1), 2)
        maps = {}
        for probability, index in zip(best[0].tolist(), classes[0].tolist(), strict=True):
            name = f"{model.label(index).split(',')[0]} {probability:.0%}"
            for method in METHODS:
                made = fei.methods.create(method)
                maps[f"{method}: {name}"] = made(model, x, index, generator=seeded())[0, 0].numpy()
        rows.append(("", photo(x[0]), maps))
        print(len(rows), flush=True)
    sheet(rows, f"{options.network}: the two best guesses", columns=1 + 2 * len(METHODS)).save(options.out, quality=82)


if __name__ == "__main__":
    main()
