"""What a table is made of: columns and cells, how they are filled, and how their numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fei.bench.report._statistics import Estimate, PairedTest, holm, paired, places, proportion
from fei.bench.report.numbers import COSTS, Numbers, Quantity
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
        share: Whether it is a share of trials.
        threshold: What a number must reach to count for the share.
    """

    heads: tuple[str, ...]
    pair: int
    quantity: Quantity
    share: bool = False
    threshold: float | None = None

    @property
    def higher_is_better(self) -> bool | None:
        """None where neither is."""
        return known(self.quantity.metric, self.quantity.protocol).higher_is_better


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


def fill(
    numbers: Numbers, columns: Sequence[Column], rows: Sequence[int], *, against_first: bool
) -> list[list[Cell | None]]:
    """The cells of a table, row by row; None where there is no number.

    Args:
        numbers: The run's.
        columns: The columns.
        rows: The methods, by their places in the plan.
        against_first: Whether all rows are compared with the first, as in an ablation; otherwise ours are with the best
            of the others.
    """
    made = [_filled(numbers, column, rows, against_first) for column in columns]
    tests = [cell.test for cells in made for cell in cells if cell is not None and cell.test is not None]
    corrected = iter(holm([test.p for test in tests]))
    made = [
        [
            cell
            if cell is None or cell.test is None
            else replace(cell, test=replace(cell.test, corrected=next(corrected)))
            for cell in cells
        ]
        for cells in made
    ]
    return [[cells[index] for cells in made] for index in range(len(rows))]


def _filled(numbers: Numbers, column: Column, rows: Sequence[int], against_first: bool) -> list[Cell | None]:
    """A column; p is not corrected yet."""
    cells = [_cell(numbers, column, row) for row in rows]
    most = max((cell.estimate.count for cell in cells if cell is not None), default=0)
    means = {row: cell.estimate.mean for row, cell in zip(rows, cells, strict=True) if cell is not None}
    ranked = [means.get(row) if row not in numbers.controls | numbers.reduced else None for row in rows]
    other = _opponent(numbers, column, means, rows[0] if against_first else None)
    compared = set(rows) if against_first else numbers.ours
    return [
        cell
        and Cell(
            cell.estimate,
            place,
            cell.estimate.count < most,
            _test(numbers, column, row, other) if other not in (None, row) and row in compared else None,
        )
        for row, cell, place in zip(rows, cells, places(ranked, column.higher_is_better), strict=True)
    ]


def _cell(numbers: Numbers, column: Column, row: int) -> Cell | None:
    if column.share:
        values = numbers.values(column.pair, row, column.quantity)
        if column.threshold is not None:
            values = np.where(np.isfinite(values), values >= column.threshold, np.nan)
        found = proportion(values)
    else:
        found = numbers.estimate(column.pair, row, column.quantity)
    return None if found is None else Cell(found)


def _opponent(numbers: Numbers, column: Column, means: dict[int, float], first: int | None) -> int | None:
    """Whom a column's methods are compared with: the first row of an ablation, else the best baseline."""
    better = column.higher_is_better
    if better is None or column.share or column.quantity.metric in COSTS:
        return None
    if first is not None:
        return first if first in means else None
    baselines = [row for row in means if row not in numbers.ours | numbers.controls | numbers.reduced]
    return (max if better else min)(baselines, key=means.__getitem__, default=None)


def _test(numbers: Numbers, column: Column, row: int, other: int | None) -> PairedTest | None:
    if other is None:
        return None
    values, others = (numbers.values(column.pair, each, column.quantity) for each in (row, other))
    if (found := paired(values, others)) is None:
        return None
    difference, p, images = found
    better = (difference > 0) == column.higher_is_better
    return PairedTest(numbers.plan.methods[other].label, difference, p, math.nan, images, better)
