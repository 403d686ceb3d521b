"""Parts that several pages of the results have."""

from __future__ import annotations

from collections.abc import Iterator

from studies._figures import CAPTIONS, pictures
from studies._sections import Found, claim_section, later

FIRST = "## The first edition\n"


def claims(found: Found, *names: str) -> Iterator[str]:
    """Claims or questions, one after the other."""
    for name in names:
        yield claim_section(found, name)


def second(found: Found, block: str) -> Iterator[str]:
    """The heading of the second edition, and its words where they are written."""
    yield "## The second edition\n"
    yield later(found.prose, block)


def show(found: Found, name: str, text: str = "") -> Iterator[str]:
    """A figure, where it was drawn."""
    text = text or CAPTIONS[name]
    if name in pictures(found.study):
        yield f"![{text}](images/results-{name}.png)\n\n{text}\n"
