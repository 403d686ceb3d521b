"""``fei models`` and ``fei methods``: what there is to choose from."""

from __future__ import annotations

from fei.cli._common import DebugOption, JsonOption, print_json, say


def models(as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """List the networks that --model takes."""
    from fei.models import available

    if as_json:
        print_json({"models": available()})
        return
    _print_table(["model"], [[form] for form in available()])
    say("Try one:  fei explain photo.jpg --model " + available()[0])


def methods(as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """List the attribution methods that --method takes."""
    from fei.methods import available, describe

    entries = [describe(name) for name in available()]
    if as_json:
        keys = ("name", "family", "summary", "options")
        print_json({"methods": [{key: getattr(entry, key) for key in keys} for entry in entries]})
        return
    _print_table(["method", "family", "what it does"], [[entry.name, entry.family, entry.summary] for entry in entries])
    say("Try one:  fei explain photo.jpg --method " + entries[0].name)


def _print_table(columns: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, pad_edge=False)
    for number, column in enumerate(columns):
        # What is typed as a name must not be broken over lines.
        table.add_column(column, no_wrap=number == 0, overflow="fold", style="bold" if number == 0 else "")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)
