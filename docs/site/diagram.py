"""Flow charts of the pages as pictures: the little of mermaid's language that they use, drawn without a browser.

Material would load mermaid from elsewhere, and the site loads nothing from elsewhere.
"""

from __future__ import annotations

import html
import re
from typing import Any, NamedTuple

_EDGE = re.compile(r"^\s*(\w+)(?:\[([^\]]+)\])?\s*--(?:\s*\"([^\"]+)\"\s*--)?>\s*(\w+)(?:\[([^\]]+)\])?\s*$")
_BOX, _STEP = (150, 34), (235, 72)  # the size of a box, and how far it is from one to the next


class Edge(NamedTuple):
    start: str
    end: str
    label: str


def drawn(source: str, *_: Any, **__: Any) -> str:
    """A fence of superfences as an SVG picture: boxes in rows, each below all that lead to it."""
    names, edges = _read(source)
    places = _places(names, edges)
    width = max(x for x, _ in places.values()) + _BOX[0] + 60
    height = max(y for _, y in places.values()) + _BOX[1] + 8
    parts = [_arrow(edge, places) for edge in edges]
    parts += [_box(names[name], place) for name, place in places.items()]
    parts += [_label(edge, places) for edge in edges if edge.label]
    marker = (
        '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="currentColor"/></marker>'
    )
    words = ", ".join(f"{names[edge.start]} to {names[edge.end]}" for edge in edges)
    return (
        f'<div class="diagram"><svg viewBox="-8 -8 {width + 8} {height + 8}" role="img" '
        f'aria-label="{html.escape(words)}"><defs>{marker}</defs>{"".join(parts)}</svg></div>'
    )


def _read(source: str) -> tuple[dict[str, str], list[Edge]]:
    names: dict[str, str] = {}
    edges = []
    for line in source.strip().splitlines()[1:]:
        if not (match := _EDGE.match(line)):
            raise ValueError(
                f"docs/site/diagram.py cannot draw {line.strip()!r}; write 'a --> b' or 'a -- \"x\" --> b'."
            )
        start, start_title, label, end, end_title = match.groups()
        for name, title in ((start, start_title), (end, end_title)):
            names[name] = title or names.get(name, name)
        edges.append(Edge(start, end, label or ""))
    return names, edges


def _places(names: dict[str, str], edges: list[Edge]) -> dict[str, tuple[float, float]]:
    """The left upper corner of each box. No box stands in the column that an arrow past its row comes down."""
    rank = dict.fromkeys(names, 0)
    for _ in names:  # as often as the longest way can be long
        for edge in edges:
            rank[edge.end] = max(rank[edge.end], rank[edge.start] + 1)
    for name in names.keys() - {edge.end for edge in edges}:  # what nothing leads to stands where it is used
        rank[name] = min(rank[edge.end] for edge in edges if edge.start == name) - 1
    column: dict[str, int] = {}
    taken: set[tuple[int, int]] = set()
    for name in sorted(names, key=lambda name: rank[name]):
        column[name] = next(number for number in range(len(names)) if (rank[name], number) not in taken)
        last = max((rank[edge.end] for edge in edges if edge.start == name), default=rank[name] + 1)
        taken |= {(row, column[name]) for row in range(rank[name], last)}
    return {name: (column[name] * _STEP[0], rank[name] * _STEP[1]) for name in names}


def _ends(edge: Edge, places: dict[str, tuple[float, float]]) -> tuple[float, float, float, float]:
    (x, y), (u, v) = places[edge.start], places[edge.end]
    return x + _BOX[0] / 2, y + _BOX[1], u + _BOX[0] / 2, v


def _arrow(edge: Edge, places: dict[str, tuple[float, float]]) -> str:
    x, y, u, v = _ends(edge, places)
    bend = _STEP[1] / 2  # near its ends, so that it comes down its own column
    return (
        f'<path d="M{x} {y}L{x} {v - 2 * bend + _BOX[1] / 2}C{x} {v - bend / 2} {u} {v - bend} {u} {v}" fill="none" '
        'stroke="currentColor" stroke-opacity=".5" marker-end="url(#tip)"/>'
    )


def _box(title: str, place: tuple[float, float]) -> str:
    x, y = place
    return (
        f'<rect x="{x}" y="{y}" width="{_BOX[0]}" height="{_BOX[1]}" rx="6" fill="var(--md-code-bg-color)" '
        f'stroke="currentColor" stroke-opacity=".4"/><text x="{x + _BOX[0] / 2}" y="{y + 22}" text-anchor="middle" '
        f'font-size="14" fill="currentColor">{html.escape(title)}</text>'
    )


def _label(edge: Edge, places: dict[str, tuple[float, float]]) -> str:
    x, y, u, v = _ends(edge, places)
    height = (y + v) / 2 + 4 if x == u else y + 18  # beside a straight arrow; below the box that a bent one leaves
    return (
        f'<text x="{x + 8}" y="{height}" font-size="12" fill="currentColor" paint-order="stroke" '
        f'stroke="var(--md-default-bg-color)" stroke-width="4">{html.escape(edge.label)}</text>'
    )
