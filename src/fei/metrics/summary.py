"""From per-image numbers to a line in a table: mean, spread, and an interval by resampling images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fei.core.checks import check_count
from fei.errors import InputError

_DRAWS_AT_A_TIME = 2**22


@dataclass(frozen=True)
class Summary:
    """A metric over images.

    Attributes:
        mean: Over the images.
        std: Standard deviation over the images (n − 1 in the denominator); NaN for a single image.
        n: How many images.
        low: Lower end of the bootstrap interval of the mean; NaN for a single image.
        high: Its upper end.

    Examples:
        >>> mean = fei.metrics.Mean()
        >>> mean.update([1.0, 3.0])
        >>> found = mean.compute()
        >>> found.mean, found.n, found.low <= 2 <= found.high
        (2.0, 2, True)
    """

    mean: float
    std: float
    n: int
    low: float
    high: float


class Mean:
    """Collects per-image numbers over batches.

    Args:
        level: Of the interval.
        resamples: Bootstrap samples.
        seed: Of the bootstrap alone.

    Examples:
        >>> mean = fei.metrics.Mean()
        >>> for batch in ([0.1, 0.2], [0.3]):
        ...     mean.update(batch)
        >>> round(mean.compute().mean, 3)
        0.2
    """

    def __init__(self, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> None:
        _check_interval(level, resamples)
        self._level, self._resamples, self._seed = level, resamples, seed
        self._values: list[Tensor] = []

    def update(self, values: Tensor | Sequence[float]) -> None:
        """Add a batch of numbers, one per image."""
        self._values.append(_check_values(values))

    def compute(self) -> Summary:
        """Summarise all numbers so far."""
        values = torch.cat(self._values) if self._values else torch.empty(0)
        if not len(values):
            raise InputError("There is nothing to summarise; call update() with at least one number first.")
        low, high = bootstrap_interval(values, self._level, self._resamples, self._seed)
        std = values.std().item() if len(values) > 1 else math.nan
        return Summary(values.mean().item(), std, len(values), low, high)


def bootstrap_interval(
    values: Tensor | Sequence[float], level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """The percentile bootstrap interval of the mean (Efron, "Bootstrap methods", Ann. Statist. 1979).

    `resamples` times as many values as there are are drawn with replacement; the interval spans the (1 ± level)/2
    quantiles of their means. It speaks of the choice of images, not of seeds or machines. A single value says nothing
    about its spread: NaN.

    Args:
        values: One number per image.
        level: Share of intervals that hold the true mean, for many images.
        resamples: How many samples.
        seed: Of a generator of its own.

    Returns:
        Lower and upper end.

    Examples:
        >>> low, high = fei.metrics.bootstrap_interval([0.2, 0.4, 0.6], resamples=100)
        >>> 0.2 <= low <= 0.4 <= high <= 0.6
        True
    """
    _check_interval(level, resamples)
    if not isinstance(seed, int) or seed < 0:
        raise InputError(f"`seed` must be a whole number of at least 0; got {seed!r}.")
    numbers = _check_values(values).numpy()
    if not len(numbers):
        raise InputError("`values` is empty; a bootstrap interval needs at least one number.")
    if len(numbers) == 1:
        return math.nan, math.nan
    generator = np.random.default_rng(seed)
    rows = max(1, _DRAWS_AT_A_TIME // len(numbers))  # so that many images do not fill the memory
    means = np.concatenate(
        [
            numbers[generator.integers(len(numbers), size=(min(rows, resamples - start), len(numbers)))].mean(1)
            for start in range(0, resamples, rows)
        ]
    )
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _check_values(values: Tensor | Sequence[float]) -> Tensor:
    if isinstance(values, np.ndarray):
        values = values.copy()  # torch shares memory, and takes neither read-only nor reversed arrays
    try:
        numbers = torch.as_tensor(values, dtype=torch.float64, device="cpu").detach()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"`values` must hold one number per image; got {type(values).__name__}.") from error
    if numbers.ndim != 1:
        raise InputError(f"`values` must hold one number per image, shape (N,); got {tuple(numbers.shape)}.")
    if not numbers.square().sum().isfinite():
        raise InputError(
            "`values` holds NaN or infinite numbers, or some too large to add up; leave out or repair the images they "
            "come from."
        )
    return numbers


def _check_interval(level: float, resamples: int) -> None:
    if not isinstance(level, (int, float)) or not 0 < level < 1:
        raise InputError(f"`level` must lie between 0 and 1; got {level!r}.")
    check_count("resamples", resamples)
