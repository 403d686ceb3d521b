"""From the numbers of images and seeds to a line in a table: means, intervals, places, and paired tests."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fei.metrics import bootstrap_interval, wilson_interval

Values = NDArray[np.float64]
"""One number per image (rows) and seed (columns), NaN where there is none."""


@dataclass(frozen=True)
class Estimate:
    """A metric of one method on one pair.

    Attributes:
        mean: Over the seeds, of the mean over the images; of a proportion, the share of all trials.
        std: Standard deviation of the seeds' means (n − 1 in the denominator); NaN for one seed and for a proportion.
        low: Lower end of the 95 % interval: bootstrap over images, or Wilson's for a proportion.
        high: Its upper end. NaN, as is `low`, for a single image.
        images: How many images, or trials, have a number.
        seeds: How many seeds have one.
        count: How many numbers there are in all.
    """

    mean: float
    std: float
    low: float
    high: float
    images: int
    seeds: int
    count: int


@dataclass(frozen=True)
class PairedTest:
    """A method against another one, image by image.

    Attributes:
        against: The other one's label.
        difference: Mean over the images of this one's number minus the other one's.
        p: Of Wilcoxon's signed-rank test, two-sided.
        corrected: The same after Holm's correction for the number of tests in the table.
        images: How many images have both.
        better: Whether the difference is to this one's credit.
    """

    against: str
    difference: float
    p: float
    corrected: float
    images: int
    better: bool


def estimate(values: Values) -> Estimate | None:
    """Mean, spread over the seeds, and the bootstrap interval over the images; None where there is no number."""
    known = np.isfinite(values)
    if not known.any():
        return None
    per_seed = _means(values, 0)
    per_image = _means(values, 1)
    low, high = bootstrap_interval(per_image.tolist())
    std = float(per_seed.std(ddof=1)) if len(per_seed) > 1 else math.nan
    return Estimate(float(per_seed.mean()), std, low, high, len(per_image), len(per_seed), int(known.sum()))


def proportion(values: Values) -> Estimate | None:
    """The share of ones among all trials, with Wilson's interval; None where there is no trial."""
    known = np.isfinite(values)
    trials = int(known.sum())
    if not trials:
        return None
    successes = int(values[known].sum())
    low, high = wilson_interval(successes, trials)
    return Estimate(successes / trials, math.nan, low, high, trials, int(known.any(0).sum()), trials)


def places(means: Sequence[float | None], higher_is_better: bool | None) -> list[int]:
    """1 for the best, 2 for the second, 0 for all others; equal numbers share a place."""
    if higher_is_better is None:
        return [0] * len(means)
    ranked = sorted({mean for mean in means if mean is not None}, reverse=higher_is_better)[:2]
    return [0 if mean not in ranked else ranked.index(mean) + 1 for mean in means]


def paired(values: Values, others: Values) -> tuple[float, float, int] | None:
    """Wilcoxon's signed-rank test over the images (Wilcoxon, "Individual comparisons by ranking methods", 1945).

    Seeds are no independent images: only those that both methods have are taken, and averaged first.

    Returns:
        Mean difference, two-sided p and the number of images; None for fewer than two images.
    """
    from scipy.stats import wilcoxon

    difference = _means(values - others, 1)
    if len(difference) < 2:
        return None
    if not difference.any():
        return 0.0, 1.0, len(difference)
    with warnings.catch_warnings():  # scipy tells of small samples; their number stands beside p
        warnings.simplefilter("ignore")
        p = float(wilcoxon(difference).pvalue)
    return float(difference.mean()), p, len(difference)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's correction (Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 1979).

    The i-th smallest of m values is multiplied by m − i + 1; none becomes smaller than one before it, or larger than 1.
    """
    corrected = [0.0] * len(p)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[index]))
        corrected[index] = largest
    return corrected


def images_needed(tests: int, level: float) -> int:
    """How many images it takes for any of so many tests to be significant at a level.

    All differences of n images having one sign, the two-sided p of Wilcoxon's test is 2^(1 − n), and Holm's correction
    multiplies the smallest p by the number of tests.
    """
    return math.floor(math.log2(tests / level)) + 2


def _means(values: Values, axis: int) -> Values:
    """The means along an axis of what is known, without the places where nothing is."""
    known = np.isfinite(values)
    some = known.any(axis)
    means: Values = (np.where(known, values, 0).sum(axis)[some]) / known.sum(axis)[some]
    return means
