"""Parts of error sentences."""

from collections.abc import Sequence


def in_brief(error: BaseException) -> str:
    """An exception in a few words: its type, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def first_few(names: Sequence[str], most: int = 3) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "none"
