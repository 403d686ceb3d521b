"""Tables in Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from typing import TYPE_CHECKING

from fei.bench.report._cells import MISSING, Cell, Column, decimals, number

if TYPE_CHECKING:
    from fei.bench.report.tables import Table

_CSV_HEAD = (
    "pair", "method", "group", "metric", "protocol", "layer", "threshold", "mean", "std", "low", "high", "images",
    "seeds", "numbers", "place", "against", "difference", "p", "p_holm", "test_images",
)  # fmt: skip


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    line = " ".join(text.split())
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", line)


def markdown(table: Table, *, intervals: bool = False) -> str:
    """A table in Markdown, without its title and notes.

    Args:
        table: The table.
        intervals: Whether to show the 95 % intervals in place of the spread over seeds.
    """
    heads = ["<br>".join(map(escaped, column.heads)) for column in table.columns]
    lines = [_line(["method", *heads]), _line([":--", *["--:"] * len(heads)])]
    digits = [decimals(cells) for cells in zip(*table.cells, strict=True)]
    before = None
    for row, cells in zip(table.rows, table.cells, strict=True):
        if table.headings and row.group and row.group != before:
            lines.append(_line([f"*{escaped(row.group)}*", *[""] * len(heads)]))
        before = row.group
        texts = [_cell(c, col, d, intervals) for c, col, d in zip(cells, table.columns, digits, strict=True)]
        lines.append(_line([escaped(row.label), *texts]))
    return "\n".join(lines) + "\n"


def tests_markdown(table: Table) -> str:
    """The paired tests of a table in Markdown; empty where there are none."""
    rows = [
        [
            escaped(row.label),
            escaped(", ".join(column.heads)),
            escaped(test.against),
            f"{test.difference:+.4g}",
            f"{test.p:.3g}",
            f"{test.corrected:.3g}",
            str(test.images),
        ]
        for index, column in enumerate(table.columns)
        for row, cells in zip(table.rows, table.cells, strict=True)
        if (cell := cells[index]) is not None and (test := cell.test) is not None
    ]
    if not rows:
        return ""
    heads = ["method", "column", "against", "difference", "p", "p (Holm)", "images"]
    lines = [heads, [":--", ":--", ":--", "--:", "--:", "--:", "--:"], *rows]
    return "\n".join(map(_line, lines)) + "\n"


def csv_text(table: Table) -> str:
    """A table in CSV: one line a cell, all digits, with intervals and tests; missing cells are left out."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_CSV_HEAD)
    for index, column in enumerate(table.columns):
        quantity = column.quantity
        for row, cells in zip(table.rows, table.cells, strict=True):
            cell = cells[index]
            if cell is None:
                continue
            e, t = cell.estimate, cell.test
            threshold = "" if column.threshold is None else column.threshold
            tested = [t.against, *map(_digits, (t.difference, t.p, t.corrected)), t.images] if t else [""] * 5
            writer.writerow(
                [
                    *(table.pairs[column.pair], row.label, row.group),
                    *(quantity.metric, quantity.protocol, quantity.layer, threshold),
                    *map(_digits, (e.mean, e.std, e.low, e.high)),
                    *(e.images, e.seeds, e.count, cell.place or ""),
                    *tested,
                ]
            )
    return stream.getvalue()


def _cell(cell: Cell | None, column: Column, digits: int, intervals: bool) -> str:
    if cell is None:
        return MISSING
    text = escaped(number(cell, column, digits, interval=intervals))
    text = {0: text, 1: f"**{text}**", 2: f"<u>{text}</u>"}[cell.place]
    marks = cell.sign + ("†" if cell.short else "")
    return text + (f"<sup>{marks}</sup>" if marks else "")


def _line(texts: list[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _digits(value: float) -> str:
    return "" if math.isnan(value) else repr(float(value))
