"""How a claim is judged: comparisons with intervals, what each says, and a verdict over all of them.

**A comparison** is a difference with a 95 % interval. Between methods it is the mean over the photographs of one
method's number minus the other's, with seeds averaged first, and the bootstrap interval over the photographs. Between
two rates it is their difference, with Newcombe's interval made from Wilson's ("Interval estimation for the difference
between independent proportions", Statistics in Medicine 1998). Its sign is chosen so that the claim says "above 0", or,
if the claim is that two things are equal, "within a margin around 0".

- *yes*: the whole interval is where the claim says (above 0; inside the margin);
- *no*: the whole interval is where the claim says it is not (below 0; outside the margin);
- *open*: neither. A single photograph has no interval and is always open.

**A verdict** over the comparisons of a claim:

- *not testable here*: there is no comparison, or all are open;
- *holds*: none is no, and at least half are yes;
- *partly*: some are yes, and some are no or fewer than half are yes;
- *not*: some are no and none is yes.

Nothing is corrected for the number of comparisons, and bootstrap intervals over few photographs are too narrow: for
normally distributed differences they contain the mean in about 84 % of all cases with five photographs and 90 % with
ten, not in 95 %. So if two things are truly equal, with five photographs one comparison in twelve is expected to say
yes and one in twelve no; with ten photographs, one in twenty each. A single yes or no is a hint, many are evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fei.metrics import bootstrap_interval, wilson_interval

YES, NO, OPEN = "yes", "no", "open"
HOLDS, PARTLY, NOT, UNTESTED = "holds", "partly", "not", "not testable here"
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """A difference that a claim is about.

    Attributes:
        where: The network, or plan and network.
        what: What is subtracted from what.
        difference: Signed so that a claim of "more" or "better" says that it is above 0.
        low: Lower end of its 95 % interval; NaN where there is none.
        high: Its upper end.
        count: Photographs, or trials of the smaller sample.
        margin: For a claim that two things are equal: how far apart they may be; 0 for a claim of "above".
    """

    where: str
    what: str
    difference: float
    low: float
    high: float
    count: int
    margin: float = 0.0

    @property
    def answer(self) -> str:
        """What it says about the claim: "yes", "no" or "open"."""
        if math.isnan(self.low):
            return OPEN
        if self.margin:
            inside = -self.margin <= self.low and self.high <= self.margin
            outside = self.low > self.margin or self.high < -self.margin
            return YES if inside else NO if outside else OPEN
        return YES if self.low > 0 else NO if self.high < 0 else OPEN


def verdict(comparisons: Iterable[Comparison]) -> str:
    """What the comparisons of a claim say together."""
    answers = [comparison.answer for comparison in comparisons]
    yes, no = answers.count(YES), answers.count(NO)
    if not yes and not no:
        return UNTESTED
    if not yes:
        return NOT
    return HOLDS if not no and 2 * yes >= len(answers) else PARTLY


def paired_difference(
    where: str, what: str, values: Values, others: Values, *, higher_is_better: bool = True, margin: float = 0.0
) -> Comparison | None:
    """A method's numbers minus another's, photograph by photograph; None where no photograph has both.

    Args:
        where: See `Comparison`.
        what: Likewise.
        values: One method's numbers, photographs × seeds.
        others: The other's.
        higher_is_better: If not, the difference is turned around, so that above 0 is better.
        margin: See `Comparison`.
    """
    each = values - others if higher_is_better else others - values
    known = np.isfinite(each)
    means = np.where(known, each, 0).sum(1)[known.any(1)] / known.sum(1)[known.any(1)]
    if not len(means):
        return None
    low, high = bootstrap_interval(means.tolist())
    return Comparison(where, what, float(means.mean()), low, high, len(means), margin)


def rate_difference(where: str, what: str, fired: Values, others: Values) -> Comparison | None:
    """One share of trials minus another, with Newcombe's interval; None where there are no trials."""
    one, two = _rate(fired), _rate(others)
    if one is None or two is None:
        return None
    (p, p_low, p_high, n), (q, q_low, q_high, m) = one, two
    down = math.hypot(p - p_low, q_high - q)
    up = math.hypot(p_high - p, q - q_low)
    return Comparison(where, what, p - q, p - q - down, p - q + up, min(n, m))


def rate_against(where: str, what: str, fired: Values, level: float, *, above: bool) -> Comparison | None:
    """A share of trials against a level, with Wilson's interval; None where there are no trials."""
    found = _rate(fired)
    if found is None:
        return None
    rate, low, high, count = found
    ends = (rate - level, low - level, high - level) if above else (level - rate, level - high, level - low)
    return Comparison(where, what, *ends, count)


def _rate(values: Values) -> tuple[float, float, float, int] | None:
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    low, high = wilson_interval(int(known.sum()), len(known))
    return float(known.mean()), low, high, len(known)
