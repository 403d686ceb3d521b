"""Measure the flagship against cheap baselines and controls: outside, inside, class, weights, seeds, mosaics, black.

    python studies/flagship/measure.py NETWORK PHOTOGRAPHS --count 40 --scores FILE [--methods fei,gradcam,…]

Photographs are drawn from a folder with seed 0. Each number is a line of JSON, written as it comes; what a file holds
already is not computed again.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import fei
from fei import metrics
from fei.models import Classifier

CHEAP = ["gradcam", "gradcam++", "layercam", "xgradcam", "liftcam", "fgvce", "saliency", "guided-backprop"]
CONTROLS = ["random", "smooth-noise", "centre", "brightness", "edges"]
# Those that are compared where a number takes long: several maps, mosaics, or the 450 passes of RISE's protocol.
FEW = ["fei", "gradcam", "layercam"]
GRID_CONFIDENCE = 0.9
EXPENSIVE = [
    "smoothgrad",
    "integrated-gradients",
    "gradient-shap",
    "scorecam",
    "iia",
    "occlusion",
    "kernel-shap",
    "rise",
]
EXPENSIVE += ["extremal-perturbation"]


class Scores:
    """Lines of JSON in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self._known = {self._key(json.loads(line)) for line in lines}

    @staticmethod
    def _key(row: dict[str, Any]) -> tuple[str, ...]:
        return tuple(row[name] for name in ("network", "photograph", "method", "kind"))

    def add(self, row: dict[str, Any], compute: Callable[[], dict[str, float]]) -> None:
        """Compute and write a row, unless it is there."""
        if self._key(row) in self._known:
            return
        started = time.perf_counter()
        numbers = {name: round(value, 6) for name, value in compute().items()}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row | {"seconds": round(time.perf_counter() - started, 2)} | numbers) + "\n")


def drawn(folder: Path, count: int) -> list[Path]:
    """Photographs drawn with seed 0."""
    photographs = sorted(folder.glob("*/*.JPEG"))
    random.Random(0).shuffle(photographs)
    return photographs[:count]


def seeded() -> torch.Generator:
    """The generator of every measurement."""
    return torch.Generator().manual_seed(0)


def trust(model: Classifier, method: fei.methods.Method, x: Tensor, maps: Tensor) -> dict[str, float]:
    """Rank correlations of a method's map with those of other classes, another seed and another classifier."""
    common: dict[str, Any] = {"maps": maps, "generator": seeded()}
    classes = metrics.class_sensitivity(model, method, x, **common)
    return {
        "random_class": classes.random.correlation.item(),
        "runner_up": classes.runner_up.correlation.item(),
        "seeds": metrics.stability(model, method, x, **common).correlation.item(),
        "classifier": metrics.classifier_randomization(model, method, x, **common).correlation.item(),
    }


def on_photograph(
    model: Classifier, x: Tensor, method: str, *, trusts: bool, rises: bool
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The measurements of one method on one photograph, by kind; those of trust and of RISE's protocol if wanted."""
    kept: dict[str, Tensor] = {}
    made = fei.methods.create(method)

    def maps() -> Tensor:
        if "map" not in kept:
            kept["map"] = made(model, x, generator=seeded())
        return kept["map"]

    def scores() -> dict[str, float]:
        started = time.perf_counter()
        found = maps()
        seconds = time.perf_counter() - started
        last = model.feature_layers[-1]
        measured = metrics.evaluate(model, x, found, layers=[last], protocol="held-out", relevance=True)
        inside = {name: values.item() for name, values in measured.internal[last].numbers.items()}
        outside = {"insertion": measured.insertion.auc.item(), "deletion": measured.deletion.auc.item()}
        return outside | inside | {"ties": measured.insertion.ties.item(), "map_seconds": seconds}

    def rise() -> dict[str, float]:
        found = metrics.evaluate(model, x, maps(), layers=[], protocol="rise")
        return {"insertion": found.insertion.auc.item(), "deletion": found.deletion.auc.item()}

    yield "held-out", scores
    if method in FEW and trusts:
        yield "trust", lambda: trust(model, made, x, maps())
    if method in FEW and rises:
        yield "rise", rise


def whole(model: Classifier, x: Tensor, method: str, trials: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The measurements of one method on all photographs together."""

    def grid() -> dict[str, float]:
        found = metrics.grid_pointing_game(model, method, x, size=2, confidence=GRID_CONFIDENCE, generator=seeded())
        return {"rank": found.rank.mean().item(), "energy": found.energy.mean().item(), "mosaics": len(found.rank)}

    def black() -> dict[str, float]:
        found = metrics.black_image(model, method, trials=trials, generator=seeded())
        return {"fired": float(found.success.sum()), "trials": trials, "largest": found.phi.max().item()}

    if method in FEW:
        yield "grid", grid
    if method == "fei":
        yield "black image", black


def asked(description: str, count: int) -> argparse.ArgumentParser:
    """What all scripts of this folder are told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("network", help="what fei.models.load takes")
    parser.add_argument("photographs", type=Path, help="a folder of folders of photographs")
    parser.add_argument("--name", required=True, help="what to call the network")
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--scores", type=Path, required=True)
    return parser


def begun(options: argparse.Namespace) -> tuple[Classifier, Scores]:
    """The network, on one thread, and the scores so far."""
    torch.set_num_threads(1)
    return fei.models.load(options.network).eval(), Scores(options.scores)


def main() -> None:
    """Run from the command line."""
    parser = asked("Measure the flagship against baselines and controls.", 40)
    parser.add_argument("--trials", type=int, default=30, help="of the black-image test; 0 for no mosaics either")
    parser.add_argument("--trust", type=int, default=16, help="photographs with several maps each")
    parser.add_argument("--rise", type=int, default=12, help="photographs under RISE's protocol")
    parser.add_argument("--methods", default=",".join(["fei", *CHEAP, *CONTROLS]))
    options = parser.parse_args()
    model, scores = begun(options)
    photographs = drawn(options.photographs, options.count)
    inputs = [model.preprocess(file)[None] for file in photographs]
    methods = EXPENSIVE if options.methods == "expensive" else options.methods.split(",")
    # photograph by photograph, so that a run that is not over has measured all methods on the same ones
    for number, (file, x) in enumerate(zip(photographs, inputs, strict=True)):
        for method in methods:
            wanted = {"trusts": number < options.trust, "rises": number < options.rise}
            for kind, compute in on_photograph(model, x, method, **wanted):
                row = {"network": options.name, "photograph": file.stem, "method": method, "kind": kind}
                scores.add(row, compute)
        print(f"{options.name}: {number + 1} of {len(photographs)} photographs", flush=True)
    for method in methods if options.trials else ():
        for kind, compute in whole(model, torch.cat(inputs), method, options.trials):
            scores.add({"network": options.name, "photograph": "all", "method": method, "kind": kind}, compute)


if __name__ == "__main__":
    main()
