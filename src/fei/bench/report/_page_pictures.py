"""Pictures for the page of a run: maps that were kept and their photographs, as many as a file may hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fei.bench.report._cells import known
from fei.bench.report._page_numbers import Units, units_of
from fei.bench.report.numbers import Numbers
from fei.bench.report.pictures import Reader, photograph_reader
from fei.bench.store import MAPS, Store
from fei.bench.units import MAP
from fei.errors import FEIError
from fei.report.thumbnails import map_address, photograph_address

LARGEST = 16_000_000
"""Bytes of a page, unless the numbers alone take more."""


def pictures(store: Store, numbers: Numbers, limit: int) -> list[dict[str, Any]]:
    """For each pair the pictures that fit, the images with the worst scores first.

    Args:
        store: The run.
        numbers: Its numbers.
        limit: Characters that all pictures together may take.

    Returns:
        For each pair: photographs by the place of the image, maps by the places of image and method, why there are no
        more, and which were left out.
    """
    shares = limit // max(1, len(numbers.plan.pairs))
    return [_of_pair(store, numbers, pair, shares) for pair in range(len(numbers.plan.pairs))]


def _of_pair(store: Store, numbers: Numbers, pair: int, limit: int) -> dict[str, Any]:
    units, seed = units_of(numbers, pair), numbers.plan.seeds[0]
    if not units.items:
        return _document("")
    if not numbers.plan.keep_maps:
        return _document("The plan does not keep maps; set keep_maps = true, and the next run shows them here.")
    found = store.rows(
        "SELECT item, method, unit FROM plan_units WHERE pair = ? AND kind = ? AND seed = ?", (pair, MAP, seed)
    )
    files = {file.stem for file in (store.folder / MAPS).glob("*.npy")}
    keys = {(item, row): key for item, row, key in found if key in files}
    with_maps = {item for item, _ in keys}
    if not with_maps:
        return _document("No map has been kept yet.")
    read, word = _reader(store, numbers, pair)
    order, words = _worst_first(numbers, pair, units)
    made = _document(word)
    waiting = [place for place in order if units.items[place] in with_maps]
    while waiting:
        place = waiting[0]
        item = units.items[place]
        maps = {
            f"{place},{index}": map_address(values)
            for index, row in enumerate(units.rows)
            if (values := _plane(store, keys.get((item, row)))) is not None
        }
        photograph, word = _photograph(read, item)
        limit -= sum(map(len, maps.values())) + len(photograph or "")
        if limit < 0:
            break
        made["maps"] |= maps
        made["photographs"] |= {} if photograph is None else {str(place): photograph}
        made["word"] = made["word"] or word
        waiting.pop(0)
    if waiting:
        made["left_out"] = (
            f"Pictures of {len(waiting)} of {len(with_maps)} images are left out to keep this file below "
            f"{LARGEST / 1e6:.0f} MB; {words}."
        )
    return made


def _document(word: str) -> dict[str, Any]:
    return {"photographs": {}, "maps": {}, "word": word, "left_out": ""}


def _reader(store: Store, numbers: Numbers, pair: int) -> tuple[Reader | None, str]:
    try:
        return photograph_reader(store, numbers, pair), ""
    except FEIError as error:
        return None, f"The photographs cannot be read: {error}"


def _photograph(read: Reader | None, item: str) -> tuple[str | None, str]:
    if read is None:
        return None, ""
    try:
        pixels, _ = read(item)
    except FEIError as error:
        return None, f"Some photographs cannot be read: {error}"
    return photograph_address(pixels), ""


def _plane(store: Store, key: str | None) -> NDArray[np.float32] | None:
    found = None if key is None else store.map(key)
    return found if found is not None and found.ndim == 2 and np.isfinite(found).all() else None


def _worst_first(numbers: Numbers, pair: int, units: Units) -> tuple[list[int], str]:
    """The images in the order of their mean score over all methods, and that order in words."""
    for metric in ("insertion", "deletion", "mse"):
        if (quantity := numbers.deepest(pair, metric)) is not None:
            values = np.stack([numbers.values(pair, row, quantity) for row in units.rows])
            there = np.isfinite(values)
            means = np.where(there, values, 0).sum((0, 2)) / np.maximum(1, there.sum((0, 2)))
            order = np.argsort(means if known(metric).higher_is_better else -means, kind="stable")
            return order.tolist(), f"those whose {known(metric).title} is worst, over all methods, are here"
    return list(range(len(units.items))), "the first ones are here"
