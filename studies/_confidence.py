"""Scores against the network's probability for the whole photograph: who exceeds it, and who leads where it is low."""

from __future__ import annotations

from collections.abc import Mapping

from scipy.stats import spearmanr
from studies._hypotheses import CONSTRAINED

from fei.bench.store import Store
from fei.common.words import in_markdown

_PLANS = ("twenty", "resnet50")
_AGAINST = "Grad-CAM"
_INSERTION = """
    SELECT pair, method, item, probability, avg(value) FROM results
    WHERE kind = 'map' AND metric = 'insertion' GROUP BY pair_index, method_index, item"""

Insertions = dict[str, dict[str, dict[str, tuple[float, float]]]]
"""By network, method and photograph: the probability of the explained class, and the insertion."""


def insertions(stores: Mapping[str, Store]) -> Insertions:
    """The numbers of all methods on the four networks."""
    found: Insertions = {}
    for plan in _PLANS:
        for pair, method, item, probability, value in stores[plan].rows(_INSERTION) if plan in stores else ():
            found.setdefault(pair, {}).setdefault(method, {})[item] = (probability, value)
    return found


def overshoot_table(found: Insertions) -> str:
    """On how many photographs a method's insertion exceeds the network's probability for the whole photograph."""
    lines = _head(found)
    for method in next(iter(found.values()), {}):
        rows = [each.get(method, {}).values() for each in found.values()]
        above = [sum(value > probability for probability, value in row) for row in rows]
        if any(above):
            cells = [f"{count} of {len(row)}" for count, row in zip(above, rows, strict=True)]
            lines.append(f"| {in_markdown(method)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def lead_table(found: Insertions) -> str:
    """Rank correlation of the probability with the lead in insertion over Grad-CAM."""
    lines = _head(found)
    for method in (f"FEI-{variant}" for variant in (*CONSTRAINED, "NONE")):
        cells = []
        for each in found.values():
            ours, others = each.get(method, {}), each.get(_AGAINST, {})
            both = [(ours[item][0], ours[item][1] - others[item][1]) for item in ours if item in others]
            cells.append(f"{spearmanr(both).statistic:+.2f}" if len(both) > 2 else "–")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _head(found: Insertions) -> list[str]:
    return [f"| method | {' | '.join(found)} |", "| :-- |" + " --: |" * len(found)]
