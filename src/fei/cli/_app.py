"""The commands together, and how one is run."""

from __future__ import annotations

import functools
import importlib
import io
import itertools
import os
import sys
import warnings
from typing import Annotated, Any

import typer

import fei
from fei.cli import _options as opt
from fei.cli import bench
from fei.cli._bench_drive import Interrupted, print_line
from fei.cli._common import INTERRUPTED, complain, exit_code, note, sentence
from fei.cli.audit import audit
from fei.cli.black_image import black_image
from fei.cli.compare import compare
from fei.cli.explain import demo, explain
from fei.cli.figure import figure
from fei.cli.finetune import finetune
from fei.cli.listing import methods, models
from fei.cli.reproduce import reproduce
from fei.cli.sanity import sanity
from fei.cli.serve import serve
from fei.cli.trust import trust
from fei.common.consent import remembering

app = typer.Typer(
    name="fei",
    help="FEI: attribution maps that keep a network's computational pathway.",
    epilog="Start with: fei demo",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
for _command in (
    *(demo, explain, compare, audit, trust, black_image, sanity),
    *(finetune, figure, reproduce, serve, models, methods),
):
    app.command()(_command)
app.add_typer(bench.app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fei {fei.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, opt.flag("--version", "Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(words: list[str]) -> int:
    """Run a command; whatever goes wrong is told in one sentence.

    Args:
        words: The command with its arguments.

    Returns:
        The exit code.
    """
    options = set(itertools.takewhile(lambda word: word != "--", words))
    as_json, debug = "--json" in options, "--debug" in options
    how = "Interrupted."
    _pass_over_settings_here()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a path or a label may hold what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings(), remembering():
        if not debug:
            warnings.showwarning = _show_warning
        try:
            code = _commands()(args=words, prog_name="fei", standalone_mode=False) or 0
        except (KeyboardInterrupt, typer.Abort, Interrupted) as error:
            code, how = INTERRUPTED, str(error) if isinstance(error, Interrupted) else how
        except (Exception, SystemExit) as error:  # the latter is what a network does, not what a command does
            if any(isinstance(cause, BrokenPipeError) for cause in (error, error.__context__)):
                return _unread()
            complain(error, debug=debug)
            if as_json:
                print_line({"error": sentence(error)})
            return exit_code(error)
    if code == INTERRUPTED:  # typer itself may have turned the interrupt into this code
        note(how)
        if as_json:
            print_line({"error": how})
    return int(code)


def _pass_over_settings_here() -> None:
    """Have matplotlib not read the settings that lie in this folder: a stranger's can have it run TeX."""
    if "matplotlib" not in sys.modules and os.path.lexists("matplotlibrc"):
        here = os.getcwd()
        os.chdir(os.path.dirname(fei.__file__))
        try:
            importlib.import_module("matplotlib")  # which reads them once
        finally:
            os.chdir(here)


@functools.cache
def _commands() -> Any:
    """The commands with their options: to read these from the signatures takes longer than many a command."""
    return typer.main.get_command(app)


def _unread() -> int:
    """Nobody reads on, as in `fei methods | head`: nothing more is written, not even when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    note(f"warning: {' '.join(str(message).split())}")
