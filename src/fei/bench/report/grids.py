"""Maps over their photographs on a sheet of paper, as in the paper's Figure 1 and its visual comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fei.bench.report.style import FAINT, INK, new_figure
from fei.report.drawing import Pixels, bare, overlay, shortened, show_whole
from fei.report.whole import Whole

_CELL, _GAP, _MARGIN = 0.82, 0.02, 0.02  # inches
_LINE = 1.25 / 72  # a point of text
_MOST_METHODS = 8
_NAME, _SMALL, _TITLE = 6.5, 5.5, 8.5  # points


@dataclass(frozen=True)
class MapGrid:
    """Images × methods of one network.

    Attributes:
        title: Over the panel; empty for none.
        names: The methods.
        photographs: The images as the network saw them.
        maps: For each image and method its map (H, W); None where there is none.
        scores: For each image and method what its map reaches, in a few words; none if empty.
        foot: How the scores were measured, under the panel.
        wholes: For each image all of the photograph, where the network saw only a part; none if empty.
    """

    title: str
    names: Sequence[str]
    photographs: Sequence[Pixels]
    maps: Sequence[Sequence[NDArray[Any] | None]]
    scores: Sequence[Sequence[str]] = ()
    foot: str = ""
    wholes: Sequence[Whole | None] = ()


def visual_comparison(panels: Sequence[MapGrid]) -> Figure:
    """Names on top, one row per image; many methods are folded into bands, each beginning with the photographs."""
    sheet = _Sheet(_columns(panels))
    for panel in panels:
        sheet.heading(panel.title)
        for band in _bands(panel):
            sheet.words(["photograph", *(panel.names[method] for method in band)], _NAME, above=True)
            for image in range(len(panel.maps)):
                _row(sheet, panel, image, band)
        sheet.foot(_framed(panel))
    return sheet.figure()


def figure_1(panels: Sequence[MapGrid]) -> Figure:
    """Letters and names below, and under each map what it reaches: good scores from outside are not enough."""
    sheet = _Sheet(_columns(panels))
    for panel in panels:
        sheet.heading(panel.title)
        for band in _bands(panel):
            for image in range(len(panel.maps)):
                _row(sheet, panel, image, band)
                if panel.scores:
                    sheet.words(["", *(panel.scores[image][method] for method in band)], _SMALL, colour=FAINT)
            letters = [ascii_lowercase[(1 + method) % len(ascii_lowercase)] for method in band]
            named = [f"({letter}) {panel.names[method]}" for letter, method in zip(letters, band, strict=True)]
            sheet.words(["(a) original", *named], _NAME)
        sheet.foot(panel.foot)
        sheet.foot(_framed(panel))
    return sheet.figure()


class _Sheet:
    """Lines of pictures and words, put under one another."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._lines: list[tuple[float, Callable[[Figure, float, float], None]]] = []
        self._width = 2 * _MARGIN + columns * (_CELL + _GAP) - _GAP

    def heading(self, text: str) -> None:
        if text:
            self._text_line(shortened(text, 12 * self._columns), 0.26, _TITLE, INK, "bold")

    def foot(self, text: str) -> None:
        if text:
            self._text_line(shortened(text, 19 * self._columns), _LINE * _SMALL + 0.05, _SMALL, FAINT, "normal")

    def words(self, texts: Sequence[str], size: float, *, above: bool = False, colour: str = INK) -> None:
        """One text per column: above pictures all end at the same height, below them they begin there."""
        columns = [wrapped(text) for text in texts]
        height = _LINE * size * max(text.count("\n") + 1 for text in columns) + 0.06

        def draw(figure: Figure, left: float, top: float) -> None:
            for column, text in enumerate(columns):
                figure.text(
                    (left + column * (_CELL + _GAP) + _CELL / 2) / self._width,
                    (top - (height - 0.03 if above else 0.02)) / self._height,
                    text,
                    ha="center",
                    va="bottom" if above else "top",
                    fontsize=size,
                    color=colour,
                    linespacing=1.1,
                    parse_math=False,
                )

        self._lines.append((height, draw))

    def pictures(self, pictures: Sequence[Pixels | Whole | None], height: float) -> None:
        """One picture per column, in places of that height, in inches."""

        def draw(figure: Figure, left: float, top: float) -> None:
            for column, picture in enumerate(pictures):
                place = (left + column * (_CELL + _GAP), top - height, _CELL, height)
                sides = (self._width, self._height) * 2
                x, y, width, tall = (length / side for length, side in zip(place, sides, strict=True))
                axes = figure.add_axes((x, y, width, tall))
                bare(axes)
                if picture is None:
                    axes.set_facecolor("0.96")
                    axes.text(0.5, 0.5, "–", ha="center", va="center", transform=axes.transAxes)
                elif isinstance(picture, Whole):
                    show_whole(axes, picture)
                else:
                    axes.imshow(picture)

        self._lines.append((height + _GAP, draw))

    def figure(self) -> Figure:
        self._height = 2 * _MARGIN + sum(height for height, _ in self._lines)
        made = new_figure(self._height, width=self._width)
        made.set_layout_engine("none")
        top = self._height - _MARGIN
        for height, draw in self._lines:
            draw(made, _MARGIN, top)
            top -= height
        return made

    def _text_line(self, text: str, height: float, size: float, colour: str, weight: str) -> None:
        def draw(figure: Figure, left: float, top: float) -> None:
            x, y = left / self._width, (top - height / 2) / self._height
            figure.text(x, y, text, va="center", fontsize=size, color=colour, fontweight=weight, parse_math=False)

        self._lines.append((height, draw))


def _row(sheet: _Sheet, panel: MapGrid, image: int, band: range) -> None:
    """One image under some methods: all of its photograph, and the maps on what the network saw."""
    seen, maps = panel.photographs[image], panel.maps[image]
    whole = panel.wholes[image] if panel.wholes else None
    laid = (_laid(seen, maps[method]) for method in band)
    sheet.pictures([seen if whole is None else whole, *laid], _CELL * seen.shape[0] / seen.shape[1])


def _framed(panel: MapGrid) -> str:
    return "Framed: what the network saw." if any(panel.wholes) else ""


def _laid(photograph: Pixels, attribution: NDArray[Any] | None) -> Pixels | None:
    return None if attribution is None else overlay(photograph, np.asarray(attribution))


def _bands(panel: MapGrid) -> list[range]:
    """The methods in as few bands as they fit in, of even length."""
    methods = len(panel.names)
    columns = -(-methods // -(-methods // _MOST_METHODS))
    return [range(first, min(methods, first + columns)) for first in range(0, methods, columns)]


def _columns(panels: Sequence[MapGrid]) -> int:
    return 1 + max(len(band) for panel in panels for band in _bands(panel))


def wrapped(name: str) -> str:
    """A name in lines that fit over a small picture; lines of its own are kept."""
    lines = []
    for given in name.split("\n"):
        lines.append("")
        for word in given.split():
            if len(lines[-1]) + len(word) < 16:
                lines[-1] = f"{lines[-1]} {word}".strip()
            else:
                lines.append(word)
    return "\n".join(lines).strip("\n")
