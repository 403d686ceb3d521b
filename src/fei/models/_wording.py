"""Parts of error sentences."""

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


def did_you_mean(wrong: str, names: Iterable[str], *, most: int = 3, template: str = "{}") -> str:
    """The names that are spelled nearly so, as "; did you mean …?"; empty if there are none."""
    spelled = {name.casefold(): name for name in names}
    close = [template.format(spelled[name]) for name in difflib.get_close_matches(wrong.casefold(), spelled, n=most)]
    return f" (did you mean {' or '.join(close)}?)" if close else ""
