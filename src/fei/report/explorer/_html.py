"""The explorer as one HTML document."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fei.common.files import write_file
from fei.errors import InputError
from fei.report.explorer._payload import payload
from fei.report.explorer.shown import Shown
from fei.report.shell import Page, document

_TITLE = "FEI explorer"
PAGE = Page(
    name="explorer",
    brand=_TITLE,
    skip="Skip to the maps",
    help="On a touch screen: pinch to zoom, drag to pan, tap to read a pixel. With a mouse: Ctrl and wheel to zoom, or "
    "the wheel alone once a map was clicked.",
    scripts=(
        *("data.js", "state.js", "pictures.js", "charts.js"),
        *("maps.js", "scrubber.js", "inside.js", "tables.js", "input.js", "explorer.js"),
    ),
)


def explorer_html(shown: Shown | Sequence[Shown], *, title: str | None = None) -> str:
    """The explorer as one HTML document, styles, code and data inside.

    Args:
        shown: One image, or several.
        title: What the window is called; by default the names of the images.

    Raises:
        InputError: If there is nothing to show.

    Examples:
        >>> from fei.report.explorer import Panel, Shown, explorer_html
        >>> shown = Shown("noise", images[0], 0, "dark", [Panel("mine", maps[0, 0])], reference=torch.zeros(3, 1, 1))
        >>> explorer_html(shown).startswith("<!doctype html>")
        True
    """
    images = [shown] if isinstance(shown, Shown) else list(shown)
    if not images:
        raise InputError("There is nothing to explore; give at least one image.")
    return document(PAGE, title or _window_title(images), payload(images))


def write_explorer(path: str | os.PathLike[str], shown: Shown | Sequence[Shown], *, title: str | None = None) -> Path:
    """Write the explorer to a file, whole or not at all; arguments as for `explorer_html`.

    Raises:
        InputError: If there is nothing to show, or no such folder.
        DataError: If the disk refuses.

    Examples:
        >>> from fei.report.explorer import Panel, Shown, write_explorer
        >>> shown = Shown("noise", images[0], 0, "dark", [Panel("mine", maps[0, 0])], reference=torch.zeros(3, 1, 1))
        >>> write_explorer("mine.html", shown).name
        'mine.html'
    """
    return write_file(Path(path), explorer_html(shown, title=title), what="explorer")


def _window_title(images: Sequence[Shown]) -> str:
    names = ", ".join(image.name for image in images[:3])
    return f"{names}{' …' if len(images) > 3 else ''} · {_TITLE}"
