"""One page about one explanation: the photograph, the map on it, what it claims, and what was checked."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from fei.report.drawing import bare, place, scale, shortened, show_whole
from fei.report.whole import Whole

_WIDTH, _HEIGHT, _MARGIN, _PICTURES = 8.27, 11.69, 0.6, 3.6  # A4, in inches
_INK, _FAINT, _GOOD, _BAD = "#1a1a1a", "#6b6b6b", "#1b7837", "#b2182b"
_LETTERS, _LINE, _NAMES = 96, 0.165, 1.25
_LONGEST = 900  # pixels of the photograph's longer side


@dataclass(frozen=True)
class Check:
    """Something that was looked at.

    Attributes:
        what: What should be so, in a few words.
        passed: Whether it is; ``None`` where nobody looked.
        found: What was seen.
    """

    what: str
    passed: bool | None
    found: str


def sheet(
    photograph: Image.Image,
    box: Sequence[float],
    attribution: NDArray[Any],
    *,
    headline: str,
    claim: str,
    checks: Sequence[Check],
    facts: Mapping[str, str],
    unit: str,
    span: tuple[float, float] | None = None,
) -> Figure:
    """A page to print.

    Args:
        photograph: All of it.
        box: What of it the network saw, (left, top, right, bottom) in its pixels.
        attribution: The map of that part.
        headline: What was explained.
        claim: What the map says, in a sentence with numbers.
        checks: What was looked at.
        facts: How it was made, in order.
        unit: What the map's values are.
        span: The ends of the map's scale, if not its own.
    """
    small = photograph.convert("RGB")
    small.thumbnail((_LONGEST, _LONGEST))
    shrunk = small.width / photograph.width
    part = [value * shrunk for value in box]
    page = Figure(figsize=(_WIDTH, _HEIGHT), facecolor="white")
    cell = (_WIDTH - 2 * _MARGIN - 0.7) / 2
    high = min(_PICTURES, cell * small.height / small.width)
    bottom = _HEIGHT - _MARGIN - 0.75 - high

    def axes(left: float, width: float) -> Any:
        return page.add_axes((left / _WIDTH, bottom / _HEIGHT, width / _WIDTH, high / _HEIGHT))

    both = [axes(_MARGIN, cell), axes(_MARGIN + cell + 0.15, cell)]
    for picture, axis, name in zip(
        (small, place(small, part, attribution, span=span)), both, ("the photograph", "the map on it"), strict=True
    ):
        show_whole(axis, Whole(Image.fromarray(np.asarray(picture)), part))
        bare(axis)
        axis.set_xlabel(f"{name}; framed: what the network saw", fontsize=7.5, color=_FAINT, labelpad=4)
    bar = page.colorbar(scale(attribution, span), cax=axes(_MARGIN + 2 * cell + 0.27, 0.09))
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, length=2, labelcolor=_FAINT)
    bar.set_label(unit, fontsize=7, color=_FAINT)

    y = _HEIGHT - _MARGIN
    y = _write(page, y, [shortened(headline, 80)], size=13, weight="bold", colour=_INK)
    y = _write(page, bottom - 0.42, textwrap.wrap(claim, _LETTERS), size=10, weight="bold", colour=_INK) - 0.12
    for check in checks:
        word, colour = {True: ("passed", _GOOD), False: ("failed", _BAD), None: ("not run", _FAINT)}[check.passed]
        _write(page, y, [word], size=9, weight="bold", colour=colour)
        lines = textwrap.wrap(f"{check.what}: {check.found}", _LETTERS - 12)
        y = _write(page, y, lines, size=9, colour=_INK, indent=_NAMES)
    y -= 0.12
    for name, value in facts.items():
        _write(page, y, [name], size=7.5, colour=_FAINT)
        lines = textwrap.wrap(value, _LETTERS + 10, break_long_words=True) or [""]
        y = _write(page, y, lines, size=7.5, colour=_INK, indent=_NAMES)
    return page


def pdf_bytes(page: Figure) -> bytes:
    """A page as the bytes of a PDF, the same for the same page."""
    file = io.BytesIO()
    page.savefig(file, format="pdf", metadata={"CreationDate": None, "Creator": "fei", "Producer": None})
    return file.getvalue()


def _write(
    page: Figure,
    y: float,
    lines: Sequence[str],
    *,
    size: float,
    colour: str,
    weight: str = "normal",
    indent: float = 0.0,
) -> float:
    """Write lines below each other from a height on, in inches; the height below them."""
    for line in lines:
        place_x, place_y = (_MARGIN + indent) / _WIDTH, y / _HEIGHT
        # a class may be called anything: no mathematics in it
        page.text(place_x, place_y, line, va="top", fontsize=size, color=colour, fontweight=weight, parse_math=False)
        y -= max(_LINE, size / 72 * 1.3)
    return y
