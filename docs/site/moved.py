"""Pages of the repository that are not in docs/, and links to what is not: where they are on the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

# What becomes a page: the file, or a section of it, and where the page is on the site.
PAGES = {
    "README.md#Install": "start/install.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "examples/README.md": "project/examples.md",
    "examples/own_method/README.md": "project/template.md",
    "studies/README.md": "project/studies.md",
}
NOTEBOOKS = {
    "examples/first_map.ipynb": "start/first-map.md",
    "examples/own_network.ipynb": "start/own-network.md",
    "examples/explain.ipynb": "guides/compare.md",
}
_PLACES = PAGES | NOTEBOOKS | {"README.md": "index.md"}
_SECTIONS = {"README.md#install": "start/install.md"}
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_CODE = re.compile(r"(^ *```.*?^ *```|(?<!`)`[^`\n]+`(?!`))", re.DOTALL | re.MULTILINE)


class Moved:
    """Texts with their links led to where things are on the site; what they need besides pages is noted.

    Args:
        root: The repository.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.needed: set[str] = set()

    def page(self, source: str, uri: str) -> str:
        """A page of the repository as one of the site."""
        file, _, section = source.partition("#")
        text = (self.root / file).read_text(encoding="utf-8")
        return self.links(_section(text, section) if section else text, file, uri)

    def links(self, text: str, source: str, uri: str) -> str:
        """A text that is at `source` in the repository, as it is written at `uri` of the site."""
        parts = _CODE.split(text)
        parts[::2] = [
            _LINK.sub(lambda match: match[1] + self._target(match[2], match[3] or "", source, uri) + match[4], part)
            for part in parts[::2]
        ]
        return "".join(parts)

    def _target(self, link: str, anchor: str, source: str, uri: str) -> str:
        if re.match(r"[a-z]+:", link):
            return link + anchor
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        if path.startswith("docs/"):
            place = path.removeprefix("docs/")
        elif f"{path}{anchor}" in _SECTIONS:
            place, anchor = _SECTIONS[f"{path}{anchor}"], ""
        elif path in _PLACES:
            place = _PLACES[path]
        else:
            self.needed.add(path)
            place = f"source/{path}"
        return posixpath.relpath(place, posixpath.dirname(uri) or ".") + anchor


def _section(text: str, heading: str) -> str:
    """One section of a page, as a page."""
    (found,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return f"# {heading}\n{found}"
