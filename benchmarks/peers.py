"""FEI against what a user would pick instead: seconds per image, and how faithful the map is, side by side.

    python benchmarks/peers.py [--networks squeezenet,…] [--photos 2] [--methods …] [--repeats 3] [--table]

Every method with its default options, which are its authors' (RISE: 4000 masks; Extremal Perturbation: 800 steps for
each of 4 areas), on the same image in one process. The default method is timed right before and after each of them, and
the ratio is to the mean of these two: the machine's own speed cancels. A method repeats as often as asked for, as long
as that takes less than a minute. Rows that are there already are not measured again. Quality is measured with
references that no method optimises with.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from _common import PHOTOS, TOY, Results, clock, load, markdown, photo
from torch import Tensor

import fei
from fei.models import Classifier

FEI = "fei"
METHODS = (FEI, "fei-vm", "gradcam", "integrated-gradients", "smoothgrad", "scorecam", "rise", "extremal-perturbation")
NETWORKS = ("squeezenet", "mobilenet_v1", "resnet50")
PROTOCOL = "held-out"
TOY_OPTIONS = {
    FEI: {"steps": 2},
    "fei-vm": {"steps": 2},
    "rise": {"samples": 16},
    "extremal-perturbation": {"steps": 2},
    "smoothgrad": {"samples": 2},
    "integrated-gradients": {"steps": 2},
}
_PATIENCE = 60.0  # seconds after which a method is not repeated


def timed(call: Callable[[], Tensor], repeats: int) -> tuple[Tensor, list[float]]:
    """What a call returns, and its seconds, repeated as long as that takes less than a minute."""
    taken: list[float] = []
    while len(taken) < repeats and sum(taken) + (taken[-1] if taken else 0) < _PATIENCE:
        start = clock()
        result = call()
        taken.append(clock() - start)
    return result, taken


def measure(
    model: Classifier, x: Tensor, name: str, options: dict[str, dict[str, Any]], repeats: int
) -> dict[str, Any]:
    """One method on one image: its time, FEI's time around it, the scores of its map."""
    target = int(model(x).argmax())
    fei_method, method = (fei.methods.create(n, **options.get(n, {})) for n in (FEI, name))
    _, before = timed(lambda: fei_method(model, x, target), 1)
    maps, taken = timed(lambda: method(model, x, target), repeats)
    _, after = timed(lambda: fei_method(model, x, target), 1)
    result = fei.metrics.evaluate(model, x, maps, target, protocol=PROTOCOL)
    last = list(result.internal.values())[-1]
    seconds = statistics.median(taken)
    base = seconds if name == FEI else statistics.mean(before + after)
    return {
        "seconds": seconds,
        "seconds_low": min(taken),
        "seconds_high": max(taken),
        "repeats": len(taken),
        "fei_seconds": base,
        "ratio": seconds / base,
        "insertion": result.insertion.auc.item(),
        "deletion": result.deletion.auc.item(),
        "mse": last.mse.item(),
        "cosine": last.cosine.item(),
        "protocol": result.insertion.protocol,
        "threads": torch.get_num_threads(),
    }


def table(results: Results) -> str:
    """Means over the photographs; the range of the ratios is that over photographs."""
    lines = []
    for network in results.values("network"):
        for name in METHODS:
            rows = [row for row in results.rows if (row["network"], row["method"]) == (network, name)]
            if not rows:
                continue
            mean = {c: statistics.mean(row[c] for row in rows) for c in ("seconds", "insertion", "deletion", "cosine")}
            mse = statistics.mean(row["mse"] for row in rows)
            ratios = [row["ratio"] for row in rows]
            ratio, digits = statistics.median(ratios), 2 if max(ratios) < 10 else 0
            lines.append(
                [
                    *(
                        network,
                        name,
                        str(len(rows)),
                        f"{mean['seconds']:.2f}" if mean["seconds"] < 10 else f"{mean['seconds']:.0f}",
                    ),
                    "1" if name == FEI else f"{ratio:.{digits}f} ({min(ratios):.{digits}f}–{max(ratios):.{digits}f})",
                    *(f"{mean[c]:.3f}" for c in ("insertion", "deletion")),
                    f"{mse:.4g}",
                    f"{mean['cosine']:.3f}",
                ]
            )
    head = [
        "network",
        "method",
        "images",
        "seconds per image",
        "× `fei`",
        "insertion ↑",
        "deletion ↓",
        "MSE ↓",
        "cosine ↑",
    ]
    return markdown(head, lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true", help="the toy network, few steps and masks")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--photos", type=int, default=2)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--table", action="store_true", help="only print what has been measured")
    options = parser.parse_args(arguments)
    results = Results("peers")
    for network in [] if options.table else [TOY] if options.toy else options.networks.split(","):
        model = load(network)
        changed = TOY_OPTIONS if options.toy else {}
        for synset in PHOTOS[: 1 if options.toy else options.photos]:
            x = photo(model, synset)
            fei.FEI(model, steps=1).explain(x)  # the first pass of a process is slower
            for name in options.methods.split(","):
                key = {"network": network, "photo": synset, "method": name}
                row = results.once(key, lambda: measure(model, x, name, changed, options.repeats))  # noqa: B023
                told = f"{row['seconds']:.2f} s, {row['ratio']:.2f} × FEI, insertion {row['insertion']:.3f}"
                print(network, synset, name, told, flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
