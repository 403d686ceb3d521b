"""What is in the cells of a table: numbers, their places in the column, and how ours compare with the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fei.bench.report._cells import Cell, Column
from fei.bench.report._statistics import PairedTest, holm, paired, places, proportion
from fei.bench.report.numbers import COSTS, Numbers


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
    ranked = [means.get(row) if row not in numbers.controls else None for row in rows]
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
    baselines = [row for row in means if row not in numbers.ours | numbers.controls]
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
