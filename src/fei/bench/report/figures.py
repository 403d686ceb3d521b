"""The numbers of a run as figures: each belongs to no window, and is None where the run has nothing to show in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from fei.bench.report._cells import known
from fei.bench.report._labels import Point, place_labels
from fei.bench.report._statistics import Estimate, proportion
from fei.bench.report.numbers import Numbers, Quantity
from fei.bench.report.pictures import sanity_strips, visual_grid
from fei.bench.report.style import WIDTH, LineStyle, dress, layer_name, legend, line_styles, log_scale, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fei.bench.store import Store

_PANEL = 2.5  # inches in height
_MOST_NAMES = 60  # on an axis
_LEGEND = 0.16  # inches per line
_ORIGINAL = Estimate(1.0, np.nan, 1.0, 1.0, 0, 0, 0)  # a map is like itself


@dataclass(frozen=True)
class Picture:
    """A figure of a run, with the name of its files and what it shows in a sentence."""

    name: str
    caption: str
    figure: Figure


def figures(store: Store, numbers: Numbers | None = None) -> Iterator[Picture | str]:
    """All figures that a run has numbers for, one after the other; a sentence in place of one that cannot be made.

    Args:
        store: The run.
        numbers: Its numbers, if they were read already.
    """
    numbers = numbers or Numbers(store)
    for name, caption, draw in _WHOLE:
        if (figure := draw(numbers)) is not None:
            yield Picture(name, caption, figure)
    for pair, each in enumerate(numbers.plan.pairs):
        ending, where = (f"-{pair + 1}", f": {each.name}") if len(numbers.plan.pairs) > 1 else ("", "")
        if (figure := layerwise(numbers, pair)) is not None:
            yield Picture(f"layerwise{ending}", f"Activations layer by layer, with 95 % intervals{where}.", figure)
        for name, caption, make in _PICTURES:
            made = make(store, numbers, pair)
            if made is not None:
                yield made if isinstance(made, str) else Picture(f"{name}{ending}", f"{caption}{where}.", made)


def layerwise(numbers: Numbers, pair: int) -> Figure | None:
    """MSE and cosine along the depth of a network, one line per method with a band for its interval."""
    inside = numbers.at_layers(pair, "mse")
    if not inside:
        return None
    style = line_styles(numbers)
    shown = {row: style[row] for row in numbers.rows if _estimate(numbers, pair, row, "mse") is not None}
    figure = new_figure(_PANEL + 0.6 + _legend_height(shown))
    panels: Any = figure.subplots(1, 2)
    for axes, metric in zip(panels, ("mse", "cosine"), strict=True):
        for row, look in shown.items():
            found = [numbers.estimate(pair, row, replace(quantity, metric=metric)) for quantity in inside]
            _line_with_band(axes, np.arange(len(inside)), found, look)
        dress(axes, y=known(metric).heading)
        names = [layer_name(quantity.layer) for quantity in inside]
        long = max(map(len, names)) > 9
        _name(axes, names, rotation=35 if long else 0, ha="right" if long else "center")
    log_scale(panels[0], "y")
    figure.suptitle(numbers.plan.pairs[pair].name, fontsize=9, parse_math=False)
    legend(figure, list(shown.values()))
    return figure


def faithfulness(numbers: Numbers) -> Figure | None:
    """Insertion against MSE inside: one point per method, one panel per pair."""
    return _scatter(numbers, partial(_estimate, numbers, metric="insertion"), known("insertion").heading, ("mse",))


def cost(numbers: Numbers) -> Figure | None:
    """Passes through the network against insertion and against MSE inside."""
    return _scatter(numbers, partial(_passes, numbers), "passes per image", ("insertion", "mse"))


def black_image(numbers: Numbers) -> Figure | None:
    """How often each method finds a class in a black image, with Wilson's intervals."""
    quantity = Quantity("black-image", "fired")
    pairs = [pair for pair, found in enumerate(numbers.quantities) if quantity in found]
    rows = [row for row in numbers.rows if any(row in numbers.planned(pair, quantity.kind) for pair in pairs)]
    if not pairs:
        return None
    style = line_styles(numbers)
    columns = min(len(pairs), 4)
    lines = -(-len(pairs) // columns)
    figure = new_figure(lines * (0.75 + 0.21 * len(rows)), width=min(WIDTH, 1.6 + 1.9 * columns))
    panels: Any = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for axes in panels.flat[len(pairs) :]:
        axes.set_visible(False)
    for axes, pair in zip(panels.flat, pairs, strict=False):
        for place, row in enumerate(rows):
            if (found := proportion(numbers.values(pair, row, quantity))) is None:
                continue
            error = [[100 * (found.mean - found.low)], [100 * (found.high - found.mean)]]
            axes.barh(place, 100 * found.mean, color=style[row].faint(), height=0.62)
            axes.errorbar(100 * found.mean, place, xerr=error, color="0.1", elinewidth=0.9, capsize=2, capthick=0.9)
            axes.text(100 * found.high + 2, place, f"{100 * found.mean:.0f}", va="center", fontsize=6.5, color="0.35")
        dress(axes, numbers.plan.pairs[pair].name, x="fires, % ↓")
        axes.grid(visible=False, axis="y")
        axes.set_yticks(range(len(rows)), [style[row].name for row in rows])
        axes.set_xlim(0, 112)
        axes.set_xticks(range(0, 101, 25))
    panels.flat[0].invert_yaxis()
    return figure


def curves(numbers: Numbers) -> Figure | None:
    """The mean insertion and deletion curves, a row of panels for each pair."""
    protocols = numbers.protocols("map", "insertion")[:1]
    pairs = [
        pair
        for pair in range(len(numbers.plan.pairs))
        if protocols and any(numbers.curve(pair, row, protocols[0], "insertion") for row in numbers.rows)
    ]
    if not pairs:
        return None
    style = {row: look for row, look in line_styles(numbers).items() if row in numbers.planned(pairs[0], "map")}
    shown = {row: style[row] for row in numbers.rows if row in style}
    figure = new_figure(len(pairs) * _PANEL + _legend_height(shown))
    panels: Any = figure.subplots(len(pairs), 2, squeeze=False, sharey=True, sharex="col")
    for line, pair in zip(panels, pairs, strict=True):
        for axes, name in zip(line, ("insertion", "deletion"), strict=True):
            for row, look in shown.items():
                if (curve := numbers.curve(pair, row, protocols[0], name)) is not None:
                    many = len(curve.fractions) > 12
                    share = [1 - each for each in curve.fractions] if name == "insertion" else curve.fractions
                    axes.plot(share, curve.scores, **look.line() | ({"marker": ""} if many else {}))
            what = f"{numbers.plan.pairs[pair].name}: {known(name).heading}"
            below = "share of pixels shown" if name == "insertion" else "share of pixels removed"
            dress(axes, what, below if pair == pairs[-1] else "", "score" if axes is line[0] else "")
    legend(figure, list(shown.values()))
    return figure


def _name(axes: Axes, names: Sequence[str], **how: Any) -> None:
    """Name the places on an axis; of very many, some."""
    step = 1 + len(names) // _MOST_NAMES
    axes.set_xticks(range(0, len(names), step), names[::step], **how)


def sanity(numbers: Numbers) -> Figure | None:
    """Similarity to the original map as a network loses its weights, stage by stage."""
    pairs = [pair for pair in range(len(numbers.plan.pairs)) if numbers.layers(pair, "sanity", "ssim")]
    if not pairs:
        return None
    style = line_styles(numbers)
    shown = {row: style[row] for row in numbers.rows if any(row in numbers.planned(pair, "sanity") for pair in pairs)}
    figure = new_figure(len(pairs) * (_PANEL + 0.4) + _legend_height(shown))
    panels: Any = figure.subplots(len(pairs), 2, squeeze=False)
    for line, pair in zip(panels, pairs, strict=True):
        for axes, metric in zip(line, ("ssim", "spearman"), strict=True):
            stages = numbers.layers(pair, "sanity", metric)
            for row, look in shown.items():
                found = [numbers.estimate(pair, row, Quantity("sanity", metric, "", stage)) for stage in stages]
                _line_with_band(axes, np.arange(len(stages) + 1), [_ORIGINAL, *found], look)
            dress(axes, f"{numbers.plan.pairs[pair].name}: {known(metric).heading}")
            names = ["original", *map(layer_name, stages)]
            _name(axes, names, rotation=35, ha="right")
            axes.set_ylim(min(axes.get_ylim()[0], -0.03), 1.04)  # a small change is to look small
    legend(figure, list(shown.values()))
    return figure


_WHOLE: tuple[tuple[str, str, Callable[[Numbers], Figure | None]], ...] = (
    ("faithfulness", "Insertion against MSE at the last feature layer, with 95 % intervals.", faithfulness),
    ("curves", "Mean insertion and deletion curves.", curves),
    ("black-image", "How often a class is found in a black image, with Wilson's 95 % intervals.", black_image),
    ("cost", "Passes through the network, forwards and backwards, against insertion and MSE.", cost),
    ("sanity", "Similarity to the original map as layers are re-initialised from the logits down.", sanity),
)
_PICTURES: tuple[tuple[str, str, Callable[[Store, Numbers, int], Figure | str | None]], ...] = (
    ("visual", "Maps over their photographs", visual_grid),
    ("sanity-maps", "Maps as layers are re-initialised", sanity_strips),
)


def _scatter(
    numbers: Numbers, across: Callable[[int, int], Estimate | None], x: str, metrics: tuple[str, ...]
) -> Figure | None:
    """Points with intervals, a panel for each pair and metric."""
    panels: dict[tuple[int, str], list[tuple[int, Estimate, Estimate]]] = {}
    for pair in range(len(numbers.plan.pairs)):
        for metric in metrics:
            for row in numbers.rows:
                up = _estimate(numbers, pair, row, metric)
                if (right := across(pair, row)) is not None and up is not None:
                    panels.setdefault((pair, metric), []).append((row, right, up))
    if not panels:
        return None
    style, columns = line_styles(numbers), min(len(panels), 2)
    lines = -(-len(panels) // columns)
    figure = new_figure(lines * 3.0, width=WIDTH if columns > 1 else 4.2)
    grid: Any = figure.subplots(lines, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    points: list[Point] = []
    for axes, ((pair, metric), found) in zip(grid.flat, panels.items(), strict=False):
        dress(axes, numbers.plan.pairs[pair].name, x, known(metric).heading)
        for row, right, up in found:
            axes.errorbar(right.mean, up.mean, xerr=_error(right), yerr=_error(up), **style[row].point())
            points.append(Point(axes, _ends(right), _ends(up), style[row].name, style[row].colour))
        if known(metric).logarithmic:
            log_scale(axes, "y")
        if x.startswith("passes"):
            axes.set_xscale("log")
        axes.margins(0.12)
    place_labels(figure, points)
    return figure


def _line_with_band(axes: Axes, x: Any, found: list[Estimate | None], look: LineStyle) -> None:
    gap = (np.nan, np.nan, np.nan)
    means, lows, highs = np.array([gap if e is None else (e.mean, e.low, e.high) for e in found]).T
    axes.fill_between(x, lows, highs, color=look.colour, alpha=0.15, linewidth=0)
    axes.plot(x, means, **look.line())


def _ends(found: Estimate) -> tuple[float, float, float]:
    """The mean and the ends of its interval, which a single image does not have."""
    if np.isnan(found.low):
        return found.mean, found.mean, found.mean
    return found.mean, min(found.low, found.mean), max(found.high, found.mean)


def _error(found: Estimate) -> list[list[float]]:
    mean, low, high = _ends(found)
    return [[mean - low], [high - mean]]


def _estimate(numbers: Numbers, pair: int, row: int, metric: str) -> Estimate | None:
    quantity = numbers.deepest(pair, metric)
    return None if quantity is None else numbers.estimate(pair, row, quantity)


def _passes(numbers: Numbers, pair: int, row: int) -> Estimate | None:
    forwards, backwards = (numbers.values(pair, row, Quantity("map", name)) for name in ("forwards", "backwards"))
    mean = float(np.nanmean(forwards + backwards)) if np.isfinite(forwards + backwards).any() else 0.0
    return Estimate(mean, np.nan, np.nan, np.nan, 0, 0, 0) if mean > 0 else None


def _legend_height(shown: dict[int, LineStyle]) -> float:
    return _LEGEND * -(-len(shown) // 4) + 0.1
