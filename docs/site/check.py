"""Follow every link of the built site, and see that nothing is loaded from elsewhere.

python docs/site/check.py build/site
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
}
# Links in the head that a browser does not load.
NOT_LOADED = {"canonical", "next", "prev", "alternate"}
IN_STYLE = re.compile(r"url\(\s*['\"]?(?!data:)([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Page(HTMLParser):
    """What a page leads to, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self._style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag says."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self._style = tag == "style"
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and not NOT_LOADED & set(given.get("rel", "").split()):
            self.loads.append(given.get("href", ""))
        elif given.get(LOADED.get(tag, "")):
            self.loads.append(given[LOADED[tag]])
        self.loads += [found for found in _in_style(given.get("style", "")) if found]

    def handle_data(self, data: str) -> None:
        """Note what a style sheet in the page loads."""
        if self._style:
            self.loads += _in_style(data)


def _in_style(text: str) -> list[str]:
    return [first or second for first, second in IN_STYLE.findall(text)]


def problems(site: Path) -> Iterator[str]:
    """A sentence for each link that leads nowhere and for each thing that is loaded from elsewhere."""
    pages = {file.resolve(): Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}
    for file, page in pages.items():
        here = file.relative_to(site.resolve())
        for target in page.loads:
            if urlsplit(target).scheme not in ("", "data") or urlsplit(target).netloc:
                yield f"{here} loads {target}"
        for target in page.links + page.loads:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            top = site if parts.path.startswith("/") else file.parent
            found = (top / unquote(parts.path).lstrip("/")).resolve() if parts.path else file
            found = found / "index.html" if found.is_dir() else found
            if not found.exists():
                yield f"{here} leads to {target}, which does not exist"
            elif parts.fragment and found in pages and unquote(parts.fragment) not in pages[found].anchors:
                yield f"{here} leads to {target}, where there is no such anchor"
    for sheet in sorted(site.rglob("*.css")):
        for target in _in_style(sheet.read_text(encoding="utf-8")):
            if urlsplit(target).scheme or urlsplit(target).netloc:
                yield f"{sheet.relative_to(site)} loads {target}"


def main(site: Path) -> int:
    """Say what is wrong; how many things are."""
    found = list(problems(site))
    for problem in found:
        print(problem, file=sys.stderr)
    pages = [Page(file.read_text(encoding="utf-8")) for file in site.rglob("*.html")]
    if not found:
        print(f"{len(pages)} pages, {sum(len(page.links) for page in pages)} links: all lead somewhere")
    return min(1, len(found) or (not pages))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
