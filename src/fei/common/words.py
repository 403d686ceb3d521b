"""Parts of sentences, and texts that programs would take for more than that."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

_MARKS = re.compile(r"([\\`*_{}\[\]<>|#~])")
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")


def in_brief(error: BaseException) -> str:
    """An exception in a few words: its type, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def printable(text: str) -> str:
    """Text that a terminal shows and does not obey: but for line ends and tabs, all is escaped that is no sign."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or sign in "\n\t" else sign.encode("unicode_escape").decode() for sign in text
    )


def in_markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _MARKS.sub(r"\\\1", printable(" ".join(text.split())))


def spreadsheet_cell(text: str) -> str:
    """A text as a cell of a CSV file that is no formula to a spreadsheet; `from_spreadsheet_cell` undoes it."""
    return f"'{text}" if _FORMULA.match(text) else text


def from_spreadsheet_cell(text: str) -> str:
    """The text of which `spreadsheet_cell` made a cell."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def first_few(names: Sequence[str], most: int = 3) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "none"


def suggestion(wrong: str, names: Iterable[str], otherwise: str = "", *, most: int = 3, cutoff: float = 0.6) -> str:
    """What to say about a name that does not exist: "did you mean a or b?", or something else.

    Args:
        wrong: The name that was given.
        names: The names that exist.
        otherwise: What to say if no name is similar; without it, all names are listed.
        most: How many names to suggest.
        cutoff: How similar they must be, see `difflib.get_close_matches`.
    """
    spelled = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(wrong.casefold(), spelled, n=most, cutoff=cutoff)
    if close:
        return f"did you mean {' or '.join(spelled[name] for name in close)}?"
    return otherwise or f"choose one of {', '.join(spelled.values())}"
