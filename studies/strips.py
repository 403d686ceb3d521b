"""Maps of a photograph while SqueezeNet loses its weights, one line per method.

    python -m studies.strips

The picture goes to docs/images/results-sanity-strips.jpg.
"""

from __future__ import annotations

from pathlib import Path

import torch
from studies._plans import placed, plan_of
from studies.gallery import sheet
from studies.photographs import ROOT

import fei
from fei.data import demo_image
from fei.report.drawing import photo

FILE = ROOT / "docs" / "images" / "results-sanity-strips.jpg"
STAGES = (0, 1, 3, 6, 13, 19, 26)  # layers without their weights
METHODS = ("fei-vm", "fei-ibm", "fei-none", "guided-backprop", "gradcam")


def main(file: Path = FILE) -> None:
    """Compute the maps, and write the picture."""
    pair = plan_of("sanity").pairs[0]
    model = fei.models.load(placed(pair.model))
    image = model.preprocess(demo_image("chelsea"))[None]
    rows = []
    for name in METHODS:
        generator = torch.Generator().manual_seed(0)
        maps = fei.metrics.cascading_randomization(model, name, image, generator=generator).maps[:, 0, 0].numpy()
        shown = {f"{stage} layers" if stage else "original": maps[stage] for stage in STAGES}
        rows.append((name, photo(image[0]), shown))
        print(name, flush=True)
    sheet(rows, f"{pair.name}, layers re-initialised from the logits down", len(STAGES) + 1).save(
        file, quality=85, optimize=True
    )


if __name__ == "__main__":
    main()
