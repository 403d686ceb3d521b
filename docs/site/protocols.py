"""The table of protocols, from what they declare."""

from __future__ import annotations

import re
from typing import Any

from fei.protocols import available, describe

_PLACE = re.compile(r"<!-- protocols:.*?-->")
_COLUMNS = {
    "id": "id",
    "levels": "points",
    "replacement": "replaced by",
    "score": "score",
    "area": "area",
    "order": "order",
}


def listed(markdown: str) -> str:
    """A page with the table where its comment asks for it."""
    if len(_PLACE.findall(markdown)) != 1:
        raise ValueError("docs/concepts/protocols.md has no single place for its table; write <!-- protocols: ... -->")
    return _PLACE.sub(lambda _: table(), markdown)


def table() -> str:
    """A row for each published protocol."""
    rows = [" | ".join(_word(describe(name)[column]) for column in _COLUMNS) for name in available()]
    head = [" | ".join(_COLUMNS.values()), "|".join("---" for _ in _COLUMNS)]
    return "\n".join(f"| {row} |" for row in head + rows)


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key} {_word(each)}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(f"`{each}`" for each in dict.fromkeys(value))
    text = re.sub(r"\d\.\d+(, \d\.\d+){7,}", lambda match: f"{match[0][:9]}, …, {match[0][-4:]}", str(value))
    return f"`{text}`"
