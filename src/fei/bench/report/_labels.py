"""Names beside points, where they cover neither points nor each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.transforms import Bbox

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = 6.5
_FAR = 9  # points from a mark to its name, from which on a thin line leads to it
_DISTANCES = (5, 8, 12, 17, 23, 30, 38, 47)
_ANGLES = (0, 180, 90, 270, 45, 315, 135, 225, 22, 338, 158, 202)
_MARK = 3.5  # half the side of a mark, in points


@dataclass(frozen=True)
class Point:
    """A point to be named: its panel, x and y each with the ends of their intervals, its name and colour."""

    axes: Axes
    x: tuple[float, float, float]
    y: tuple[float, float, float]
    name: str
    colour: Any


def place_labels(figure: Figure, points: Sequence[Point]) -> None:
    """Write a name beside each point, in the nearest place that is free.

    Args:
        figure: The figure, complete but for the names. Its layout is settled by this.
        points: The points; the first ones get the best places.
    """
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    figure.set_layout_engine("none")  # from here on nothing moves
    renderer, scale = canvas.get_renderer(), figure.dpi / 72
    taken: dict[Axes, list[Bbox]] = {}
    for point in points:
        taken.setdefault(point.axes, []).extend(_covered(point, scale))
    for point in points:
        text = point.axes.annotate(
            point.name,
            (point.x[0], point.y[0]),
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=_SIZE,
            color=point.colour,
            ha="center",
            va="center",
            parse_math=False,
        )
        width, height = text.get_window_extent(renderer).size
        dx, dy, box = _place(point, width, height, taken[point.axes], scale)
        text.set_position((dx / scale, dy / scale))
        taken[point.axes].append(box)
        gap = 1 - min(width / 2 / abs(dx) if dx else 1, height / 2 / abs(dy) if dy else 1, 1)
        if gap * math.hypot(dx, dy) > _FAR * scale:
            line = {"arrowstyle": "-", "linewidth": 0.4, "color": point.colour, "shrinkA": 0, "shrinkB": 2}
            end = (gap * dx / scale, gap * dy / scale)
            place = (point.x[0], point.y[0])
            point.axes.annotate("", place, xytext=end, textcoords="offset points", arrowprops=line)


def _covered(point: Point, scale: float) -> list[Bbox]:
    """What a point fills, in pixels: its mark and the lines of its intervals."""
    half, thin = _MARK * scale, 0.5 * scale
    (x, left, right), (y, low, high) = point.x, point.y
    corners = [point.axes.transData.transform(place) for place in ((x, y), (left, low), (right, high))]
    (px, py), (px0, py0), (px1, py1) = corners
    return [
        Bbox.from_extents(px - half, py - half, px + half, py + half),
        Bbox.from_extents(px0, py - thin, px1, py + thin),
        Bbox.from_extents(px - thin, py0, px + thin, py1),
    ]


def _place(point: Point, width: float, height: float, taken: Sequence[Bbox], scale: float) -> tuple[float, float, Bbox]:
    """The offset of a name's centre from its point, in pixels, and the box it fills."""
    px, py = point.axes.transData.transform((point.x[0], point.y[0]))
    frame = point.axes.get_window_extent()
    found: list[tuple[float, float, float, Bbox]] = []
    for distance in _DISTANCES:
        for degrees in _ANGLES:
            cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            dx = cosine * (distance * scale) + _sign(cosine) * width / 2
            dy = sine * (distance * scale) + _sign(sine) * height / 2
            box = Bbox.from_bounds(px + dx - width / 2, py + dy - height / 2, width, height)
            cost = sum(_overlap(box, other) for other in taken) + 4 * _outside(box, frame)
            if cost < 1e-6:
                return dx, dy, box
            found.append((cost, dx, dy, box))
    return min(found, key=lambda one: one[0])[1:]


def _sign(direction: float) -> float:
    return 0.0 if abs(direction) < 0.3 else math.copysign(1.0, direction)


def _overlap(one: Bbox, other: Bbox) -> float:
    width: float = min(one.x1, other.x1) - max(one.x0, other.x0)
    height: float = min(one.y1, other.y1) - max(one.y0, other.y0)
    return max(width, 0.0) * max(height, 0.0)


def _outside(box: Bbox, frame: Bbox) -> float:
    """How much of a name is beyond the panel."""
    return float(box.width * box.height) - _overlap(box, frame)
