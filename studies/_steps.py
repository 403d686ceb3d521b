"""Quality against passes: the table and the figure of steps.toml, for docs/results.md and docs/performance.md."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from studies._editions import values
from studies._verdicts import paired_difference

from fei.bench.report._cells import Cell, decimals, known
from fei.bench.report._statistics import Estimate
from fei.bench.report.numbers import Numbers, Quantity
from fei.bench.report.style import dress, log_scale, new_figure

METRICS = ("insertion", "deletion", "mse", "cosine")
_BETTER = {"insertion": True, "deletion": False, "mse": False, "cosine": True}
_BASE, _PRESET = "paper", "fast"
_COLOURS = ("#b0413e", "#2c5f8a", "#4d7c3a", "#7a5195")
REACHED, MISSED = "✓", "✗"


def quantity(numbers: Numbers, pair: int, metric: str) -> Quantity:
    """A metric under the first protocol, at the last feature layer where it has layers."""
    protocol = next(iter(numbers.protocols("map", metric)), "")
    return Quantity("map", metric, protocol, numbers.layers(pair, "map", metric, protocol)[-1])


def passes(numbers: Numbers, pair: int, row: int) -> tuple[float, float]:
    """Rows through the network for a map, forwards and backwards; the mean over its units."""
    forwards, backwards = (numbers.values(pair, row, Quantity("map", name)) for name in ("forwards", "backwards"))
    return float(np.nanmean(forwards)), float(np.nanmean(backwards))


def steps_table(numbers: Numbers) -> str:
    """Passes, scores and their standard deviation over the seeds, and whether they reach the paper's preset.

    A score reaches that of the preset "paper" where it is not worse by more than the standard deviation of the latter
    over its seeds.
    """
    heads = ["network", "setting", "forwards + backwards", *(known(metric).heading for metric in METRICS)]
    lines = [heads, [":--", ":--", "--:", *["--:"] * len(METRICS)]]
    for pair, each in enumerate(numbers.plan.pairs):
        found = {
            (row, metric): numbers.estimate(pair, row, quantity(numbers, pair, metric))
            for row in numbers.rows
            for metric in METRICS
        }
        digits = {
            m: decimals(Cell(e) for (_, name), e in found.items() if name == m and e is not None) for m in METRICS
        }
        for row in numbers.rows:
            if found[row, "insertion"] is None:
                continue
            label = numbers.plan.methods[row].label
            cells = [
                _cell(found[row, metric], found[_base(numbers), metric], metric, digits[metric]) for metric in METRICS
            ]
            lines.append([each.name, label, "{:.0f} + {:.0f}".format(*passes(numbers, pair, row)), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def differences_table(numbers: Numbers) -> str:
    """Each setting against the preset "paper", photograph by photograph, with 95 % intervals; above 0 is better."""
    lines = [["network", "setting", *(known(metric).title for metric in METRICS)], [":--"] * 2 + ["--:"] * 4]
    for pair, each in enumerate(numbers.plan.pairs):
        for row in numbers.rows:
            label = numbers.plan.methods[row].label
            if label == _BASE:
                continue
            cells = []
            for metric in METRICS:
                one, two = (values(numbers, pair, name, metric) for name in (label, _BASE))
                found = None
                if one is not None and two is not None:
                    found = paired_difference("", "", one, two, higher_is_better=_BETTER[metric])
                digits = 1 if metric == "mse" and found is not None and abs(found.difference) > 1 else 3
                cells.append("–" if found is None else signed(found.difference, found.low, found.high, digits))
            lines.append([each.name, label, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def signed(difference: float, low: float, high: float, digits: int = 3) -> str:
    """A difference with its interval."""
    interval = "" if math.isnan(low) else f" [{low:+.{digits}f}, {high:+.{digits}f}]"
    return f"{difference:+.{digits}f}{interval}"


def reached(numbers: Numbers, label: str) -> tuple[int, int]:
    """In how many of all scores on all networks a setting reaches the preset "paper"."""
    row = [each.label for each in numbers.plan.methods].index(label)
    marks = []
    for pair in range(len(numbers.plan.pairs)):
        for metric in METRICS:
            which = quantity(numbers, pair, metric)
            one, base = (numbers.estimate(pair, each, which) for each in (row, _base(numbers)))
            if one is not None and base is not None:
                marks.append(_reaches(one, base, metric))
    return marks.count(True), len(marks)


def steps_figure(numbers: Numbers) -> Figure:
    """Scores against backward passes, one panel per score; the presets are a ring and a diamond with a line."""
    figure = new_figure(4.6)
    panels: Any = figure.subplots(2, 2)
    labels = [row.label for row in numbers.plan.methods]
    for axes, metric in zip(panels.flat, METRICS, strict=True):
        for pair, each in enumerate(numbers.plan.pairs):
            colour = _COLOURS[pair % len(_COLOURS)]
            which = quantity(numbers, pair, metric)
            scale = 1.0
            if metric == "mse":  # networks have activations of different sizes
                base = numbers.estimate(pair, _base(numbers), which)
                scale = base.mean if base is not None else 1.0
            points = sorted(
                {
                    (passes(numbers, pair, row)[1], e.mean / scale, e.low / scale, e.high / scale)
                    for row in numbers.rows
                    if labels[row] != _BASE and (e := numbers.estimate(pair, row, which)) is not None
                }
            )
            if points:
                x, mean, low, high = np.array(points).T
                axes.plot(x, mean, color=colour, marker="o", markersize=4, linewidth=1.5, label=each.name)
                axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
            if (preset := numbers.estimate(pair, labels.index(_PRESET), which)) is not None:
                at = passes(numbers, pair, labels.index(_PRESET))[1]
                axes.plot([at], [preset.mean / scale], color=colour, marker="o", markersize=8, markerfacecolor="none")
            base = numbers.estimate(pair, _base(numbers), which)
            if base is not None:
                at = passes(numbers, pair, _base(numbers))[1]
                axes.axhline(base.mean / scale, color=colour, linewidth=0.8, linestyle=(0, (4, 3)))
                axes.plot([at], [base.mean / scale], color=colour, marker="D", markersize=5, markerfacecolor="white")
        what = "MSE / that of the paper's preset ↓" if metric == "mse" else known(metric).heading
        dress(axes, "", "backward passes", what)
        log_scale(axes, "x")
    handles, names = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names) or 1, fontsize=8, frameon=False)
    return figure


def _cell(one: Estimate | None, base: Estimate | None, metric: str, digits: int) -> str:
    if one is None:
        return "–"
    spread = "" if math.isnan(one.std) else f" ± {one.std:.{digits}f}"
    mark = "" if base is None or one is base else f" {REACHED if _reaches(one, base, metric) else MISSED}"
    return f"{one.mean:.{digits}f}{spread}{mark}"


def _reaches(one: Estimate, base: Estimate, metric: str) -> bool:
    noise = 0.0 if math.isnan(base.std) else base.std
    lost = base.mean - one.mean if _BETTER[metric] else one.mean - base.mean
    return lost <= noise


def _base(numbers: Numbers) -> int:
    return [row.label for row in numbers.plan.methods].index(_BASE)
