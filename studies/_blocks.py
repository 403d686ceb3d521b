"""Parts of a page that scripts write, between comments such as ``<!-- begin trial -->`` and ``<!-- end trial -->``."""

from __future__ import annotations

from collections.abc import Callable, Mapping


def written(page: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """A page with each block as its function makes it."""
    for name, make in blocks.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{make()}\n{end}{rest.partition(end)[2]}"
    return page


def are_marked(page: str, blocks: Mapping[str, Callable[[], str]]) -> bool:
    """Whether the page has a place for each block, and one alone."""
    return all(page.count(f"<!-- {mark} {name} -->") == 1 for name in blocks for mark in ("begin", "end"))
