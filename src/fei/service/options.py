"""The options of methods as the command line takes them: NAME=VALUE, or METHOD.NAME=VALUE where methods differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fei.errors import InputError
from fei.methods import Entry, Option


def read_options(texts: Sequence[str], entries: Sequence[Entry]) -> dict[str, dict[str, Any]]:
    """The options of each method.

    Args:
        texts: What was given. Without a method's name, an option goes to every method that has it.
        entries: The methods.

    Raises:
        InputError: If a text is not of that form, or none of the methods has the option.
    """
    given: dict[str, dict[str, Any]] = {entry.name: {} for entry in entries}
    for text in texts:
        left, mark, value = text.partition("=")
        if not mark or not left.strip():
            raise InputError(f"The option '{text}' has no value; write NAME=VALUE, such as steps=50.")
        name, takers = _takers(left.strip(), entries)
        for entry in takers:
            option = next((o for o in entry.options if o.name == name), Option(name, "Any", None, ""))
            given[entry.name][name] = option.parse(value)
    return given


def _takers(left: str, entries: Sequence[Entry]) -> tuple[str, list[Entry]]:
    """The option's name, and the methods it goes to."""
    named = [entry for entry in entries if left.startswith(entry.name + ".")]
    if named:
        return left.removeprefix(named[0].name + "."), named[:1]  # what it does not have, it refuses itself
    takers = [entry for entry in entries if entry.family == "adapter" or left in {o.name for o in entry.options}]
    if takers:
        return left, takers
    if len(entries) == 1:
        return left, list(entries)
    raise InputError(f"None of the methods has an option '{left}'; see 'fei methods NAME'.")
