"""Methods side by side: their maps, their curves, and what they do to the network's inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fei.methods import is_control
from fei.metrics import Evaluation, describe
from fei.report.drawing import FRAMED, Pixels, bare, notebook_figure, overlay, shortened, show_whole
from fei.report.whole import Whole

_COLUMN, _ROW = 1.75, 1.75
_MOST_NAMES = 8  # of layers below an axis: more would stand on one another


def comparison(
    image: Pixels,
    maps: Mapping[str, NDArray[Any]],
    evaluations: Mapping[str, Evaluation],
    headline: str,
    whole: Whole | None = None,
) -> Figure:
    """One image under several methods.

    Args:
        image: The photograph (H, W, 3), 8-bit RGB.
        maps: For each method, its map (H, W).
        evaluations: For each method, what `fei.metrics.evaluate` said of that one image.
        headline: What is explained, in one line.
        whole: All of the photograph, if the network saw only a part.

    Returns:
        A figure: maps over the photograph on top; below, the two curves, and cosine and MSE layer by layer.
    """
    columns = max(4, min(7, len(maps) + 1))
    rows = -(-(len(maps) + 1) // columns)
    height = _ROW * image.shape[0] / image.shape[1] + 0.3
    result = notebook_figure(figsize=(columns * _COLUMN, rows * height + 3.6), layout="constrained", dpi=150)
    parts: NDArray[Any] = np.asarray(result.subfigures(2, 1, height_ratios=(rows * height, 3.6)))
    result.suptitle(shortened(headline, 100), fontsize=11, fontweight="bold", x=0.01, ha="left", parse_math=False)
    _maps(parts[0], image, maps, rows, columns, whole)
    _plots(parts[1], evaluations)
    return result


def grid(image: Pixels, maps: Mapping[str, NDArray[Any]], headline: str, whole: Whole | None = None) -> Figure:
    """The maps of several methods over one photograph, with their names.

    Args:
        image: The photograph (H, W, 3), 8-bit RGB.
        maps: For each method, its map (H, W).
        headline: What is explained, in one line.
        whole: All of the photograph, if the network saw only a part.
    """
    columns = min(7, len(maps) + 1)
    rows = -(-(len(maps) + 1) // columns)
    height = _ROW * image.shape[0] / image.shape[1] + 0.3
    result = notebook_figure(figsize=(columns * _COLUMN, rows * height + 0.4), layout="constrained", dpi=150)
    result.suptitle(shortened(headline, 100), fontsize=11, fontweight="bold", x=0.01, ha="left", parse_math=False)
    _maps(result, image, maps, rows, columns, whole)
    return result


def titled(method: str) -> str:
    """A method's name as it is shown, marked if it is a control."""
    return f"{method} (control)" if is_control(method) else method


def _maps(
    figure: Any, image: Pixels, maps: Mapping[str, NDArray[Any]], rows: int, columns: int, whole: Whole | None
) -> None:
    cells = figure.subplots(rows, columns, squeeze=False).ravel()
    for cell in cells:
        bare(cell)
    if whole is None:
        cells[0].imshow(image)
    else:
        show_whole(cells[0], whole)
    cells[0].set_title("photograph" if whole is None else FRAMED.replace(": ", ":\n"), fontsize=8)
    for cell, (name, attribution) in zip(cells[1:], maps.items(), strict=False):
        cell.imshow(overlay(image, _without_tails(attribution)))
        cell.set_title(titled(name), fontsize=8)

    figure.supxlabel("colours: each map from its 1st to its 99th percentile", fontsize=7)


def _without_tails(attribution: NDArray[Any]) -> NDArray[Any]:
    """A map cut off at its 1st and 99th percentile: few extreme pixels of a gradient would leave all others dark."""
    low, high = np.percentile(attribution, (1, 99))
    return attribution if low == high else np.clip(attribution, low, high)


def _plots(figure: Any, evaluations: Mapping[str, Evaluation]) -> None:
    inside = ("cosine", "mse") if any(evaluation.internal for evaluation in evaluations.values()) else ()
    axes = figure.subplots(1, 2 + len(inside))
    colours = _colours(list(evaluations))
    for name, evaluation in evaluations.items():
        style = {"color": colours[name], "linewidth": 1.4, "label": titled(name)}
        style |= {"linestyle": ":"} if is_control(name) else {}
        # as people read them: insertion rises with the pixels that are shown, deletion falls with those removed
        axes[0].plot(1 - evaluation.insertion.fractions, evaluation.insertion.scores[0], **style)
        axes[1].plot(evaluation.deletion.fractions, evaluation.deletion.scores[0], **style)
        layers = list(evaluation.internal)
        for axis, metric in zip(axes[2:], inside, strict=True):
            values = [getattr(evaluation.internal[layer], metric)[0].item() for layer in layers]
            axis.plot(range(len(layers)), values, marker="o", markersize=3, **style)
            named = range(0, len(layers), -(-len(layers) // _MOST_NAMES))
            names = [layers[number].removeprefix("network.") for number in named]
            axis.set_xticks(named, names, rotation=45, ha="right", fontsize=6)
    for axis, told in zip(axes, map(describe, ("insertion", "deletion", *inside)), strict=True):
        where = " inside" if "layers" in told.needs else ""
        axis.set_title(f"{told.title}{where} {told.arrow}", fontsize=9)
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    for axis, what in zip(axes[:2], ("share of pixels shown", "share of pixels removed"), strict=True):
        axis.set_xlabel(what, fontsize=8)
        axis.set_ylim(-0.02, 1.02)
    for axis in axes[3:]:
        axis.set_yscale("log")
        axis.tick_params(labelsize=7, which="both")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=min(7, len(evaluations)), fontsize=7
    )


def _colours(names: Sequence[str]) -> dict[str, Any]:
    """Distinct colours; what has no constraint or is chance is black or grey, to be told apart at once."""
    fixed = {"fei-none": "black", "random": "0.6"}
    others = [name for name in names if name not in fixed]
    palette = matplotlib.colormaps["viridis"](np.linspace(0.05, 0.95, len(others)))
    return {name: fixed[name] for name in names if name in fixed} | dict(zip(others, palette, strict=True))
