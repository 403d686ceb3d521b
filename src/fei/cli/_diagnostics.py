"""What the diagnostic commands share: a network and methods made ready, tables of numbers, files that appear whole."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

ModelOption = Annotated[str, typer.Option(metavar="SPEC", help="The network; see 'fei models'.")]
StepsOption = Annotated[
    int | None, typer.Option(min=1, help="Optimisation steps; the preset's if not given.", show_default=False)
]
PresetOption = Annotated[
    str | None,
    typer.Option(help="Settings of an optimisation method: paper or fast.", metavar="NAME", show_default=False),
]
DeviceOption = Annotated[
    str, typer.Option(metavar="NAME", help="cpu, cuda, mps, or auto: CUDA where there is one, else the CPU.")
]
BatchSizeOption = Annotated[
    int | None, typer.Option(min=1, help="Rows in one forward pass; fewer need less memory.", show_default=False)
]


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of names and numbers, the numbers flush right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=True, justify="right" if number else "left", style="" if number else "bold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console()
    # in a pipe there is no edge to keep to; a cut number would be a wrong one
    console.print(table, width=max(console.width, console.measure(table).maximum), crop=False)


def versions() -> dict[str, str]:
    """What a number depends on."""
    import torch

    from fei import __version__

    return {"fei": __version__, "torch": str(torch.__version__), "python": platform.python_version()}


def command_line(words: Sequence[str], options: Mapping[str, Any]) -> str:
    """The command that repeats a result; options without a value are left out."""
    given = [str(word) for name, value in options.items() if value is not None for word in (name, value)]
    return shlex.join(["fei", *words, *given])
