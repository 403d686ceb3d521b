"""What all commands share: what goes to which stream, errors as one sentence, and exit codes."""

from __future__ import annotations

import json
import sys
import traceback
from typing import Annotated, Any

import typer

from fei.errors import FEIError, InputError

FAILURE, USAGE, INTERRUPTED = 1, 2, 130

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
# Declared by each command so that it is accepted after it; `run` is who reads it.
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
SeedOption = Annotated[int, typer.Option(help="Seed of whatever is random: the same seed gives the same result.")]
OutOption = Annotated[str, typer.Option(metavar="DIR", help="Folder for the results; made if it is not there.")]
HtmlOption = Annotated[
    bool, typer.Option("--html", help="Write explorer.html as well: one page to look into it all, without a server.")
]

MethodOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="An option of the method, see 'fei methods NAME'; METHOD.NAME=VALUE for one of several methods.",
        show_default=False,
    ),
]


def say(text: str = "") -> None:
    """Print text for a person on standard output."""
    typer.echo(text)


def note(text: str) -> None:
    """Print a side remark on standard error."""
    typer.echo(text, err=True)


def print_json(document: Any) -> None:
    """Print a document for a machine on standard output."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False))


def sentence(error: BaseException) -> str:
    """An error as one line for the user."""
    usage = getattr(error, "format_message", None)  # what typer raises when the options themselves are wrong
    if usage is not None:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "fei"
        return f"{_one_line(usage()).rstrip('.')}; see '{command} --help'."
    if isinstance(error, FEIError):
        return _one_line(str(error))
    what = f"{type(error).__name__}: {_one_line(str(error))}" if str(error).strip() else type(error).__name__
    return f"unexpected {what.rstrip('.')}; run with --debug to see the traceback"


def exit_code(error: BaseException) -> int:
    """2 where the caller asked for something that cannot be, 1 where the thing itself failed."""
    return USAGE if isinstance(error, InputError) or hasattr(error, "format_message") else FAILURE


def complain(error: BaseException, *, debug: bool = False) -> None:
    """Print an error on standard error: one sentence, after its traceback where that was asked for."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    note(sentence(error))


def _one_line(text: str) -> str:
    return " ".join(text.split())
