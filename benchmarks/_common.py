"""What the benchmarks share: networks, photographs, and results on disk that a second run does not compute again."""

from __future__ import annotations

import json
import os
import resource
import statistics
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
RESULTS = Path(os.environ.get("FEI_BENCH_RESULTS", ROOT / "results"))
COLUMNS = ["insertion", "deletion", "mse", "cosine", "phi", "area_error"]
NETWORKS = ("squeezenet", "mobilenet_v1", "efficientnet_lite0", "resnet50")
# robin, white stork, golden retriever, golfcart: all four networks are sure of them (probability above .85)
PHOTOS = ("n01558993", "n02002556", "n02099601", "n03445924")


TOY = "toy"  # a network of two convolutions on random images, to see that a benchmark runs


def load(name: str) -> Classifier:
    """The embedded network, one of the assets', or the toy."""
    if name == "efficientnet_lite0":
        return fei.models.load(name)
    return fei.models.load(f"{ROOT / '_toy.py' if name == TOY else ASSETS / 'zoo.py'}:{name}")


def photo(model: Classifier, synset: str) -> Tensor:
    """One photograph of a class as a batch of one; noise for the toy network."""
    if model.spec.endswith(f":{TOY}"):
        size, seed = (1, 3, model.input_size, model.input_size), int(synset.removeprefix("n"))
        return torch.rand(size, generator=torch.Generator().manual_seed(seed))
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
    result = explainer.explain(x, evidence=False)
    seconds = time.perf_counter() - start
    asked = torch.tensor(explainer.settings.areas)
    return quality(model, x, result.maps, int(result.target), result.reference) | {
        "phi": result.trace.phi[0, :, -1].mean().item(),
        "area_error": (result.trace.area[0, :, -1] - asked).abs().mean().item(),
        "target": int(result.target),
        "seconds": round(seconds, 2),
        "threads": torch.get_num_threads(),
    }


def clock() -> float:
    """Seconds of CPU time with one thread, so that what else the machine does is not counted; else of wall-clock time.

    Time of processes that were started and have ended is included.
    """
    if torch.get_num_threads() > 1:
        return time.perf_counter()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def alternated(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each call, in turns because a machine's speed changes; the first turn is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            start = clock()
            call()
            if turn:
                taken[name].append(clock() - start)
    return taken


def spread(values: list[float], name: str) -> dict[str, float]:
    """Median and range of repeats as columns of a row."""
    return {name: statistics.median(values), f"{name}_low": min(values), f"{name}_high": max(values)}


def latest(rows: list[dict[str, Any]], *key: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The last row of each key."""
    return {tuple(row.get(k) for k in key): row for row in rows}


def markdown(head: list[str], lines: list[list[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *lines])


def sorted_by(values: Tensor, jitter: Tensor) -> Tensor:
    """Indices from the highest value to the lowest, equal values in the order of `jitter`."""
    first = jitter.argsort(stable=True)
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
    """Rows in a JSON-lines file, each computed once: an interrupted run continues where it stopped."""

    def __init__(self, name: str) -> None:
        RESULTS.mkdir(parents=True, exist_ok=True)
        self.path = RESULTS / f"{name}.jsonl"
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
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
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        return row

    def forget(self) -> None:
        """Remove all rows."""
        self.rows.clear()
        self.path.unlink(missing_ok=True)

    def mean(self, columns: list[str], **where: Any) -> dict[str, float] | None:
        """Column means over the rows that match, ``None`` if there are none."""
        rows = [row for row in self.rows if all(row.get(k) == v for k, v in where.items())]
        if not rows:
            return None
        return {c: sum(row[c] for row in rows) / len(rows) for c in columns} | {"n": len(rows)}

    def values(self, column: str) -> Iterator[Any]:
        """The distinct values of a column, in the order they appeared."""
        return iter(dict.fromkeys(row[column] for row in self.rows))
