"""What the benchmarks share: networks, photographs, results on disk that a second run does not repeat."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import fei
from fei.data import read_image
from fei.models import Classifier

ROOT = Path(__file__).resolve().parent
ASSETS = Path(os.environ.get("FEI_ASSETS", ROOT.parent.parent / "shared" / "assets"))
RESULTS = ROOT / "results"
COLUMNS = ["insertion", "deletion", "mse", "cosine", "phi", "area_error"]
NETWORKS = ("squeezenet", "mobilenet_v1", "efficientnet_lite0", "resnet50")
# robin, white stork, golden retriever, golfcart: all four networks are sure of them (probability above .85)
PHOTOS = ("n01558993", "n02002556", "n02099601", "n03445924")


def load(name: str) -> Classifier:
    """The embedded network, or one of the assets'."""
    return fei.models.load(name if name == "efficientnet_lite0" else f"{ASSETS / 'zoo.py'}:{name}")


def photo(model: Classifier, synset: str) -> Tensor:
    """One photograph of a class as a batch of one."""
    path = next(iter(sorted((ASSETS / "imagenet" / synset).iterdir())))
    return model.preprocess(read_image(path))[None]


def quality(model: Classifier, x: Tensor, maps: Tensor, target: int, reference: Tensor) -> dict[str, float]:
    """Insertion and deletion over q = 0, .05, …, 1 (normalised trapezoid), last-layer MSE and cosine along insertion.

    The reference is the optimisation's own; ties are broken at random with a fixed seed.
    """
    pixels = maps[0, 0].numel()
    jitter = torch.rand(pixels, generator=torch.Generator().manual_seed(0))
    order = sorted_by(maps.flatten(), jitter)
    rank = torch.empty(pixels, dtype=torch.long).scatter_(0, order, torch.arange(pixels)).view(maps.shape[2:])
    q = torch.linspace(0, 1, 21)
    painted = (q * pixels).round().long().view(-1, 1, 1, 1)
    r = reference.expand_as(x)
    inserted = torch.where(rank < pixels - painted, x, r)
    deleted = torch.where(rank < painted, r, x)
    scores, features = _forward(model, inserted, target)
    away, _ = _forward(model, deleted, target)
    original, along = features[:1], features[1:-1]
    return {
        "insertion": torch.trapezoid(scores, q).item(),
        "deletion": torch.trapezoid(away, q).item(),
        "mse": (along - original).square().mean().item(),
        "cosine": torch.cosine_similarity(along, original.expand_as(along)).mean().item(),
    }


def measure(model: Classifier, synset: str, variant: str, **options: Any) -> dict[str, Any]:
    """One explanation and its quality."""
    x = photo(model, synset)
    explainer = fei.FEI(model, variant, **options)
    start = time.perf_counter()
    result = explainer.explain(x)
    seconds = time.perf_counter() - start
    asked = torch.tensor(explainer.settings.areas)
    return quality(model, x, result.maps, int(result.target), result.reference) | {
        "phi": result.trace.phi[0, :, -1].mean().item(),
        "area_error": (result.trace.area[0, :, -1] - asked).abs().mean().item(),
        "target": int(result.target),
        "seconds": round(seconds, 2),
        "threads": torch.get_num_threads(),
    }


def sorted_by(values: Tensor, jitter: Tensor) -> Tensor:
    """Indices from the highest value to the lowest, equal values in the order of `jitter`."""
    first = jitter.argsort()
    return first[values[first].argsort(descending=True, stable=True)]


@torch.no_grad()
def _forward(model: Classifier, images: Tensor, target: int) -> tuple[Tensor, Tensor]:
    name, _, _ = model.feature_layers[-1].partition("#")
    kept: list[Tensor] = []
    handle = model.get_submodule(name).register_forward_hook(lambda m, a, out: kept.append(out.flatten(1).clone()))
    try:
        scores = model(images).softmax(1)[:, target]
    finally:
        handle.remove()
    return scores, kept[-1]


class Results:
    """Rows in a JSON-lines file, each computed once: a run that is interrupted goes on where it stopped."""

    def __init__(self, name: str) -> None:
        RESULTS.mkdir(exist_ok=True)
        self.path = RESULTS / f"{name}.jsonl"
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def once(self, key: dict[str, Any], compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The row of that key, computed and appended if it is not there yet."""
        for row in self.rows:
            if all(row.get(k) == v for k, v in key.items()):
                return row
        return self.append(key | compute())

    def append(self, row: dict[str, Any]) -> dict[str, Any]:
        """Add a row."""
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return row

    def mean(self, columns: list[str], **where: Any) -> dict[str, float] | None:
        """Column means over the rows that match, ``None`` if there are none."""
        rows = [row for row in self.rows if all(row.get(k) == v for k, v in where.items())]
        if not rows:
            return None
        return {c: sum(row[c] for row in rows) / len(rows) for c in columns} | {"n": len(rows)}

    def values(self, column: str) -> Iterator[Any]:
        """The distinct values of a column, in the order they appeared."""
        return iter(dict.fromkeys(row[column] for row in self.rows))
