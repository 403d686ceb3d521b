"""Kept maps as pictures: over their photographs, and as a network loses its weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fei.bench.report._cells import known
from fei.bench.report.grids import MapGrid, visual_comparison, wrapped
from fei.bench.report.numbers import Numbers
from fei.bench.report.style import layer_name, line_styles, new_figure
from fei.bench.units import storable
from fei.common.consent import named_by
from fei.data import read_image
from fei.errors import DataError, FEIError
from fei.report.drawing import Pixels, bare, photo
from fei.report.whole import Whole
from fei.service.looking import whole_of

if TYPE_CHECKING:
    from fei.bench.store import Store

_CELL = 0.82  # inches
_TITLE = 0.36
_MOST_IMAGES = 6
_MOST_BYTES = 1 << 28  # of the maps of a figure, 200 kB each as a rule
Reader = Callable[[str], tuple[Pixels, Whole | None]]
"""What reads an image as its network saw it, and all of it where the network saw only a part."""


def visual_grid(store: Store, numbers: Numbers, pair: int) -> Figure | str | None:
    """Images × methods, for the first seed.

    Returns:
        The figure; a sentence where maps are missing; None where the plan makes none.
    """
    panel = kept_grid(store, numbers, pair)
    return visual_comparison([panel]) if isinstance(panel, MapGrid) else panel


def kept_grid(store: Store, numbers: Numbers, pair: int, methods: Sequence[int] | None = None) -> MapGrid | str | None:
    """The maps that were kept of a pair, for the first seed and the first images.

    Args:
        store: The run.
        numbers: Its numbers.
        pair: The pair's place in the plan.
        methods: The methods, by their places in the plan, in this order; all of them without.

    Returns:
        The panel of a figure; a sentence where maps are missing; None where the plan makes none.
    """
    planned = numbers.planned(pair, "map")
    rows = [row for row in (numbers.rows if methods is None else methods) if row in planned]
    name = numbers.plan.pairs[pair].name
    if not rows:
        return None
    if not numbers.plan.keep_maps:
        return f"Maps of {name} are not shown, since the plan does not keep them; set keep_maps = true to see them."
    maps = _kept(store, numbers, pair)
    items = [item for item in numbers.items(pair, "map") if any((item, row) in maps for row in rows)][:_MOST_IMAGES]
    if not items:
        return f"Maps of {name} are not shown, since none has been kept yet."
    style = line_styles(numbers)
    try:
        read = photograph_reader(store, numbers, pair)
        photographs, wholes = zip(*map(read, items), strict=True)
    except FEIError as error:
        return f"Maps of {name} are not shown, since they cannot be laid over their photographs: {error}"
    return MapGrid(
        title="",
        names=[style[row].name for row in rows],
        photographs=photographs,
        maps=[[maps.get((item, row)) for row in rows] for item in items],
        scores=[[_reached(numbers, pair, row, item) for row in rows] for item in items],
        foot=f"{numbers.plan.pairs[pair].model}, {', '.join(numbers.protocols('map', 'insertion')[:1])}",
        wholes=wholes,
    )


def sanity_strips(store: Store, numbers: Numbers, pair: int) -> Figure | str | None:
    """The original map and those of each stage, one line per method, for the first image; None where none are kept."""
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
    style = line_styles(numbers)
    figure = new_figure(_TITLE + _CELL * len(strips), width=_CELL * (len(stages) + 1) + 1.2)
    grid: Any = figure.subplots(len(strips), len(stages) + 1, squeeze=False)
    for line, row in zip(grid, [row for row in numbers.rows if row in strips], strict=True):
        for axes, values in zip(line, strips[row], strict=True):
            axes.imshow(values, cmap="inferno")
            bare(axes)
        line[0].set_ylabel(wrapped(style[row].name), fontsize=6.5, rotation=0, ha="right", va="center", labelpad=3)
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
    room = _MOST_BYTES
    for item in numbers.items(pair, "map"):
        for row, key in by_item.get(item, ()):
            values = store.map(key) if room > 0 else None
            if values is not None:
                found[item, row] = values
                room -= values.nbytes
        if len({name for name, _ in found}) == _MOST_IMAGES:
            break
    return found


def photograph_reader(store: Store, numbers: Numbers, pair: int) -> Reader:
    """What reads the images of a pair; their network is loaded for that.

    Raises:
        FEIError: If the data set or the network cannot be used any more; the reader, if an image is gone.
    """
    from fei import data, models

    chosen = numbers.plan.pairs[pair]
    files = {storable(item.id): item.path for item in data.load(chosen.data or "")}
    with named_by(f"The run in '{store.folder}'"):
        classifier = models.load(chosen.model)

    def read(item: str) -> tuple[Pixels, Whole | None]:
        if item not in files:
            raise DataError(f"'{item}' is no longer in {chosen.data}; put it back.")
        pixels = read_image(files[item])
        return photo(classifier.preprocess(pixels)), whole_of(classifier, pixels)

    return read


def _reached(numbers: Numbers, pair: int, row: int, item: str) -> str:
    """Insertion, and MSE at the last layer, of the first seed's map."""
    words = []
    place = numbers.items(pair, "map").index(item)
    for metric, digits in (("insertion", ".2f"), ("mse", ".2g")):
        if (quantity := numbers.deepest(pair, metric)) is not None:
            value = numbers.values(pair, row, quantity)[place, 0]
            words += [f"{known(metric).title} {value:{digits}}"] if np.isfinite(value) else []
    return "\n".join(words)
