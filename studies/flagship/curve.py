"""The trade-off of the flagship's options: how much a map is about its class, against what it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fei.bench.report.style import INK, dress, new_figure

KEPT = (("insertion", "insertion"), ("cosine", "cosine inside"), ("relevant_cosine", "relevant cosine"))
# The options that are turned up along a line, with its colour; `prior` goes on from the end of `focus`.
LINES = {
    "focus, then prior": ("#b5367a", ("focus 0", "focus 0.5", "focus 1", "prior 0.25", "prior 0.5", "prior 1")),
    "contrast": ("#21908d", ("focus 0", "contrast 0.3", "contrast 0.6", "contrast 0.9")),
    "contrast, projected": ("#5dc863", ("focus 0", "projected 0.9")),
    "contrast under VM": ("#3b528b", ("vm, contrast 0", "vm, contrast 0.5", "vm, contrast 0.9")),
    "contrast under VM, projected": ("#8a9bc9", ("vm, contrast 0", "vm, projected 0.9")),
}
FLAGSHIP = "prior 0.5"
_MARK: dict[str, Any] = {"marker": "o", "markersize": 3}


def points_of(rows: list[dict[str, Any]], settings: Sequence[str], name: str) -> list[tuple[float, float]]:
    """Means of the rank correlation with a random class and of another number, for each setting that is measured."""
    found = [[row for row in rows if row["method"] == setting] for setting in settings]
    return [(mean(row["random_class"] for row in each), mean(row[name] for row in each)) for each in found if each]


def curve(rows: list[dict[str, Any]]) -> Figure:
    """A row of panels per network, a line per option, a ring around the flagship."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    figure = new_figure(2.2 * len(networks) + 0.5)
    panels: Any = figure.subplots(len(networks), len(KEPT), squeeze=False)
    for network, line in zip(networks, panels, strict=True):
        known = [row for row in rows if row["network"] == network and row["kind"] == "photograph"]
        count = len({row["photograph"] for row in known})
        for (name, title), axes in zip(KEPT, line, strict=True):
            for colour, settings in LINES.values():
                points = points_of(known, settings, name)
                axes.plot([x for x, _ in points], [y for _, y in points], color=colour, linewidth=1, **_MARK)
            for point in points_of(known, [FLAGSHIP], name):
                axes.plot(*point, "o", markersize=9, markerfacecolor="none", color=INK)
            dress(axes, f"{network}, n = {count}", x="ρ with a random class", y=title)
    handles = [Line2D([], [], color=colour, label=name, **_MARK) for name, (colour, _) in LINES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=7, frameon=False)
    return figure
