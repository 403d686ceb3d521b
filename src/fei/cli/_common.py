"""What all commands share: options, what goes to which stream, errors as one sentence, and exit codes."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from fei.common.words import printable
from fei.errors import FEIError, InputError

FAILURE, USAGE, INTERRUPTED = 1, 2, 130

_ANY_WIDTH = 10_000
_SPEC = re.compile(r"[A-Za-z_]{2,}:")  # one letter would be a Windows drive


def say(text: str = "", *, end: str = "\n") -> None:
    """Print text for a person on standard output; what a file says in it cannot command the terminal."""
    typer.echo(printable(text) + end, nl=False)


def note(text: str) -> None:
    """Print a side remark on standard error, see `say`."""
    typer.echo(printable(text), err=True)


def print_json(document: Any) -> None:
    """Print a document for a machine on standard output; JSON has no infinite numbers, which become null."""
    typer.echo(json.dumps(_finite(document), indent=2, allow_nan=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: bool = False) -> None:
    """Print a table: names at the left, and numbers flush right, or words that go on in the next line.

    Args:
        columns: Their titles.
        rows: What is in them.
        words: Whether the columns after the first hold words.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, pad_edge=False)
    for number, column in enumerate(columns):
        # what is typed as a name must not be broken over lines
        table.add_column(
            Text(printable(column)),
            no_wrap=not (words and number),
            overflow="fold",
            justify="left" if words or not number else "right",
            style="" if number else "bold",
        )
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console()
    if not words:  # a cut number would be a wrong one: rather past the edge, which a pipe does not have
        needed = console.measure(table, options=console.options.update(width=_ANY_WIDTH)).maximum
        console = Console(width=max(console.width, needed))
    console.print(table, crop=False)


def aside() -> contextlib.AbstractContextManager[Any]:
    """While this lasts, what a user's own network prints goes to standard error: it is not our result."""
    return contextlib.redirect_stdout(sys.stderr)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """While this lasts packages are imported and nothing is collected as garbage, nor is what they made afterwards."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
            gc.freeze()


def command_line(words: Sequence[str], options: Mapping[str, Any]) -> str:
    """The command that repeats a result; options without a value are left out."""
    given = [str(word) for name, value in options.items() if value is not None for word in (name, value)]
    return shlex.join(["fei", *words, *given])


def find_images(words: Sequence[str], sample: int | None, seed: int) -> list[Path]:
    """The image files that were named, in order, each once.

    A word that is no folder, pattern or data set is taken as a file, whether there is one or not: who reads it tells.

    Raises:
        InputError: If a data set is not there.
        DataError: If it cannot be used, or is empty.
    """
    from fei import data

    found: dict[Path, None] = {}
    for word in words:
        several = not Path(word).is_file() and (Path(word).is_dir() or "*" in word or _SPEC.match(word) is not None)
        if not several:
            found[Path(word)] = None
            continue
        dataset = data.load(word)
        for problem in dataset.problems:
            note(f"warning: {problem}")
        found |= dict.fromkeys(item.path for item in (dataset if sample is None else dataset.sample(sample, seed)))
    return list(found)


def sentence(error: BaseException) -> str:
    """An error as one line for the user."""
    usage = getattr(error, "format_message", None)  # what typer raises when the options themselves are wrong
    if usage is not None:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "fei"
        said = _one_line(usage())
        asks = said.endswith("?")
        return f"{said if asks else said.rstrip('.') + ';'} {'See' if asks else 'see'} '{command} --help'."
    if isinstance(error, FEIError):
        return _one_line(str(error))
    if isinstance(error, SystemExit):
        return "A network or a method ended the program before there was a result; have it raise an error instead."
    if isinstance(error, MemoryError):
        return "Memory ran out; take a smaller picture, fewer rows (--batch-size), or a machine with more memory."
    what = f"{type(error).__name__}: {_one_line(str(error))}" if str(error).strip() else type(error).__name__
    return f"unexpected {what.rstrip('.')}; run with --debug to see the traceback"


def exit_code(error: BaseException) -> int:
    """2 where the caller asked for something that cannot be, 1 where the thing itself failed."""
    return USAGE if isinstance(error, InputError) or hasattr(error, "format_message") else FAILURE


def complain(error: BaseException, *, debug: bool = False) -> None:
    """Print an error on standard error: one sentence, after its traceback where that was asked for."""
    if debug:
        note("".join(traceback.format_exception(error)).rstrip("\n"))
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    note(sentence(error))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _one_line(text: str) -> str:
    return " ".join(text.split())
