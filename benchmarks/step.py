"""Cost of one FEI step over a bare forward + input gradient of the same batch.

    python benchmarks/step.py [--networks squeezenet,resnet50] [--repeats 7]

Both are timed in one run, alternating, and the median ratio is reported with its range: the machine's own speed
cancels. A step here is what the optimisation does: blend, forward, clipped backward, mask update.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import torch
from _common import NETWORKS, PHOTOS, Results, load, photo
from torch import Tensor

import fei
from fei.models import Classifier

VARIANTS = ("none", "vm", "ivm", "avm", "ibm", "bm", "abm")


def bare(model: Classifier, batch: Tensor, target: int) -> float:
    """Seconds of one forward and input gradient."""
    start = time.perf_counter()
    leaf = batch.clone().requires_grad_()
    torch.autograd.grad(model(leaf).softmax(1)[:, target].sum(), leaf)
    return time.perf_counter() - start


def step(model: Classifier, x: Tensor, variant: str, preset: str) -> float:
    """Seconds of one optimisation step: (5 steps) − (1 step) over 4, so that tracing and recording cancel."""

    def run(steps: int) -> float:
        start = time.perf_counter()
        fei.FEI(model, variant, preset=preset, steps=steps).explain(x, 0)
        return time.perf_counter() - start

    return (run(5) - run(1)) / 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args(arguments)
    results = Results("step")
    print(f"{'network':20} {'variant':7} ratio (range over {options.repeats} repeats)")
    for network in options.networks.split(","):
        model = load(network)
        x = photo(model, PHOTOS[0])
        batch = x.repeat(5, 1, 1, 1)
        bare(model, batch, 0)
        for variant in options.variants.split(","):
            ratios = [step(model, x, variant, options.preset) / bare(model, batch, 0) for _ in range(options.repeats)]
            row = {
                "network": network,
                "variant": variant,
                "preset": options.preset,
                "ratio": statistics.median(ratios),
                "low": min(ratios),
                "high": max(ratios),
                "repeats": options.repeats,
                "threads": torch.get_num_threads(),
            }
            results.append(row)
            print(f"{network:20} {variant:7} {row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f})", flush=True)


if __name__ == "__main__":
    main()
