"""From numbers to answers: passes, fails, or cannot tell, over all methods and questions together.

Each cell of the table is a test of a mean against its limit: Student's t over the images, of paired differences where a
method is compared with another; of a share of trials, the exact binomial test. Which cells are answered is decided for
the whole table at once (Benjamini & Hochberg, 1995): at most 5 % of the answers are expected to be wrong. The interval
of each cell has the matching level, 1 − answers · α / cells (Benjamini & Yekutieli, 2005), so that an answer is given
exactly where the interval leaves the limit out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from fei.auditing import thresholds
from fei.auditing.measured import Measured, Values
from fei.auditing.questions import CONTROLS, Question

PASS, FAIL, UNKNOWN, NONE = "pass", "fail", "unknown", "none"
MARKS = {PASS: "✓", FAIL: "✗", UNKNOWN: "?", NONE: "–"}


@dataclass(frozen=True)
class Verdict:
    """The answer to a question about a method.

    Attributes:
        answer: "pass", "fail", "unknown" or, where the question does not apply, "none".
        n: How many images, or trials.
        mean: Of the measured number; NaN where there is none.
        low: Lower end of its interval; NaN for fewer than two.
        high: Its upper end.
        limit: Where the answer changes.
        against: The control that it was compared with.
        why: Why there is no answer, where there is none.
        needed: About how many images, or trials, would tell at best.
    """

    answer: str
    n: int
    mean: float
    low: float
    high: float
    limit: float
    against: str = ""
    why: str = ""
    needed: int = thresholds.FEWEST

    @property
    def mark(self) -> str:
        """✓, ✗, ? or –."""
        return MARKS[self.answer]


@dataclass(frozen=True)
class _Test:
    """A number per image, or successes and trials, against a limit."""

    values: Values
    limit: float
    share: bool = False
    against: str = ""

    @cached_property
    def mean(self) -> float:
        """NaN where there is nothing."""
        return float(self.values.mean()) if len(self.values) else math.nan

    @cached_property
    def deviation(self) -> float:
        """Of a sample of at least two."""
        return float(self.values.std(ddof=1))

    @property
    def p(self) -> float:
        """Two-sided; 1 where there are too few."""
        n = len(self.values)
        if n < thresholds.FEWEST:
            return 1.0
        if self.share:
            fired = int(self.values.sum())  # twice the smaller tail, which is what the interval goes by
            more = 1.0 if fired == 0 else float(special.bdtrc(fired - 1, n, self.limit))
            return min(1.0, 2 * min(float(special.bdtr(fired, n, self.limit)), more))
        mean, error = self.mean, self.deviation / math.sqrt(n)
        if error <= 1e-12:  # the same for every image, to rounding
            return 1.0 if math.isclose(mean, self.limit, abs_tol=1e-9) else 0.0
        return float(2 * special.stdtr(n - 1, -abs(mean - self.limit) / error))

    def interval(self, level: float) -> tuple[float, float]:
        """Of the mean: Student's; of a share: Clopper and Pearson's."""
        n = len(self.values)
        if n < 2:
            return math.nan, math.nan
        if self.share:
            fired, tail = int(self.values.sum()), (1 - level) / 2
            low = 0.0 if fired == 0 else float(special.betaincinv(fired, n - fired + 1, tail))
            high = 1.0 if fired == n else float(special.betaincinv(fired + 1, n - fired, 1 - tail))
            return low, high
        mean, error = self.mean, self.deviation / math.sqrt(n)
        reach = float(special.stdtrit(n - 1, (1 + level) / 2)) * error
        return mean - reach, mean + reach


Table = Mapping[tuple[str, str], Verdict]
"""By the names of a method and a question."""


def judge(
    measured: Measured,
    methods: Sequence[str],
    questions: Sequence[Question],
    items: Sequence[str],
    *,
    alpha: float = thresholds.ALPHA.value,
    with_masks: Sequence[str] = (),
) -> dict[tuple[str, str], Verdict]:
    """Answer all questions about all methods.

    Args:
        measured: The numbers.
        methods: Names of the methods.
        questions: What is asked.
        items: The images.
        alpha: The share of answers that may be wrong.
        with_masks: The methods that have masks, which black images can be asked of.
    """
    return judge_at([alpha], measured, methods, questions, items, with_masks)[0]


def judge_at(
    alphas: Sequence[float],
    measured: Measured,
    methods: Sequence[str],
    questions: Sequence[Question],
    items: Sequence[str],
    with_masks: Sequence[str] = (),
) -> list[dict[tuple[str, str], Verdict]]:
    """The same for several shares of answers that may be wrong."""
    cells = {(method, question.name): question for method in methods for question in questions}
    of_controls = {  # the same for every method
        question: {control: read(control, items) for control in CONTROLS}
        for question, read in (("controls", measured.gains), ("inside", measured.kept))
    }
    no_use = {
        cell: why
        for cell, question in cells.items()
        if (why := _no_use(measured, cell[0], question, items, with_masks))
    }
    tests = {
        cell: _test(measured, cell[0], question, items, of_controls)
        for cell, question in cells.items()
        if cell not in no_use
    }
    chances = {cell: test.p for cell, test in tests.items() if len(test.values) >= thresholds.FEWEST}
    tables = []
    for alpha in alphas:
        answered = _benjamini_hochberg(chances, alpha)
        level = 1 - max(1, len(answered)) * alpha / max(1, len(chances))
        found: dict[tuple[str, str], Verdict] = {}
        for cell, question in cells.items():
            if cell in no_use:
                none = math.nan
                found[cell] = Verdict(NONE, 0, none, none, none, question.limit.value, why=no_use[cell])
            else:
                found[cell] = _verdict(tests[cell], level, cell in answered, measured.reasons, cell, question)
        tables.append(found)
    return tables


def _no_use(
    measured: Measured, method: str, question: Question, items: Sequence[str], with_masks: Sequence[str]
) -> str | None:
    """Why a question does not apply."""
    if question.name == "black" and method not in with_masks:
        return "it has no masks that could be tried on a black image"
    if question.name == "inside" and measured.gains(method, items) and not measured.kept(method, items):
        return "the network has no layers that could be looked into"
    return None


def _test(
    measured: Measured,
    method: str,
    question: Question,
    items: Sequence[str],
    of_controls: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> _Test:
    limit = question.limit.value
    if question.name == "black":
        return _Test(np.array(list(measured.fired.get(method, {}).values()), dtype=np.float64), limit, share=True)
    if question.name == "seed":
        return _Test(measured.values(method, items, "stability")[:, 0], limit)
    if question.name in ("class", "weights"):
        other = "random_class" if question.name == "class" else "classifier_randomization"
        both = measured.values(method, items, "stability", other)
        return _Test(both[:, 0] - both[:, 1], limit)
    if question.name == "score":
        rows = measured.values(method, items, "insertion", "deletion", "probability")
        gains, scores = rows[:, 0] - rows[:, 1], rows[:, 2]
        # of all images together: the mean is Σ gains / Σ scores, and an image of a tiny score does not count for all
        return _Test(limit + (gains - limit * scores) / scores.mean() if len(rows) else gains, limit)
    read = measured.gains if question.name == "controls" else measured.kept
    own = read(method, items)
    best, against = np.empty(0), ""
    for control in CONTROLS:
        other_values = {item: value for item, value in of_controls[question.name][control].items() if item in own}
        if control == method or len(other_values) < min(len(own), thresholds.FEWEST) or not other_values:
            continue
        difference = np.array([own[item] - value for item, value in other_values.items()])
        if not against or difference.mean() < best.mean():
            best, against = difference, control
    return _Test(best, limit, against=against)


def _benjamini_hochberg(chances: Mapping[tuple[str, str], float], alpha: float) -> set[tuple[str, str]]:
    """The cells that are answered: the k smallest, k being the largest with p(k) ≤ k · α / cells."""
    ordered = sorted(chances.items(), key=lambda one: one[1])
    count = max((k for k, (_, p) in enumerate(ordered, 1) if p <= k * alpha / len(ordered)), default=0)
    return {cell for cell, _ in ordered[:count]}


def _verdict(
    test: _Test,
    level: float,
    answered: bool,
    reasons: Mapping[tuple[str, str], str],
    cell: tuple[str, str],
    question: Question,
) -> Verdict:
    n = len(test.values)
    mean = test.mean
    low, high = test.interval(level)
    answer, why = UNKNOWN, ""
    if answered:
        answer = PASS if (mean > test.limit) != test.share else FAIL
    elif failed := [reasons[cell[0], step] for step in question.steps if (cell[0], step) in reasons]:
        why = failed[0]
    elif n < thresholds.FEWEST:
        why = f"{_count(n, test)}, and an answer needs {thresholds.FEWEST}" if n else "not measured in this time"
    else:
        why = f"the interval over {_count(n, test)} holds the limit{_needed(test)}"
    return Verdict(answer, n, mean, low, high, test.limit, test.against, why, _at_best(test))


def _count(n: int, test: _Test) -> str:
    what = "trial" if test.share else "image"
    return f"{n} {what}{'' if n == 1 else 's'}"


def _needed(test: _Test) -> str:
    """About how many images an answer would take, if the numbers stayed as they are."""
    if test.share:
        return ""
    needed = _images(test, abs(test.mean - test.limit))
    return f"; about {needed} images would tell" if len(test.values) < needed <= thresholds.LADDER[-1] else ""


def _at_best(test: _Test) -> int:
    """The same if the mean lies a standard error further from the limit than it seems, as it may: few images err."""
    n = len(test.values)
    if n < thresholds.FEWEST:
        return thresholds.FEWEST
    if test.share:
        return thresholds.TRIALS
    error = test.deviation / math.sqrt(n)
    return _images(test, abs(test.mean - test.limit) + error)


def _images(test: _Test, distance: float) -> int:
    """How many images have a mean that is three standard errors from the limit."""
    if distance == 0:
        return thresholds.LADDER[-1] + 1
    return math.ceil((3 * test.deviation / distance) ** 2)


def lead(measured: Measured, first: str, second: str, items: Sequence[str]) -> tuple[float, float, int]:
    """By how much the first method is ahead of the second in insertion − deletion, with its chance: mean, p, images."""
    one, other = measured.gains(first, items), measured.gains(second, items)
    values = np.array([one[item] - other[item] for item in one if item in other])
    test = _Test(values, 0.0)
    return test.mean, test.p, len(values)
