"""Cost of one FEI step over a bare forward + input gradient of the same batch.

    python benchmarks/step.py [--networks squeezenet,resnet50] [--variants vm,none] [--repeats 16]

A step here is what the optimisation does: blend, forward, clipped backward, mask update. After each step of one
explanation a bare pass is timed, in the faster of the two memory formats, and the ratios of the pairs are reported,
median and quartiles: the machine's own speed, and what else it does, cancels. All that is done before the first step
and after the last one, the set-up, is told in steps.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import torch
from _common import PHOTOS, Results, clock, load, photo
from torch import Tensor

import fei
from fei.models import Classifier

VARIANTS = ("none", "vm", "ivm", "avm", "ibm", "bm", "abm")


def bare(model: Classifier, batch: Tensor, target: int) -> float:
    """Seconds of one forward and input gradient."""
    start = clock()
    leaf = batch.clone().requires_grad_()
    torch.autograd.grad(model(leaf).softmax(1)[:, target].sum(), leaf)
    return clock() - start


def ratios(model: Classifier, x: Tensor, variant: str, preset: str, repeats: int) -> tuple[list[float], float]:
    """Seconds of a step over those of a bare pass right after it, for each of `repeats` steps after the first two.

    And the set-up, in steps.

    The bare pass is made in both memory formats, and that counts which is faster on this network.
    """
    batch = x.repeat(5, 1, 1, 1)
    batches = [batch.contiguous(memory_format=layout) for layout in (torch.contiguous_format, torch.channels_last)]
    steps: list[float] = []
    passes: list[list[float]] = [[], []]
    since = clock()

    def after_step(done: int, total: int) -> None:
        nonlocal since
        steps.append(clock() - since)
        for taken, each in zip(passes, batches, strict=True):
            taken.append(bare(model, each, 0))
        since = clock()

    fei.FEI(model, variant, preset=preset, steps=repeats + 2).attribute(x, 0, progress=after_step)
    rest, step = clock() - since, statistics.median(steps[2:])
    faster = min(passes, key=statistics.median)
    return [step / one for step, one in zip(steps, faster, strict=True)][2:], (steps[0] + rest) / step - 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="resnet50,googlenet,mobilenet_v1,efficientnet_lite0,squeezenet,deit_tiny")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--repeats", type=int, default=16)
    options = parser.parse_args(arguments)
    results = Results("step")
    print(f"{'network':20} {'variant':7} ratio (quartiles of {options.repeats} repeats)")
    for network in options.networks.split(","):
        model = load(network)
        x = photo(model, PHOTOS[0])
        bare(model, x.repeat(5, 1, 1, 1), 0)
        for variant in options.variants.split(","):
            found, setup = ratios(model, x, variant, options.preset, options.repeats)
            low, median, high = statistics.quantiles(found, n=4) if len(found) > 1 else found * 3
            row = {
                "network": network,
                "variant": variant,
                "preset": options.preset,
                "ratio": median,
                "low": low,
                "high": high,
                "setup": setup,
                "repeats": options.repeats,
                "threads": torch.get_num_threads(),
            }
            results.append(row)
            print(f"{network:20} {variant:7} {median:.2f} ({low:.2f}-{high:.2f}), set-up {setup:.2f}", flush=True)


if __name__ == "__main__":
    main()
