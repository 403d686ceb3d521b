"""Parts of sentences."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def in_brief(error: BaseException) -> str:
    """An exception in a few words: its type, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


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
