"""Every link inside the repository leads somewhere: to a file that there is, and to a heading in it."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md", "studies/*.md", "benchmarks/*.md", "reliability/*.md")
    for page in ROOT.glob(pattern)
)
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
CODE = re.compile(r"^ *```.*?^ *```|(?<!`)`[^`\n]+`(?!`)", re.DOTALL | re.MULTILINE)
LONG = 120  # lines from which on a page needs a table of contents


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    without_code = re.sub(r"^ *```.*?^ *```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#{1,6} +(.+?) *$", without_code, flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 0
        while (name := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(name)
    return found | set(re.findall(r'<a id="([^"]+)">', text_of(page)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    broken = []
    for link in LINK.findall(CODE.sub("", text_of(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_there_are_links_to_look_at():
    assert sum(len(LINK.findall(text_of(page))) for page in PAGES) > 50


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_long_pages_begin_with_their_contents(page):
    text = text_of(page)
    if len(text.splitlines()) > LONG:
        head = text.partition("\n## ")[0]
        missing = [
            heading
            for heading in re.findall(r"^## (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
            if f"[{heading}](#" not in head
        ]
        assert missing == []


def test_every_page_is_reached_from_the_readme():
    linked = set(LINK.findall(text_of(ROOT / "README.md")))
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= linked
