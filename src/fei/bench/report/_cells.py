"""What a table is made of: columns, cells, and how their numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fei.bench.report._statistics import Estimate, PairedTest
from fei.bench.report.numbers import Quantity
from fei.errors import InputError
from fei.metrics import Metric, describe

MISSING = "–"
LEVEL = 0.05
"""Of significance."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        heads: Its headings, from the widest group of columns to its own.
        pair: The pair's place in the plan.
        quantity: What is in it.
        higher_is_better: None where neither is.
        share: Whether it is a share of trials.
        threshold: What a number must reach to count for the share.
    """

    heads: tuple[str, ...]
    pair: int
    quantity: Quantity
    higher_is_better: bool | None
    share: bool = False
    threshold: float | None = None


@dataclass(frozen=True)
class Cell:
    """A number of a table.

    Attributes:
        estimate: The number, its spread and its interval.
        place: 1 for the best of its column, 2 for the second, 0 for others and for those that take no place.
        short: Whether others in the column rest on more numbers.
        test: How it compares with the best baseline, for methods that are compared.
    """

    estimate: Estimate
    place: int = 0
    short: bool = False
    test: PairedTest | None = None

    @property
    def sign(self) -> str:
        """A plus or minus where it is better or worse than what it is compared with, beyond chance."""
        if self.test is None or not self.test.corrected < LEVEL:
            return ""
        return "+" if self.test.better else "−"


def known(metric: str, protocol: str = "") -> Metric:
    """What is declared of a stored score; of one that another version measured, no more than its name."""
    try:
        return describe(metric, protocol)
    except InputError:
        return Metric(metric, metric.replace("_", " "), None)


def metric_name(metric: str) -> str:
    """A metric as a heading."""
    return known(metric).title


def direction(metric: str, protocol: str = "") -> bool | None:
    """Whether a higher number is better, which for ROAD its protocol says; None where neither is, or nobody knows."""
    return known(metric, protocol).higher_is_better


def heading(metric: str, protocol: str = "") -> str:
    """A metric's name with an arrow to where it is better."""
    return known(metric, protocol).heading


def decimals(cells: Iterable[Cell | None]) -> int:
    """How many decimals a column shows: three as in the paper, more where its median would lose its digits by that."""
    sizes = sorted(abs(cell.estimate.mean) for cell in cells if cell is not None and cell.estimate.mean)
    median = sizes[len(sizes) // 2] if sizes else 1.0
    if median >= 100:
        return 0 if median >= 1000 else 1
    return 3 if median >= 0.01 else min(9, 2 - math.floor(math.log10(median)))


def number(cell: Cell, column: Column, digits: int, *, interval: bool = False) -> str:
    """A cell in characters: the mean, and its spread or, where asked for and for shares, its interval."""
    e = cell.estimate
    if column.share:
        spread = f" [{100 * e.low:.1f}, {100 * e.high:.1f}]" if interval or column.threshold is None else ""
        return f"{100 * e.mean:.1f} %{spread}"
    if interval:
        ends = "" if math.isnan(e.low) else f" [{e.low:.{digits}f}, {e.high:.{digits}f}]"
        return f"{e.mean:.{digits}f}{ends}"
    return f"{e.mean:.{digits}f}" + ("" if math.isnan(e.std) else f" ± {e.std:.{digits}f}")
