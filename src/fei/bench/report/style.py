"""How figures look: one colour and mark per method in all of them, quiet axes, and files that repeat byte by byte."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import matplotlib
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fei.bench.report.numbers import Numbers
from fei.report.drawing import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 7.0
"""Inches: a figure over both columns of a page."""

FORMATS = ("png", "svg")
_DPI = 200
# What would tell when, and by which version, a file was made.
_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
INK, FAINT = "#1a1a1a", "#6b6b6b"
_CHANCE, _CONTROL = "0.6", "black"
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
_DASHES = ((0, ()), (0, (5, 1.5)), (0, (2.5, 1.2)), (0, (1, 1)), (0, (5, 1, 1, 1)))
_NAME, _LAYER = 30, 16  # characters of a method's and of a layer's name


@dataclass(frozen=True)
class LineStyle:
    """The look of a method: ours are warm, strong and filled, baselines cool, thin and open."""

    name: str
    colour: Any
    marker: str
    dash: Any
    ours: bool

    def line(self) -> dict[str, Any]:
        """For `Axes.plot`."""
        return {
            "color": self.colour,
            "linestyle": self.dash,
            "linewidth": 1.8 if self.ours else 1.0,
            "marker": self.marker,
            "markersize": 4.5 if self.ours else 3.8,
            "markerfacecolor": self.colour if self.ours else "white",
            "markeredgewidth": 0.9,
            "zorder": 3 if self.ours else 2,
        }

    def faint(self) -> tuple[float, ...]:
        """The colour, mixed with white."""
        return tuple(0.5 + 0.5 * channel for channel in to_rgb(self.colour))

    def point(self) -> dict[str, Any]:
        """For `Axes.errorbar`."""
        bars = {"ecolor": self.faint(), "elinewidth": 0.8}
        return self.line() | bars | {"linestyle": "none", "markersize": 5.5 if self.ours else 4.8}


def line_styles(numbers: Numbers) -> dict[int, LineStyle]:
    """The look of each method of a plan, by its place in it.

    Baselines share viridis, whose yellow is too pale on white, and ours the warm part of inferno: both are told apart
    by colour-blind eyes, in grey too, and marks and dashes help. The control is black, chance is grey.
    """
    methods = numbers.plan.methods
    fixed = dict.fromkeys(sorted(numbers.controls), _CONTROL)
    fixed |= {row: _CHANCE for row, method in enumerate(methods) if method.name == "random"}
    ours = [row for row in numbers.rows if row in numbers.ours]
    others = [row for row in numbers.rows if row not in numbers.ours and row not in fixed]
    colours = fixed | _spread("inferno", 0.42, 0.76, ours) | _spread("viridis", 0.0, 0.85, others)
    made = {}
    for place, row in enumerate([*ours, *others, *fixed]):
        strong = row in numbers.ours or row in numbers.controls
        within = place if row in numbers.ours else place - len(ours)
        made[row] = LineStyle(
            name=shortened(methods[row].label, _NAME),
            colour=colours[row],
            marker=_MARKERS[within % len(_MARKERS)],
            dash=_DASHES[0] if strong else _DASHES[1 + within % (len(_DASHES) - 1)],
            ours=strong,
        )
    return made


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure that belongs to no window."""
    return Figure(figsize=(width, height), layout="constrained", dpi=_DPI)


def dress(axes: Axes, title: str = "", x: str = "", y: str = "") -> None:
    """Name the axes, and take away what carries no number."""
    axes.set_title(shortened(title, 60), fontsize=8.5, color=INK, parse_math=False)
    axes.set_xlabel(x, fontsize=8, color=INK)
    axes.set_ylabel(y, fontsize=8, color=INK)
    axes.tick_params(labelsize=7, color=FAINT, labelcolor=INK, width=0.6, length=2.5)
    axes.tick_params(which="minor", labelsize=6, color=FAINT, labelcolor=FAINT, width=0.4, length=1.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=FAINT, linewidth=0.6)
    axes.grid(color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)


def layer_name(layer: str) -> str:
    """A layer's or stage's name as it fits under an axis: its end tells layers apart."""
    name = layer.split(" ", 1)[-1].removeprefix("network.")
    return name if len(name) <= _LAYER else f"…{name[1 - _LAYER :]}"


def log_scale(axes: Axes, axis: Literal["x", "y"]) -> None:
    """A logarithmic axis with plain numbers at 1, 2 and 5."""
    (axes.set_xscale if axis == "x" else axes.set_yscale)("log")
    scale = axes.xaxis if axis == "x" else axes.yaxis
    scale.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    scale.set_minor_formatter(NullFormatter())


def legend(figure: Figure, shown: Sequence[LineStyle]) -> None:
    """Name the methods below the panels."""
    handles = [Line2D([], [], label=look.name, **look.line()) for look in shown]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(shown), 4 if max(len(look.name) for look in shown) > 16 else 6),
        fontsize=7,
        frameon=False,
        handlelength=2.6,
    )


def picture(figure: Figure, form: str) -> bytes:
    """The file of a figure, the same for the same figure whenever it is made."""
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "fei", "svg.fonttype": "path", "savefig.bbox": None}):
        figure.savefig(file, format=form, dpi=_DPI, metadata=_METADATA[form], facecolor="white")
    return file.getvalue()


def _spread(name: str, low: float, high: float, rows: Sequence[int]) -> dict[int, Any]:
    colours = matplotlib.colormaps[name](np.linspace(low, high, len(rows)))
    return {row: tuple(map(float, colour)) for row, colour in zip(rows, colours, strict=True)}
