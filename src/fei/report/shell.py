"""Pages that are one file: styles, code and data inside, and a policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COMMON = ("unpack.js", "elements.js", "shell.js")


@dataclass(frozen=True)
class Page:
    """A kind of page.

    Attributes:
        name: Of its body (.html) and its styles (.css) in the folder `page`.
        brand: What stands on top of it.
        skip: The button that leads keyboards past the head.
        help: What stands under the list of keys.
        scripts: Its code, in this order, after what all pages share.
        above: Name of a further body and further styles, which come before its own body.
        start: The function of its code that begins it.
        sources: What it may load, for its content security policy; by default nothing from anywhere.
    """

    name: str
    brand: str
    skip: str
    help: str
    scripts: tuple[str, ...]
    above: str | None = None
    start: str = "start"
    sources: str = "img-src data: blob:"


def document(page: Page, title: str, payload: dict[str, Any]) -> str:
    """The page as one HTML document.

    Args:
        page: What kind.
        title: What the window is called.
        payload: Plain data, which the page's code reads.
    """
    # "<" cannot end the script element that way, whatever a file is called
    data = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    shell, body, style, script = _parts(page)
    blanks = {
        "policy": policy(page),
        "title": html.escape(title),
        "style": style,
        "script": script,
        "body": body,
        "brand": page.brand,
        "skip": page.skip,
        "help": page.help,
        "data": data,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda blank: blanks[blank[1]], shell)  # once: what is filled in is not read again


def packed(values: NDArray[Any]) -> str:
    """An array as base64 of its deflated bytes: all first bytes, then all second bytes, and so on, little end first.

    Bytes of like meaning are alike, so that they compress better side by side.
    """
    little = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
    planes = little.view(np.uint8).reshape(-1, little.itemsize).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode()


@cache
def _parts(page: Page) -> tuple[str, str, str, str]:
    """The shell with its blanks, and the page's body, styles and code."""
    folder = files("fei.report") / "page"

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    names = [name for name in (page.above, page.name) if name is not None]
    code = "\n".join(text(name) for name in (*_COMMON, *page.scripts))
    style = "".join(text(f"{name}.css") for name in ("common", *reversed(names)))
    body = "\n".join(text(f"{name}.html") for name in names)
    return text("shell.html"), body, style, f'"use strict";\n(() => {{\n{code}\nbegin({page.start});\n}})();\n'


@cache
def policy(page: Page) -> str:
    """The content security policy of a page: nothing is loaded from elsewhere, and no other code or style runs."""

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    _, _, style, script = _parts(page)
    return (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; {page.sources}; "
        "base-uri 'none'; form-action 'none'"
    )
