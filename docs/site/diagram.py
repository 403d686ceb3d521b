"""Flow charts of the pages as pictures: the little of mermaid's language that they use, drawn without a browser.

Material would load mermaid from elsewhere, and the site loads nothing from elsewhere.
"""

from __future__ import annotations

import html
import re
from typing import Any, NamedTuple

_EDGE = re.compile(r"^\s*(\w+)(?:\[([^\]]+)\])?\s*--(?:\s*\"([^\"]+)\"\s*--)?>\s*(\w+)(?:\[([^\]]+)\])?\s*$")
_BOX, _GAP, _HEIGHT = (130, 34), (64, 22), 20


class Edge(NamedTuple):
    start: str
    end: str
    label: str


def drawn(source: str, *_: Any, **__: Any) -> str:
    """A fence of superfences as an SVG picture: boxes in columns, each to the right of all that lead to it."""
    names, edges = _read(source)
    places = _places(names, edges)
    width = max(x for x, _ in places.values()) + _BOX[0] + 8
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
    column = dict.fromkeys(names, 0)
    for _ in names:  # as often as the longest way can be long
        for edge in edges:
            column[edge.end] = max(column[edge.end], column[edge.start] + 1)
    columns: dict[int, list[str]] = {}
    for name in names:
        columns.setdefault(column[name], []).append(name)
    tallest = max(len(members) for members in columns.values())
    places = {}
    for number, members in columns.items():
        for row, name in enumerate(members):
            # single boxes go up and down in turns, so that an arrow past one does not run through it
            free = (tallest - len(members)) / 2 + (0.5 if len(members) == 1 and number % 2 else 0)
            places[name] = (number * (_BOX[0] + _GAP[0]), (row + free) * (_BOX[1] + _GAP[1] + _HEIGHT))
    return places


def _ends(edge: Edge, places: dict[str, tuple[float, float]]) -> tuple[float, float, float, float]:
    (x, y), (u, v) = places[edge.start], places[edge.end]
    return x + _BOX[0], y + _BOX[1] / 2, u, v + _BOX[1] / 2


def _arrow(edge: Edge, places: dict[str, tuple[float, float]]) -> str:
    x, y, u, v = _ends(edge, places)
    bend = (u - x) / 2
    return (
        f'<path d="M{x} {y}C{x + bend} {y} {u - bend} {v} {u} {v}" fill="none" stroke="currentColor" '
        'stroke-opacity=".5" marker-end="url(#tip)"/>'
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
    return (
        f'<text x="{(x + u) / 2}" y="{(y + v) / 2 - 5}" text-anchor="middle" font-size="11" fill="currentColor" '
        f'paint-order="stroke" stroke="var(--md-default-bg-color)" stroke-width="4">{html.escape(edge.label)}</text>'
    )
