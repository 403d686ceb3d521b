"""The explorer: one HTML file that shows what methods found, what it does to the network, and how to repeat it.

    from fei.report.explorer import write_explorer
    from fei.service import collect

    shown = collect(classifier, ["cat.jpg"], ["gradcam", "fei", "fei-none"])
    write_explorer("explorer.html", shown)

The file needs no server and no network. `fei.service.collect` runs methods and metrics; whoever has maps already
describes them with `Shown` and `Panel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fei.common.lazy import lazy
from fei.report.explorer.shown import Guess, Panel, Shown

if TYPE_CHECKING:
    from fei.report.explorer._html import PAGE, explorer_html, write_explorer
    from fei.report.explorer.notebook import Comparison

__all__ = ["PAGE", "Comparison", "Guess", "Panel", "Shown", "explorer_html", "write_explorer"]
__getattr__ = lazy(
    __name__, {"Comparison": "notebook", **dict.fromkeys(("PAGE", "explorer_html", "write_explorer"), "_html")}
)
