r"""Tables in LaTeX, laid out as the paper's, with nothing but \hline and \multicolumn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from fei.bench.report._cells import MISSING, Cell, Column, decimals, number

if TYPE_CHECKING:
    from fei.bench.report.tables import Table

_WIDE = 6  # columns of numbers; more go over both columns of a page, made to fit
_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "−": r"$-$",
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "†": r"$\dagger$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "λ": r"$\lambda$",
    "φ": r"$\varphi$",
    "ρ": r"$\rho$",
    "σ": r"$\sigma$",
}
_DOCUMENT = r"""\documentclass{article}
\usepackage[a4paper,landscape,margin=1.5cm]{geometry}
\usepackage[T1]{fontenc}
\usepackage{graphicx}
\begin{document}
%s
\end{document}
"""


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_SPECIAL.get(character, character) for character in " ".join(text.split()))


def latex(table: Table) -> str:
    r"""A table in LaTeX, to be taken into a document with \input; a wide one needs its package graphicx."""
    wide = len(table.columns) > _WIDE
    environment = "table*" if wide else "table"
    lines = [
        rf"\begin{{{environment}}}[tb]",
        rf"\caption{{{escaped(table.title)}.}}",
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
        *[escaped(note) + r"\par" for note in table.notes],
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
            texts.append(rf"\multicolumn{{{size}}}{{c{edge}}}{{{escaped(heads[-1])}}}")
            rules.append(rf"\cline{{{start}-{start + size - 1}}}")
            start += size
        lines.append(" & ".join(texts) + r" \\ " + " ".join(rules))
    lines.append(" & ".join(["Method", *(escaped(column.heads[-1]) for column in columns)]) + r" \\")
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
                lines.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{escaped(row.group)}}}}} \\")
            indent = r"\quad "
        before = row.group
        texts = [_cell(c, col, d) for c, col, d in zip(cells, table.columns, digits, strict=True)]
        # braces, since a row that begins with a star or bracket would be taken for an option of the line break
        lines.append((indent or "{}") + " & ".join([_label(row.label), *texts]) + r" \\")
    return lines


def _label(label: str) -> str:
    """A row's heading; the variants of FEI as the paper writes them."""
    match = re.match(r"FEI-([A-Z]+)( .*)?$", label)
    if match is None:
        return escaped(label)
    return rf"FEI$_{{\mathrm{{{match[1]}}}}}$" + (f" {escaped(match[2])}" if match[2] else "")


def _cell(cell: Cell | None, column: Column, digits: int) -> str:
    if cell is None:
        return escaped(MISSING)
    text = escaped(number(cell, column, digits).replace(" ± ", "±").replace(" %", "%"))
    text = {0: text, 1: rf"\textbf{{{text}}}", 2: rf"\underline{{{text}}}"}[cell.place]
    marks = cell.sign.replace("−", "-") + (r"\dagger" if cell.short else "")
    return text + (f"$^{{{marks}}}$" if marks else "")
