r"""Tables in Markdown, CSV and LaTeX, the last laid out as the paper's, with nothing but \hline and \multicolumn."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from fei.bench.report._cells import MISSING, Cell, Column, decimals, number
from fei.common.words import in_markdown, spreadsheet_cell

if TYPE_CHECKING:
    from fei.bench.report.tables import Table

_CSV_HEAD = (
    "pair", "method", "group", "metric", "protocol", "layer", "threshold", "mean", "std", "low", "high", "images",
    "seeds", "numbers", "place", "against", "difference", "p", "p_holm", "test_images",
)  # fmt: skip
_WIDE = 6  # columns of numbers; more go over both columns of a page, made to fit
_MATH = "±pm ↑uparrow ↓downarrow ×times ≥geq ≤leq †dagger αalpha βbeta λlambda φvarphi ρrho σsigma"
_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{word[0]: rf"\text{word[1:]}{{}}" for word in ("~asciitilde", "^asciicircum", "<less", ">greater", "|bar")},
    **{word[0]: rf"$\{word[1:]}$" for word in _MATH.split()},
    **{'"': "''", "−": "$-$", "–": "--", "—": "---", "…": r"\dots{}"},
}
_DOCUMENT = r"""\documentclass{article}
\usepackage[a4paper,landscape,margin=1.5cm]{geometry}
\usepackage[T1]{fontenc}
\usepackage{graphicx}
\begin{document}
%s
\end{document}
"""


def markdown(table: Table, *, intervals: bool = False) -> str:
    """A table in Markdown, without its title and notes.

    Args:
        table: The table.
        intervals: Whether to show the 95 % intervals in place of the spread over seeds.
    """
    heads = ["<br>".join(map(in_markdown, column.heads)) for column in table.columns]
    lines = [_line(["method", *heads]), _line([":--", *["--:"] * len(heads)])]
    digits = [decimals(cells) for cells in zip(*table.cells, strict=True)]
    before = None
    for row, cells in zip(table.rows, table.cells, strict=True):
        if table.headings and row.group and row.group != before:
            lines.append(_line([f"*{in_markdown(row.group)}*", *[""] * len(heads)]))
        before = row.group
        texts = [_cell(c, col, d, intervals) for c, col, d in zip(cells, table.columns, digits, strict=True)]
        lines.append(_line([in_markdown(row.label), *texts]))
    return "\n".join(lines) + "\n"


def tests_markdown(table: Table) -> str:
    """The paired tests of a table in Markdown; empty where there are none."""
    rows = [
        [
            in_markdown(row.label),
            in_markdown(", ".join(column.heads)),
            in_markdown(test.against),
            f"{test.difference:+.4g}",
            f"{test.p:.3g}",
            f"{test.corrected:.3g}",
            str(test.images),
        ]
        for column, row, cell in table.filled()
        if (test := cell.test) is not None
    ]
    if not rows:
        return ""
    heads = ["method", "column", "against", "difference", "p", "p (Holm)", "images"]
    lines = [heads, [":--", ":--", ":--", "--:", "--:", "--:", "--:"], *rows]
    return "\n".join(map(_line, lines)) + "\n"


def csv_text(table: Table) -> str:
    """A table in CSV: one line per cell, all digits, with intervals and tests; missing cells are left out."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_CSV_HEAD)
    for column, row, cell in table.filled():
        quantity, e, t = column.quantity, cell.estimate, cell.test
        threshold = "" if column.threshold is None else column.threshold
        tested = (
            [spreadsheet_cell(t.against), *map(_digits, (t.difference, t.p, t.corrected)), t.images] if t else [""] * 5
        )
        writer.writerow(
            [
                *map(spreadsheet_cell, (table.pairs[column.pair], row.label, row.group)),
                *map(spreadsheet_cell, (quantity.metric, quantity.protocol, quantity.layer)),
                threshold,
                *map(_digits, (e.mean, e.std, e.low, e.high)),
                *(e.images, e.seeds, e.count, cell.place or ""),
                *tested,
            ]
        )
    return stream.getvalue()


def _cell(cell: Cell | None, column: Column, digits: int, intervals: bool) -> str:
    if cell is None:
        return MISSING
    text = in_markdown(number(cell, column, digits, interval=intervals))
    text = {0: text, 1: f"**{text}**", 2: f"<u>{text}</u>"}[cell.place]
    marks = cell.sign + ("†" if cell.short else "")
    return text + (f"<sup>{marks}</sup>" if marks else "")


def _line(texts: list[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _digits(value: float) -> str:
    return "" if math.isnan(value) else repr(float(value))


def escaped_latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_SPECIAL.get(character, character) for character in " ".join(text.split()))


def latex(table: Table) -> str:
    r"""A table in LaTeX, to be taken into a document with \input; a wide one needs its package graphicx."""
    wide = len(table.columns) > _WIDE
    environment = "table*" if wide else "table"
    lines = [
        rf"\begin{{{environment}}}[tb]",
        rf"\caption{{{escaped_latex(table.title)}.}}",
        rf"\label{{tab:{table.name}}}",
        r"\centering",
        r"\small",
        r"\setlength{\tabcolsep}{3pt}",
        *([r"\resizebox{\textwidth}{!}{%"] if wide else []),
        rf"\begin{{tabular}}{{{_specification(table.columns)}}}",
        r"\hline",
        *_heads(table.columns),
        *_body(table),
        r"\hline",
        r"\end{tabular}" + ("}" if wide else ""),
        r"\par\smallskip",
        r"\begin{minipage}{\linewidth}\footnotesize\raggedright",
        *[escaped_latex(note) + r"\par" for note in table.notes],
        r"\end{minipage}",
        rf"\end{{{environment}}}",
    ]
    return "\n".join(lines) + "\n"


def document(names: Sequence[str]) -> str:
    r"""A document that shows the tables of these files, which stand beside it."""
    return _DOCUMENT % "\n\\clearpage\n".join(rf"\input{{{name}}}" for name in names)


def _specification(columns: Sequence[Column]) -> str:
    """As in the paper, a rule sets the widest groups apart."""
    groups = [len(list(group)) for _, group in groupby(columns, key=lambda column: column.heads[:-1])]
    return "l|" + "|".join("c" * size for size in groups)


def _heads(columns: Sequence[Column]) -> list[str]:
    lines = []
    levels = max(len(column.heads) for column in columns)
    for level in range(levels - 1):
        # columns stand together where all their headings so far agree
        groups = [(key, len(list(group))) for key, group in groupby(column.heads[: level + 1] for column in columns)]
        texts, rules, start = [""], [], 2
        outer = [column.heads[:-1] for column in columns]
        for heads, size in groups:
            last = start + size - 2 == len(columns)
            edge = "" if last or outer[start - 2 + size - 1] == outer[start - 2 + size] else "|"
            texts.append(rf"\multicolumn{{{size}}}{{c{edge}}}{{{escaped_latex(heads[-1])}}}")
            rules.append(rf"\cline{{{start}-{start + size - 1}}}")
            start += size
        lines.append(" & ".join(texts) + r" \\ " + " ".join(rules))
    lines.append(" & ".join(["Method", *(escaped_latex(column.heads[-1]) for column in columns)]) + r" \\")
    return [*lines, r"\hline"]


def _body(table: Table) -> list[str]:
    digits = [decimals(cells) for cells in zip(*table.cells, strict=True)]
    lines: list[str] = []
    before = table.rows[0].group if table.rows else ""
    width = len(table.columns) + 1
    for index, (row, cells) in enumerate(zip(table.rows, table.cells, strict=True)):
        if index and row.group != before:
            lines.append(r"\hline")
        indent = ""
        if table.headings and row.group:
            if not index or row.group != before:
                lines.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{escaped_latex(row.group)}}}}} \\")
            indent = r"\quad "
        before = row.group
        texts = [_latex_cell(c, col, d) for c, col, d in zip(cells, table.columns, digits, strict=True)]
        # braces, since a row that begins with a star or bracket would be taken for an option of the line break
        lines.append((indent or "{}") + " & ".join([_label(row.label), *texts]) + r" \\")
    return lines


def _label(label: str) -> str:
    """A row's heading; the variants of FEI as the paper writes them."""
    match = re.match(r"FEI-([A-Z]+)( .*)?$", label)
    if match is None:
        return escaped_latex(label)
    return rf"FEI$_{{\mathrm{{{match[1]}}}}}$" + (f" {escaped_latex(match[2])}" if match[2] else "")


def _latex_cell(cell: Cell | None, column: Column, digits: int) -> str:
    if cell is None:
        return escaped_latex(MISSING)
    text = escaped_latex(number(cell, column, digits).replace(" ± ", "±").replace(" %", "%"))
    text = {0: text, 1: rf"\textbf{{{text}}}", 2: rf"\underline{{{text}}}"}[cell.place]
    marks = cell.sign.replace("−", "-") + (r"\dagger" if cell.short else "")
    return text + (f"$^{{{marks}}}$" if marks else "")
