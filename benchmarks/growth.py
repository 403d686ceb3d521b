"""How the time of a step and the peak memory of FEI grow with image size, batch, quantiles and sites.

    python benchmarks/growth.py [--network efficientnet_lite0] [--repeats 5] [--table]

Each point runs in a fresh process. The time of a step is (4 steps − 1 step) over 3, so that what is done once a call
(tracing, checks) cancels; the base point is measured again in the same process right before each repeat, and the ratio
of the two is reported. Memory is the high-water mark of the process's resident memory during one call, less what was
resident before it (the kernel's VmHWM, reset before the call): tracemalloc does not see torch's memory, and the peak of
a process that ran something larger earlier says nothing. Libraries are warmed up on a small image before.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from _common import ROOT, TOY, Results, clock, latest, load, markdown, spread

import fei
from fei.models import Classifier

BASE: dict[str, Any] = {"size": 224, "batch": 1, "quantiles": 5, "sites": "activation", "rows": None}
AXES: dict[str, tuple[Any, ...]] = {
    "size": (112, 160, 224, 320, 448),
    "batch": (1, 2, 4, 8, 16),
    "quantiles": (3, 5, 7, 9),
    "sites": ("first:1/4", "first:1/2", "first:3/4", "activation"),
}
ROWS = (
    5,
    20,
    80,
)  # internal_batch_size at the largest batch, of the smallest images: 80 rows of 224 pixels take 10 GiB
TOY_BASE = BASE | {"size": 32}
TOY_AXES = {"size": (32, 64), "batch": (1, 2), "quantiles": (3, 5), "sites": ("first:1/2", "activation")}
_UNITS = {"size": "image side", "batch": "images", "quantiles": "quantiles", "sites": "share of the sites"}
_PROCESS = Path("/proc/self")


def work(point: dict[str, Any]) -> float:
    """What the time of a step should be proportional to: pixels × images × quantiles."""
    return float(point["size"] ** 2 * point["batch"] * point["quantiles"])


def explained(model: Classifier, point: dict[str, Any], steps: int) -> float:
    """Seconds of one call on noise."""
    x = torch.rand((point["batch"], 3, point["size"], point["size"]), generator=torch.Generator().manual_seed(0))
    quantiles = [(i + 1) / (point["quantiles"] + 1) for i in range(point["quantiles"])]
    explainer = fei.FEI(model, "vm", steps=steps, quantiles=quantiles, sites=point["sites"])
    start = clock()
    explainer.attribute(x, 0, internal_batch_size=point["rows"])
    return clock() - start


def step_seconds(model: Classifier, point: dict[str, Any]) -> float:
    """Seconds of one optimisation step."""
    return (explained(model, point, 4) - explained(model, point, 1)) / 3


def resident(field: str) -> int | None:
    """A line of the kernel's account of this process in bytes: VmRSS now, VmHWM at most; ``None`` without one."""
    status = _PROCESS / "status"
    found = re.search(rf"{field}:\s+(\d+) kB", status.read_text(encoding="utf-8")) if status.exists() else None
    return int(found[1]) * 1024 if found else None


def peak_bytes(model: Classifier, point: dict[str, Any]) -> int | None:
    """Resident memory that a call of one step adds at most; to be asked once in a fresh process."""
    explained(model, point | {"size": 64, "batch": 1, "quantiles": 1, "rows": None}, 1)
    before = resident("VmRSS")
    if before is None:
        return None
    (_PROCESS / "clear_refs").write_text("5", encoding="utf-8")  # the high-water mark starts anew
    explained(model, point, 1)
    after = resident("VmHWM")
    return None if after is None else after - before


def measured(network: str, point: dict[str, Any], base: dict[str, Any], repeats: int) -> dict[str, Any]:
    """One point: memory first, while the process is fresh, then time against the base point."""
    model = load(network)
    memory = peak_bytes(model, point)
    seconds, ratios = [], []
    for _ in range(repeats):
        at_base = step_seconds(model, base)
        seconds.append(step_seconds(model, point))
        ratios.append(seconds[-1] / at_base)
    return {
        **spread(seconds, "seconds"),
        **spread(ratios, "ratio"),
        "work": work(point) / work(base),
        "peak_bytes": memory,
        "repeats": repeats,
        "threads": torch.get_num_threads(),
    }


def in_fresh_process(network: str, point: dict[str, Any], base: dict[str, Any], repeats: int) -> dict[str, Any]:
    """`measured` in a process of its own."""
    wanted = json.dumps({"network": network, "point": point, "base": base, "repeats": repeats})
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, str(ROOT / "growth.py"), "--point", wanted]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment, encoding="utf-8")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def points(base: dict[str, Any], axes: dict[str, tuple[Any, ...]], rows: Sequence[int]) -> list[dict[str, Any]]:
    """Every point with the axis it lies on; the base point lies on all of them."""
    found = [{"axis": axis, **base, axis: value} for axis, values in axes.items() for value in values]
    small, most = {"axis": "rows", **base, "size": min(axes["size"])}, max(axes["batch"])
    return [*found, small, *(small | {"batch": most, "rows": size} for size in (None, *rows))]


def share(sites: str) -> float:
    """What share of the sites a word selects."""
    above, _, below = sites.partition(":")[2].partition("/")
    return int(above) / int(below) if below else 1.0


def exponent(rows: list[dict[str, Any]], column: str, of: str = "work") -> float:
    """The slope of a straight line through the logarithms: 1 where a column grows in proportion.

    The time of a step is a difference, which on a busy machine may come out below zero; then there is none.
    """
    if any(row[column] <= 0 for row in rows):
        return math.nan
    return statistics.linear_regression(*([math.log(row[key]) for row in rows] for key in (of, column))).slope


def _along(results: Results, axis: str) -> list[dict[str, Any]]:
    rows = [row for row in results.rows if row["axis"] == axis]
    order = {"sites": lambda row: share(row["sites"]), "rows": lambda row: (row["batch"], row["rows"] or 0)}
    return sorted(latest(rows, axis, "batch").values(), key=order.get(axis, lambda row: row[axis]))


def table(results: Results) -> str:
    """Time and memory along each axis relative to the base point, with the exponents of time and memory."""
    lines = []
    for axis in AXES:
        rows = _along(results, axis)
        known = all(row["peak_bytes"] for row in rows)
        for row in rows:
            lines.append(
                [
                    *(_UNITS[axis], str(row[axis]).replace("activation", "all"), f"{row['seconds'] * 1000:.0f} ms"),
                    f"{row['ratio']:.2f} ({row['ratio_low']:.2f}–{row['ratio_high']:.2f})",
                    "–" if axis == "sites" else f"{row['ratio'] / row['work']:.2f}",
                    f"{row['peak_bytes'] / 2**20:.0f} MiB" if known else "–",
                ]
            )
        if axis != "sites" and len(rows) > 1:
            memory = f"**{exponent(rows, 'peak_bytes'):.2f}**" if known else "–"
            lines.append([_UNITS[axis], "**exponent**", "", f"**{exponent(rows, 'ratio'):.2f}**", "", memory])
    heads = ["along", "value", "time of a step", "× base", "× base, per pixel·image·quantile", "peak memory"]
    return markdown(heads, lines)


def rows_table(results: Results) -> str:
    """One image, and the largest batch under several `internal_batch_size`."""
    lines = [
        [
            str(row["rows"] or "default (one image)"),
            str(row["batch"]),
            f"{row['seconds'] / row['batch'] * 1000:.0f} ms",
            f"{row['peak_bytes'] / 2**20:.0f} MiB" if row["peak_bytes"] else "–",
        ]
        for row in _along(results, "rows")
    ]
    return markdown(["`internal_batch_size`", "images", "time of a step, per image", "peak memory"], lines)


def figure(results: Results, path: Path) -> None:
    """Time and memory of each axis against the work, both relative to the base point."""
    import matplotlib
    from matplotlib.figure import Figure

    marks = {"size": "o", "batch": "s", "quantiles": "^"}
    with matplotlib.rc_context({"svg.hashsalt": "growth", "font.size": 9, "svg.fonttype": "none"}):
        picture = Figure((8, 3.4), layout="constrained")
        panels = picture.subplots(1, 2)
        for panel, column, title in zip(
            panels, ("ratio", "peak_bytes"), ("time of a step", "peak memory"), strict=True
        ):
            ends = [1.0]
            for axis, mark in marks.items():
                rows = _along(results, axis)
                base = next((row[column] for row in rows if row["work"] == 1), None)
                if base:
                    panel.plot(
                        [r["work"] for r in rows], [r[column] / base for r in rows], mark + "-", label=_UNITS[axis]
                    )
                    ends += [row["work"] for row in rows]
            panel.plot([min(ends), max(ends)], [min(ends), max(ends)], ":", color="gray", label="in proportion")
            panel.set(
                xscale="log", yscale="log", xlabel="pixels × images × quantiles, × base", title=f"{title}, × base"
            )
            panel.grid(alpha=0.3)
        panels[0].legend(frameon=False)
        picture.savefig(path, metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true", help="the toy network, two values an axis, one process")
    parser.add_argument("--network", default="efficientnet_lite0")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--table", action="store_true", help="only print what has been measured")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.point:
        print(json.dumps(measured(**json.loads(options.point))))
        return
    results = Results("growth")
    base, axes, rows = (TOY_BASE, TOY_AXES, (5,)) if options.toy else (BASE, AXES, ROWS)
    network = TOY if options.toy else options.network
    for number, point in enumerate([] if options.table else points(base, axes, rows)):
        run = measured if options.toy and number else in_fresh_process
        place = {key: value for key, value in point.items() if key != "axis"}
        row = results.once({"network": network, **point}, lambda: run(network, place, base, options.repeats))  # noqa: B023
        memory = "?" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**20:.0f} MiB"
        print(point, f"{row['seconds']:.3f} s a step, {row['ratio']:.2f} × base, {memory}", flush=True)
    print(table(results), rows_table(results), sep="\n\n")


if __name__ == "__main__":
    main()
