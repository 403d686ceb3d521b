"""What a step, the set-up and many images cost on a GPU: run it where there is one, and send the table.

    python benchmarks/gpu.py [--device cuda] [--networks torchvision:resnet50@none,torchvision:vit_b_16@none] [--toy]

For each network, in single precision and under bfloat16 autocast: seconds of a step over those of a bare forward and
input gradient of the same five rows, in the faster memory format; seconds of all but the steps, in steps; images per
second, eight at a time; and the most memory that was taken. Weights play no part in any of these, and need not be
downloaded. Timings are medians, in turns, after the device has done all it was told. `--toy` runs on a CPU.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from _common import TOY, Results, load, markdown
from torch import Tensor

import fei
from fei.models import Classifier

NETWORKS = "torchvision:resnet50@none,torchvision:mobilenet_v2@none,torchvision:vit_b_16@none"
SHORT, LONG, IMAGES = 2, 20, 8
HEAD = ["network", "precision", "step / bare", "set-up, steps", "images per second", "memory, MB"]


def wait(device: torch.device) -> None:
    """Until the device has done what it was told."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()


def seconds(calls: dict[str, Callable[[], object]], device: torch.device, repeats: int) -> dict[str, float]:
    """Median seconds of each call, in turns; the first turn is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            wait(device)
            start = time.perf_counter()
            call()
            wait(device)
            if turn:
                taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in taken.items()}


def bare(model: Classifier, batch: Tensor) -> None:
    """One forward and input gradient."""
    leaf = batch.clone().requires_grad_()
    torch.autograd.grad(model(leaf).float().softmax(1)[:, 0].sum(), leaf)


def row(model: Classifier, name: str, device: torch.device, repeats: int, half: bool) -> dict[str, object]:
    """The numbers of one network in one precision."""
    size = (IMAGES, 3, model.input_size, model.input_size)
    images = torch.rand(size, generator=torch.Generator().manual_seed(0)).to(device)
    five = images[:1].repeat(5, 1, 1, 1)
    layouts = {"contiguous": torch.contiguous_format, "channels last": torch.channels_last}
    calls: dict[str, Callable[[], object]] = {
        f"bare, {layout}": partial(bare, model, five.contiguous(memory_format=form)) for layout, form in layouts.items()
    }
    for steps in (SHORT, LONG):
        calls[f"{steps} steps"] = partial(fei.FEI(model, steps=steps).attribute, images[:1], 0)
    calls["many"] = partial(fei.FEI(model).attribute, images, 0, internal_batch_size=5 * IMAGES)
    module = None if device.type == "cpu" else torch.get_device_module(device)
    if module is not None:
        module.reset_peak_memory_stats()
    with torch.autocast(device.type, torch.bfloat16, enabled=half):
        taken = seconds(calls, device, repeats)
    step = (taken[f"{LONG} steps"] - taken[f"{SHORT} steps"]) / (LONG - SHORT)
    return {
        "network": name,
        "precision": "bfloat16" if half else "float32",
        "step": step / min(taken[f"bare, {layout}"] for layout in layouts),
        "setup": taken[f"{SHORT} steps"] / step - SHORT,
        "images": IMAGES / taken["many"],
        "memory": module.max_memory_allocated() / 1e6 if module is not None else 0.0,
        "device": str(device) if module is None else module.get_device_name(),
        "torch": str(torch.__version__),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, keep and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--networks", default=NETWORKS, help="what fei.models.load takes, separated by commas")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--toy", action="store_true", help="a tiny network on a CPU")
    options = parser.parse_args(arguments)
    device = torch.device("cpu" if options.toy else options.device)
    if device.type != "cpu" and not torch.get_device_module(device).is_available():
        parser.error(f"there is no {device.type} device that torch can reach; name another with --device, or try --toy")
    results, rows = Results("gpu"), []
    for name in [TOY] if options.toy else options.networks.split(","):
        model = (load(name) if options.toy else fei.models.load(name)).eval().to(device)
        for half in (False, True):
            rows.append(row(model, name, device, options.repeats, half))
            results.append(rows[-1])
    cells = [
        [str(r["network"]), str(r["precision"]), *(f"{r[key]:.2f}" for key in ("step", "setup", "images", "memory"))]
        for r in rows
    ]
    print(markdown(HEAD, cells))


if __name__ == "__main__":
    main()
