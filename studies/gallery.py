"""All methods of main.toml on many photographs and two networks, as sheets of pictures.

    python -m studies.gallery                # scikit-image's photographs, to docs/images: these may be shown
    python -m studies.gallery --imagenet     # the study's photographs, to look at; they may not be published

Maps that a run of main.toml has kept (`python -m studies.run --keep-maps`) are taken from there; others are computed
and kept beside it, so that a second call, or one after an interruption, computes only what is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import skimage
import torch
from numpy.typing import NDArray
from PIL import Image
from studies._plans import least_options, placed, plan_of
from studies.photographs import ASSETS, ROOT
from torch import Tensor

import fei
from fei.bench.plan import PlannedMethod
from fei.bench.plan.keys import canonical
from fei.bench.store import Store
from fei.data import load, read_image
from fei.models import Classifier
from fei.report.drawing import Pixels, notebook_figure, overlay, photo, shortened

_NETWORKS = ("EfficientNet-Lite0", "MobileNetV1")
_DEMOS = ("chelsea", "coffee", "astronaut", "rocket", "motorcycle_left")
_COLUMNS, _TILE, _TITLE = 14, 0.9, 0.13  # inches
_ON_A_SHEET = 4
_EXTREMES = (1, 99)  # per cent: a few pixels of a gradient would leave the others dark


class Maps:
    """The maps of main.toml's methods.

    Args:
        folder: Where the study's runs are; new maps go to its `gallery`.
        trial: Whether to compute as little as possible.
    """

    def __init__(self, folder: Path, *, trial: bool) -> None:
        plan = plan_of("main")
        self.rows = [row.model_copy(update={"options": _options(row, trial)}) for row in plan.methods]
        self.networks = {pair.name: placed(pair.model) for pair in plan.pairs}
        self._folder = folder / "gallery"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._kept = {} if trial else _kept(folder / "main")

    def get(self, network: str, model: Classifier, image: Tensor, item: str, row: PlannedMethod) -> NDArray[Any]:
        """A method's map of an image (1, C, H, W)."""
        if (kept := self._kept.get((network, row.label, item))) is not None:
            return kept
        digest = hashlib.sha256(image.numpy().tobytes()).hexdigest()
        method = fei.methods.create(row.name, **row.options)
        settings = canonical([network, digest, row.name, getattr(method, "config", row.options)])
        file = self._folder / f"{hashlib.sha256(settings.encode()).hexdigest()[:32]}.npy"
        if not file.is_file():
            target = int(model(image).argmax())
            np.save(file, method(model, image, target, generator=torch.Generator().manual_seed(0))[0, 0].numpy())
        values: NDArray[Any] = np.load(file)
        return values


def _options(row: PlannedMethod, trial: bool) -> dict[str, Any]:
    return row.options | (least_options(row.name, row.options) if trial else {})


def _kept(run: Path) -> dict[tuple[str, str, str], NDArray[Any]]:
    """The maps that a run has kept, by network, label and photograph."""
    if not Store.begun(run):
        return {}
    with Store.open(run, readonly=True) as store:
        units = store.rows(
            "SELECT DISTINCT pairs.name, methods.label, p.item, p.unit FROM plan_units p JOIN pairs USING (pair) "
            "JOIN methods USING (method) WHERE p.kind = 'map' AND p.seed = 0"
        )
        found = {(pair, label, item): store.map(key) for pair, label, item, key in units}
    return {place: values for place, values in found.items() if values is not None}


def sheet(
    rows: Sequence[tuple[str, Pixels, dict[str, NDArray[Any]]]], headline: str, columns: int = _COLUMNS
) -> Image.Image:
    """Photographs one below the other, each with the maps of all methods over it.

    Args:
        rows: For each photograph a caption, its pixels and its maps.
        headline: What they have in common.
        columns: Pictures in a line.
    """
    lines = -(-(len(rows[0][2]) + 1) // columns)
    height = len(rows) * lines * (_TILE + _TITLE) + 0.3
    figure = notebook_figure(figsize=(columns * _TILE, height), dpi=130)
    figure.suptitle(headline, fontsize=9, x=0.005, y=1 - 0.08 / height, ha="left", va="top")
    for number, (caption, pixels, maps) in enumerate(rows):
        tiles = {caption: pixels} | {label: _over(pixels, values) for label, values in maps.items()}
        for place, (label, tile) in enumerate(tiles.items()):
            line, column = number * lines + place // columns, place % columns
            bottom = height - 0.3 - (line + 1) * (_TILE + _TITLE)
            box = (column / columns + 0.002, bottom / height, 1 / columns - 0.004, _TILE / height)
            axes = figure.add_axes(box)
            axes.imshow(tile, interpolation="lanczos")
            axes.set_axis_off()
            short = shortened(label.partition(" [")[0], 22)
            weight = "bold" if not place else "normal"
            axes.set_title(short, fontsize=5, pad=1.5, fontweight=weight, parse_math=False)
    file = io.BytesIO()
    figure.savefig(file, format="png", facecolor="white")
    return Image.open(file).convert("RGB")


def _over(pixels: Pixels, values: NDArray[Any]) -> Pixels:
    return overlay(pixels, np.clip(values, *np.percentile(values, _EXTREMES)))


def scikit_image(name: str) -> Image.Image:
    """A picture that comes with scikit-image."""
    (file,) = (Path(skimage.__file__).parent / "data").glob(f"{name}.*")
    return read_image(file)


def photographs(imagenet: bool, count: int) -> Iterator[tuple[str, Image.Image]]:
    """Names and photographs: the study's first ones, or scikit-image's."""
    if not imagenet:
        yield from ((name, scikit_image(name)) for name in _DEMOS[:count])
        return
    data = load(f"imagenet:{ASSETS / 'imagenet'}")
    yield from ((item.id, read_image(item.path)) for item in data.sample(count, 0))


def main() -> None:
    """Compute what is missing, and write the sheets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--imagenet", action="store_true", help="the study's photographs, to look at")
    parser.add_argument("--count", type=int, help="of photographs; 12 of the study's, or all of scikit-image's")
    parser.add_argument("--networks", nargs="+", default=list(_NETWORKS))
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "study")
    parser.add_argument("--out", type=Path, help="docs/images, or RUNS/gallery for the study's photographs")
    parser.add_argument("--trial", action="store_true", help="as little work as possible")
    options = parser.parse_args()
    out = options.out or (options.runs / "gallery" if options.imagenet else ROOT / "docs" / "images")
    out.mkdir(parents=True, exist_ok=True)
    maps = Maps(options.runs, trial=options.trial)
    for network in options.networks:
        model = fei.models.load(maps.networks[network])
        rows = []
        for item, picture in photographs(options.imagenet, options.count or (12 if options.imagenet else len(_DEMOS))):
            image = model.preprocess(picture)[None]
            made = {row.label: maps.get(network, model, image, item, row) for row in maps.rows}
            rows.append((model.label(int(model(image).argmax())).split(",")[0], photo(image[0]), made))
            print(f"{network}: {item}", flush=True)
        for first in range(0, len(rows), size := _ON_A_SHEET if options.imagenet else len(rows)):
            number = f"-{first // size + 1}" if options.imagenet else ""
            file = out / f"gallery-{network.lower()}{number}.jpg"
            sheet(rows[first : first + size], network).save(file, quality=82, optimize=True)
            print(file)


if __name__ == "__main__":
    main()
