"""What the paper's benchmark and all of ImageNet would take: measured costs, and speeds of GPUs that are estimated."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from typing import Any

from _common import Results, latest, markdown

from fei.bench.plan import Plan, parse_plan, presets

NETWORKS = {
    "VGG16": "torchvision:vgg16@none",
    "ResNet50": "torchvision:resnet50@none",
    "AlexNet": "torchvision:alexnet@none",
    "GoogLeNet": "torchvision:googlenet@none",
}
# Estimates, not measured here: forward rows per second in batches of 64 in single precision, and seconds of one pass
# forward and back of a handful of rows with hooks, where a GPU waits for its kernels to be launched.
GPU_ROWS = {"VGG16": 600, "ResNet50": 1200, "AlexNet": 6000, "GoogLeNet": 2000}
GPU_PASS = {"VGG16": 0.012, "ResNet50": 0.030, "AlexNet": 0.008, "GoogLeNet": 0.035}
_CHANNELS = {"VGG16": 512, "ResNet50": 2048, "AlexNet": 256, "GoogLeNet": 1024}  # of Score-CAM's layer
_MEASURED_CHANNELS = 512  # SqueezeNet's
_PASSES = {"extremal-perturbation": 800, "iia": 100, "rise": 63, "scorecam": 32, "fgvce": 200}
_METRIC_ROWS = 11  # of the protocol fei-paper
_FLEETS = (8, 100)
_IMAGENET = 50_000

Work = Counter[tuple[str, str, int]]
"""Units by network, method and steps; steps are 0 where a method has none that count."""


def forward_equivalents() -> dict[str, float]:
    """By method, its measured time over that of one of RISE's forward rows, on the same network and machine."""
    rows = Results("baselines").rows
    seconds = {
        name: statistics.median(row["seconds"] for row in rows if row["method"] == name)
        for name in dict.fromkeys(row["method"] for row in rows)
    }
    masks = statistics.median(row["forwards"] for row in rows if row["method"] == "rise")
    steps = statistics.median(row["backwards"] for row in rows if row["method"] == "fei-vm") / 5
    row = seconds["rise"] / masks
    return {name: s / row / (steps if _optimises(name) else 1) for name, s in seconds.items()}


def _optimises(name: str) -> bool:
    return name.startswith("fei-") or name == "fgvis"


def paper_work() -> Work:
    """The units of all presets; those that several tables share count once."""
    found: dict[tuple[Any, ...], int] = {}
    for name in presets.names():
        _collect(parse_plan(presets.preset(name)), found)
    work: Work = Counter()
    for (network, _, method, _, steps, _, _), units in found.items():
        work[network, method, steps] += units
    return work


def _collect(plan: Plan, found: dict[tuple[Any, ...], int]) -> None:
    tested = set(plan.black_image_methods())
    for pair in plan.pairs:
        network = next(name for name in NETWORKS if name.lower() in pair.model)
        for index, row in enumerate(plan.methods):
            steps = row.options.get("steps", 100) if _optimises(row.name) else 0
            key = (network, pair.model, row.name, str(row.options), steps)
            if pair.data is not None:
                images = found.get((*key, pair.data, "map"), 0)
                found[*key, pair.data, "map"] = max(images, (pair.sample or 0) * len(plan.seeds))
            if plan.black_image is not None and index in tested:
                found[*key, "", "black"] = plan.black_image.trials * len(plan.seeds)


def imagenet_work(network: str) -> Work:
    """All of ImageNet's validation images with the 16 methods of Table 1, one seed."""
    plan = parse_plan(presets.preset("table-external"))
    return Counter(
        {(network, row.name, 100 if _optimises(row.name) else 0): _IMAGENET for row in plan.methods},
    )


def unit_rows(network: str, method: str, steps: int, equivalents: Mapping[str, float]) -> float:
    """The number of forward rows that cost as much as a unit, scores included."""
    rows = equivalents[method] * (steps or 1)
    if method == "scorecam":
        rows *= _CHANNELS[network] / _MEASURED_CHANNELS
    return rows + _METRIC_ROWS


def gpu_seconds(network: str, method: str, steps: int, equivalents: Mapping[str, float]) -> float:
    """An estimate: as many rows as a GPU takes, or as many passes, whichever is longer."""
    passes = steps or {"extremal-perturbation": 800, "iia": 100, "rise": 63, "scorecam": 32, "fgvce": 200}.get(
        method, 2
    )
    rows = unit_rows(network, method, steps, equivalents)
    return max(rows / GPU_ROWS[network], (passes + 2) * GPU_PASS[network])


def write_estimate(rows: list[dict[str, Any]]) -> None:
    """Print the tables."""
    equivalents = forward_equivalents()
    cpu = {row["network"]: row["seconds"] for row in rows if row["part"] == "rows"}
    measured = {key[0]: row for key, row in latest(rows, "part").items()}
    rate = 1000 / measured["trivial"]["driver_cpu_ms"]
    size = measured["real"]["bytes_per_unit"]
    print(_methods_table(equivalents, cpu), end="\n\n")
    works = {"the paper, all tables and figures, 3 seeds": paper_work()}
    works |= {f"ImageNet × 16 methods, {network}": imagenet_work(network) for network in ("VGG16", "ResNet50")}
    lines = []
    for name, work in works.items():
        units = work.total()
        on_gpu = sum(n * gpu_seconds(key[0], key[1], key[2], equivalents) for key, n in work.items())
        on_cpu = sum(n * unit_rows(*key, equivalents) * cpu[key[0]] for key, n in work.items())
        fleet = [f"{on_gpu / count / 3600:,.1f} h ({units / on_gpu * count:,.1f}/s)" for count in _FLEETS]
        lines.append(
            [name, f"{units:,}", f"{on_cpu / 3600:,.0f}", f"{on_gpu / 3600:,.0f}", *fleet, f"{units * size / 1e9:,.1f}"]
        )
    head = ["work", "units", "CPU-thread hours", "GPU hours", *(f"on {n} GPUs" for n in _FLEETS), "store, GB"]
    print(markdown(head, lines), end="\n\n")
    for network in ("VGG16", "ResNet50"):
        mean = {}
        for label, methods in (("all 16", None), ("Grad-CAM alone", {"gradcam"})):
            work = [(key, n) for key, n in imagenet_work(network).items() if methods is None or key[1] in methods]
            mean[label] = sum(n * gpu_seconds(key[0], key[1], key[2], equivalents) for key, n in work) / sum(
                n for _, n in work
            )
        told = ", ".join(f"{label}: {s:.3g} s, {rate * s:,.0f} GPUs" for label, s in mean.items())
        print(f"{network}: seconds per unit, and GPUs that keep a driver of {rate:.0f} units/s busy: {told}")


def _methods_table(equivalents: Mapping[str, float], cpu: Mapping[str, float]) -> str:
    lines = []
    for _, method, steps in imagenet_work("VGG16"):
        cells = [f"{unit_rows('VGG16', method, steps, equivalents):,.0f}"]
        for network in ("VGG16", "ResNet50"):
            cells.append(f"{unit_rows(network, method, steps, equivalents) * cpu[network]:,.1f}")
            cells.append(f"{gpu_seconds(network, method, steps, equivalents):.2f}")
        lines.append([method, *cells])
    head = ["method", "rows", *(f"{n}, {what}" for n in ("VGG16", "ResNet50") for what in ("CPU s", "GPU s"))]
    return markdown(head, lines)
