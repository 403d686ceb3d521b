"""Speed of the metrics against torchcam's and Quantus': same network, image, map and number of points, in one run.

    python benchmarks/metrics.py [--network mobilenet_v1] [--repeats 5]

- torchcam: `DeletionInsertionMetric` (both curves, 20 intervals) against our `evaluate` under the same protocol, which
  measures internal faithfulness in the same forwards as well.
- Quantus: `PixelFlipping` (deletion only, 21 points) against our `deletion` with as many points, and against all of
  `evaluate`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import quantus
import torch
from _common import PHOTOS, Results, load, photo
from torchcam.metrics import DeletionInsertionMetric

import fei


class FixedMaps:
    """What torchcam's metric needs of an extractor, with maps made elsewhere."""

    def __init__(self, model: torch.nn.Module, maps: torch.Tensor) -> None:
        self.model, self.maps = model, maps

    def __call__(self, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        return [self.maps[:, 0]]

    def fuse_cams(self, cams: list[torch.Tensor]) -> torch.Tensor:
        return cams[0]

    def _hooks_off(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    """Time alternately, print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="mobilenet_v1")
    parser.add_argument("--images", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    model = load(options.network)
    x = torch.cat([photo(model, synset) for synset in PHOTOS[: options.images]])
    maps = torch.rand(len(x), 1, *x.shape[2:], generator=torch.Generator().manual_seed(0))
    target = model(x).argmax(1)
    values = x[0].numel()
    step = values // 3 // 7  # divides the pixels of an image, as Quantus demands: 21 points
    points = -(-values // step)
    flipping = dataclasses.replace(
        fei.protocols.get("quantus-pixelflipping"),
        levels=fei.protocols.WithoutStart(fei.protocols.Intervals(points)),
    )

    def torchcam() -> None:
        metric = DeletionInsertionMetric(FixedMaps(model, maps))
        metric.update(x)
        metric.summary()

    def pixel_flipping() -> None:
        metric = quantus.PixelFlipping(features_in_step=step, perturb_baseline="black", disable_warnings=True)
        metric(model, x.numpy(), target.numpy(), maps.numpy(), device="cpu", softmax=True)

    calls: dict[str, Callable[[], Any]] = {
        "torchcam (both curves)": torchcam,
        "fei evaluate, torchcam protocol (both curves + internal)": lambda: fei.metrics.evaluate(
            model, x, maps, protocol="torchcam"
        ),
        "fei curves only, torchcam protocol": lambda: fei.metrics.evaluate(
            model, x, maps, protocol="torchcam", layers=[]
        ),
        "quantus PixelFlipping (deletion)": pixel_flipping,
        "fei deletion, same points": lambda: fei.metrics.deletion(model, x, maps, target, protocol=flipping),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(options.repeats + 1):
        for name, call in calls.items():
            times[name].append(seconds(call))
    medians = {name: statistics.median(taken[1:]) / len(x) for name, taken in times.items()}
    results = Results("metrics")
    for name, taken in medians.items():
        results.append({"network": options.network, "what": name, "seconds": taken, "repeats": options.repeats})
        print(f"{name:60} {taken:7.3f} s an image")
    names = list(calls)
    print(f"torchcam / fei evaluate: {medians[names[0]] / medians[names[1]]:.2f}")
    print(f"torchcam / fei curves only: {medians[names[0]] / medians[names[2]]:.2f}")
    print(f"quantus / fei deletion: {medians[names[3]] / medians[names[4]]:.2f}")
    print("points", points, "threads", torch.get_num_threads(), "numpy", np.__version__)


if __name__ == "__main__":
    main()
