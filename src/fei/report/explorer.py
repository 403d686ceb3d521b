"""The explorer: one HTML file that shows what methods found, what it does to the network, and how to repeat it.

    from fei.report.explorer import collect, write_explorer

    shown = collect(classifier, ["cat.jpg"], ["gradcam", "fei-vm", "fei-none"])
    write_explorer("explorer.html", shown)

The file needs no server and no network. `collect` runs methods and metrics; whoever has maps already describes them
with `Shown` and `Panel`.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from fei.errors import DataError, InputError
from fei.report._explorer_collect import collect
from fei.report._explorer_notebook import Comparison
from fei.report._explorer_payload import payload
from fei.report._explorer_shown import Guess, Panel, Shown

__all__ = ["Comparison", "Guess", "Panel", "Shown", "collect", "explorer_html", "write_explorer"]

_SCRIPTS = (
    *("data.js", "state.js", "pictures.js", "charts.js"),
    *("maps.js", "scrubber.js", "inside.js", "tables.js", "input.js", "explorer.js"),
)
_TITLE = "FEI explorer"


def explorer_html(shown: Shown | Sequence[Shown], *, title: str | None = None) -> str:
    """The explorer as one HTML document, styles, code and data inside.

    Args:
        shown: One image, or several.
        title: What the window is called; by default the names of the images.

    Raises:
        InputError: If there is nothing to show.
    """
    images = [shown] if isinstance(shown, Shown) else list(shown)
    if not images:
        raise InputError("There is nothing to explore; give at least one image.")
    # "<" cannot end the script element that way, whatever a file is called
    data = json.dumps(payload(images), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    data = data.replace("<", "\\u003c")
    page, style, script = _page()
    blanks = {
        "policy": _policy(style, script),
        "title": html.escape(title or _window_title(images)),
        "style": style,
        "script": script,
        "data": data,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda blank: blanks[blank[1]], page)  # once: what is filled in is not read again


def write_explorer(path: str | os.PathLike[str], shown: Shown | Sequence[Shown], *, title: str | None = None) -> Path:
    """Write the explorer to a file, whole or not at all; arguments as for `explorer_html`.

    Raises:
        InputError: If there is nothing to show, or no such folder.
        DataError: If the disk refuses.
    """
    file = Path(path)
    if not file.parent.is_dir():
        raise InputError(f"The folder '{file.parent}' for the explorer does not exist; make it first.")
    text = explorer_html(shown, title=title)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, file)
    except OSError as error:
        raise DataError(
            f"The explorer cannot be written to '{file}' ({error.strerror or error}); choose another place."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return file


@cache
def _page() -> tuple[str, str, str]:
    """The page with its blanks, its styles and its code."""
    folder = files("fei.report") / "page"

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    body = "\n".join(text(name) for name in _SCRIPTS)
    return text("explorer.html"), text("explorer.css"), f'"use strict";\n(() => {{\n{body}\n}})();\n'


def _policy(style: str, script: str) -> str:
    """Nothing is loaded from anywhere, and no code and no style runs but the page's own."""

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _window_title(images: Sequence[Shown]) -> str:
    names = ", ".join(image.name for image in images[:3])
    return f"{names}{' …' if len(images) > 3 else ''} · {_TITLE}"
