"""Kept maps as pictures: over their photographs, and as a network loses its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fei.bench._numbers import Numbers
from fei.bench._style import layer_name, looks, new_figure
from fei.bench.units import storable
from fei.errors import DataError, FEIError
from fei.report.overlay import Pixels, bare, overlay, photo

if TYPE_CHECKING:
    from fei.bench.store import Store

_CELL = 0.82  # inches
_TITLE = 0.36
_MOST_IMAGES, _MOST_METHODS = 6, 8


def visual_grid(store: Store, numbers: Numbers, pair: int) -> Figure | str | None:
    """Images × methods, for the first seed.

    Returns:
        The figure; a sentence where maps are missing; None where the plan makes none.
    """
    rows = [row for row in numbers.rows if row in numbers.planned(pair, "map")]
    name = numbers.plan.pairs[pair].name
    if not rows:
        return None
    if not numbers.plan.keep_maps:
        return f"Maps of {name} are not shown, since the plan does not keep them; set keep_maps = true to see them."
    maps = _kept(store, numbers, pair)
    items = [item for item in numbers.items(pair, "map") if any((item, row) in maps for row in rows)][:_MOST_IMAGES]
    if not items:
        return f"Maps of {name} are not shown, since none has been kept yet."
    try:
        return _grid(numbers, items, rows, maps, _photographs(numbers, pair, items))
    except FEIError as error:
        return f"Maps of {name} are not shown, since they cannot be laid over their photographs: {error}"


def _grid(
    numbers: Numbers,
    items: list[str],
    rows: list[int],
    maps: dict[tuple[str, int], NDArray[np.float32]],
    photographs: dict[str, Pixels],
) -> Figure:
    """Many methods are folded into bands, each beginning with the photographs."""
    style = looks(numbers)
    columns = -(-len(rows) // -(-len(rows) // _MOST_METHODS))
    bands = [rows[first : first + columns] for first in range(0, len(rows), columns)]
    figure = new_figure(len(bands) * (_TITLE + _CELL * len(items)), width=_CELL * (columns + 1))
    figure.set_layout_engine("compressed", w_pad=0.012, h_pad=0.012, wspace=0.0, hspace=0.0)
    grid: Any = figure.subplots(len(bands) * len(items), columns + 1, squeeze=False)
    for axes in grid.flat:
        bare(axes)
    for number, band in enumerate(bands):
        lines = grid[number * len(items) :]
        for line, item in zip(lines, items, strict=False):
            line[0].imshow(photographs[item])
            for axes, row in zip(line[1:], band, strict=False):
                if (found := maps.get((item, row))) is not None:
                    axes.imshow(overlay(photographs[item], found))
                else:
                    axes.imshow(np.full_like(photographs[item], 245))
                    axes.text(0.5, 0.5, "–", ha="center", va="center", transform=axes.transAxes)
        for axes, text in zip(lines[0], ["input", *(style[row].name for row in band)], strict=False):
            axes.set_title(_wrapped(text), fontsize=6.5, parse_math=False, pad=2)
    return figure


def sanity_strips(store: Store, numbers: Numbers, pair: int) -> Figure | str | None:
    """The original map and those of each stage, a line a method, for the first image; None where none are kept."""
    stages = numbers.layers(pair, "sanity", "ssim")
    strips: dict[int, NDArray[np.float32]] = {}
    keys = store.rows(
        "SELECT method, unit FROM plan_units WHERE pair = ? AND kind = 'sanity' ORDER BY method, item, seed", [pair]
    )
    for row, key in keys if stages and numbers.plan.keep_maps else ():
        if row not in strips and (found := store.map(key)) is not None and found.shape[:-2] == (len(stages) + 1,):
            strips[row] = found
    if not strips:
        return None
    style = looks(numbers)
    figure = new_figure(_TITLE + _CELL * len(strips), width=_CELL * (len(stages) + 1) + 1.2)
    grid: Any = figure.subplots(len(strips), len(stages) + 1, squeeze=False)
    for line, row in zip(grid, [row for row in numbers.rows if row in strips], strict=True):
        for axes, values in zip(line, strips[row], strict=True):
            axes.imshow(values, cmap="inferno")
            bare(axes)
        line[0].set_ylabel(_wrapped(style[row].name), fontsize=6.5, rotation=0, ha="right", va="center", labelpad=3)
    for axes, text in zip(grid[0], ["original", *map(layer_name, stages)], strict=True):
        axes.set_title(text, fontsize=6.5, parse_math=False)
    return figure


def _kept(store: Store, numbers: Numbers, pair: int) -> dict[tuple[str, int], NDArray[np.float32]]:
    """The maps of the images of a figure, by image and method."""
    seed = numbers.plan.seeds[0]
    keys = store.rows(
        "SELECT item, method, unit FROM plan_units WHERE pair = ? AND kind = 'map' AND seed = ?", [pair, seed]
    )
    by_item: dict[str, list[tuple[int, str]]] = {}
    for item, row, key in keys:
        by_item.setdefault(item, []).append((row, key))
    found: dict[tuple[str, int], NDArray[np.float32]] = {}
    for item in numbers.items(pair, "map"):
        maps = {(item, row): values for row, key in by_item.get(item, ()) if (values := store.map(key)) is not None}
        found |= maps
        if len({name for name, _ in found}) == _MOST_IMAGES:
            break
    return found


def _photographs(numbers: Numbers, pair: int, items: list[str]) -> dict[str, Pixels]:
    """The images as the network saw them."""
    from fei import data, models

    chosen = numbers.plan.pairs[pair]
    files = {storable(item.id): item.path for item in data.load(chosen.data or "")}
    classifier = models.load(chosen.model)
    if gone := [item for item in items if item not in files]:
        raise DataError(f"'{gone[0]}' is no longer in {chosen.data}.")
    return {item: photo(classifier.preprocess(files[item])) for item in items}


def _wrapped(name: str) -> str:
    """A name in lines that fit over a small picture."""
    lines = [""]
    for word in name.split():
        if len(lines[-1]) + len(word) < 16:
            lines[-1] = f"{lines[-1]} {word}".strip()
        else:
            lines.append(word)
    return "\n".join(lines).strip()
