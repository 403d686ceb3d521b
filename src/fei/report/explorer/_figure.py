"""What is shown of one image as a figure on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fei.report.comparison import comparison, grid
from fei.report.drawing import photo

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fei.report.explorer.shown import Shown


def headline(shown: Shown) -> str:
    """What is explained, in one line."""
    sure = "" if shown.probability is None else f", {shown.probability:.1%}"
    return f"{shown.name}: {shown.label}{sure}"


def comparison_figure(shown: Shown) -> Figure:
    """Maps of one image side by side, with curves and layers where they were measured."""
    maps = {panel.called: panel.map.detach().cpu().numpy() for panel in shown.panels}
    measured = {panel.called: panel.evaluation for panel in shown.panels if panel.evaluation is not None}
    picture = photo(shown.image)
    if not all(evaluation.internal for evaluation in measured.values()) or not measured:
        return grid(picture, maps, headline(shown), shown.whole)
    return comparison(picture, maps, measured, headline(shown), shown.whole)
