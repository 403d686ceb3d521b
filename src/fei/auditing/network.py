"""What is known of the network itself: whether it can be audited on these images, and where it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from fei.auditing import thresholds
from fei.auditing.measured import Measured
from fei.data import Item
from fei.errors import DataError, InputError
from fei.metrics.reliance import CELLS, cell_name
from fei.models import Classifier
from fei.service import Look, look

_CHANCE, _CLEAR = 0.05, 0.001  # of being right as often by luck: to be refused, and to look no further
_NO_CONFIDENCE = 1.2  # times the probability that each class has where nothing is known


@dataclass(frozen=True)
class FirstLook:
    """What the network says of the first images.

    Attributes:
        images: How many were looked at.
        right: How many it is right on; None where that is not known.
        classes: How many classes it predicts.
        confidence: Mean probability of the predicted class.
        seconds: One pass, the quickest: the first ones are slow, and what takes longer is learned as it goes.
        unreadable: Ids of images that could not be read.
    """

    images: int
    right: int | None
    classes: int
    confidence: float
    seconds: float
    unreadable: tuple[str, ...]


def first_look(model: Classifier, items: Sequence[Item], classes: int | None) -> FirstLook:
    """Look at what the network says of the first images, and refuse what no audit can be made of.

    Args:
        model: The network.
        items: The images, in the order in which they are taken.
        classes: How many classes the data set has, where it says so.

    Raises:
        InputError: If there are too few images, all of one class, or the network is at chance on them.
    """
    few = thresholds.FEWEST
    if len(items) < few:
        raise InputError(
            f"An audit of {len(items)} image{'' if len(items) == 1 else 's'} could answer nothing; give at least "
            f"{few}, better 20 or more."
        )
    seen: list[Look] = []
    hits: list[bool] = []  # of images whose class is known
    lost = []
    enough, most = thresholds.LOOKED_AT
    for item in items[:most]:
        try:
            seen.append(look(model, item.path))
        except (DataError, InputError):
            lost.append(item.id)
            continue
        if item.label is not None and classes in (None, len(seen[-1].probabilities)):
            hits.append(seen[-1].guesses[0].index == item.label)
        if len(seen) >= enough and _what_is_wrong(seen, hits, _CLEAR) is None:
            break
    if len(seen) < few:
        raise InputError(f"Only {len(seen)} of {len(items)} images can be read; give at least {few} that can.")
    if (wrong := _what_is_wrong(seen, hits, _CHANCE)) is not None:
        raise InputError(wrong)
    return FirstLook(
        len(seen),
        sum(hits) if hits else None,
        len({each.guesses[0].index for each in seen}),
        float(np.mean([each.guesses[0].probability for each in seen])),
        min(each.seconds for each in seen),
        tuple(lost),
    )


def _what_is_wrong(seen: Sequence[Look], hits: Sequence[bool], luck: float) -> str | None:
    """Why no audit can be made of these images: what is wrong, and what to give instead."""
    count, images = len(seen[0].probabilities), len(seen)
    confidence = float(np.mean([each.guesses[0].probability for each in seen]))
    if hits and _luck(sum(hits), len(hits), 1 / count) > luck:
        return (
            f"The network is right on {sum(hits)} of {len(hits)} images, which is chance for {count} classes, as with "
            "random weights; give its trained weights, images and labels that belong to it, or more images."
        )
    if not hits and confidence < _NO_CONFIDENCE / count:
        return (
            f"The network gives the predicted class {confidence:.2%} on {images} images, hardly more than each of "
            f"{count} classes has by chance, as with random weights; give its trained weights, or images that it was "
            "made for."
        )
    guesses = {each.guesses[0].label for each in seen}
    if len(guesses) < 2:
        return (
            f"The network sees one class only, '{guesses.pop()}', in all {images} images; give images of at least two "
            "classes that it tells apart."
        )
    return None


def _luck(hits: int, trials: int, chance: float) -> float:
    """The chance of at least so many hits."""
    return 1.0 if hits == 0 else float(special.bdtrc(hits - 1, trials, chance))


@dataclass(frozen=True)
class Remark:
    """Something about the network that bears on every method.

    Attributes:
        name: "ignores", "decides" or "linear".
        sentence: What was found, with its numbers.
        cells: The places it is about, as (row, column).
    """

    name: str
    sentence: str
    cells: tuple[tuple[int, int], ...] = ()


def remarks(measured: Measured, control: str, items: Sequence[str]) -> list[Remark]:
    """What painting over parts of the images says of the network, see `fei.metrics.reliance`."""
    places = [(row, column) for row in range(CELLS) for column in range(CELLS)]
    seen = [item for item in items if "interaction" in measured.scores.get((control, item), {})]
    rows = [measured.scores[control, item] for item in seen]
    if len(rows) < thresholds.FEWEST:
        return []
    moved = np.array([[row[f"moved {cell_name(*place)}"] for place in places] for row in rows])
    lost = np.array([[row[f"lost {cell_name(*place)}"] for place in places] for row in rows])
    found = []
    ignored = tuple(place for place, most in zip(places, moved.max(0), strict=True) if most < thresholds.IGNORED.value)
    if ignored:
        found.append(
            Remark(
                "ignores",
                f"The network ignores {len(ignored)} of {len(places)} parts of the image ({_where(ignored)}): painting "
                f"over them changed no output on {len(rows)} images, so a map that marks them is wrong.",
                ignored,
            )
        )
    classes = {measured.facts[item]["target"] for item in seen if item in measured.facts}
    first = int(lost[0].argmax())
    everywhere = bool((lost.argmax(1) == first).all())
    if everywhere and lost.mean(0)[first] > thresholds.DECIDES.value and len(classes) > 1:
        found.append(
            Remark(
                "decides",
                f"The same place decides in all photographs: without the part in {cell_name(*places[first])} of "
                f"{CELLS} × {CELLS}, {lost.mean(0)[first]:.0%} of the score is gone on average, over "
                f"{len(rows)} images of {len(classes)} classes; a stamp, a watermark or a border may be what it reads.",
                (places[first],),
            )
        )
    if all(row["interaction"] < thresholds.LINEAR.value for row in rows):
        found.append(
            Remark(
                "linear",
                f"The network is linear in its pixels on these {len(rows)} images: what parts of an image add to the "
                "logit adds up exactly, so gradients times pixels explain it without error.",
            )
        )
    return found


def _where(cells: Sequence[tuple[int, int]]) -> str:
    """A few places in words: a half of the image by its name, others one by one."""
    half = CELLS // 2
    halves = {
        "the left half": {(r, c) for r in range(CELLS) for c in range(half)},
        "the right half": {(r, c) for r in range(CELLS) for c in range(half, CELLS)},
        "the upper half": {(r, c) for r in range(half) for c in range(CELLS)},
        "the lower half": {(r, c) for r in range(half, CELLS) for c in range(CELLS)},
    }
    for name, those in halves.items():
        if set(cells) == those:
            return name
    return "; ".join(cell_name(*cell) for cell in cells[:3]) + (" …" if len(cells) > 3 else "")
