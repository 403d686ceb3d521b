"""Photographs that networks are sure of, for plans with a few of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from fei import data
from fei.data import Item
from fei.errors import DataError
from fei.models import load
from fei.service import look

_SURE = 0.9  # of 1, what a network gives the class that it sees
_DRAWS = 20  # that are looked at: of networks that are sure of every other photograph, one in four is of two such


def surest_draw(networks: Sequence[str], spec: str, count: int) -> tuple[int, float]:
    """The seed of a draw from a data set (`fei.data.Dataset.sample`) of which all networks are sure.

    Args:
        networks: The networks, as `fei.models.load` takes them.
        spec: The data set, as `fei.data.load` takes it.
        count: How many images are drawn.

    Returns:
        The first seed of twenty with images to all of which every network gives a class .9 or more, or else the one
        where the least of these numbers is largest; and that number.

    Raises:
        InputError: If there is no such network or data set.
        DataError: If the data set cannot be used.
        ModelError: If a network cannot be loaded or does not work.
    """
    dataset = data.load(spec)
    classifiers = [load(network) for network in networks]

    @cache
    def sureness(item: Item) -> float:
        try:
            return min(look(classifier, item.path).guesses[0].probability for classifier in classifiers)
        except DataError:  # an image that cannot be read is none to be sure of
            return 0.0

    best = (0, -1.0)
    for seed in range(_DRAWS):
        least = min(sureness(item) for item in dataset.sample(count, seed))
        best = max(best, (seed, least), key=lambda draw: draw[1])
        if least >= _SURE or len(dataset) <= count:
            break
    return best
