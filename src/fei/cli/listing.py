"""``fei models`` and ``fei methods``: what there is to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fei.cli import _options as opt
from fei.cli._common import note, print_json, print_table, say

if TYPE_CHECKING:
    from fei.methods import Entry


def models(
    pattern: Annotated[
        str | None,
        typer.Argument(
            metavar="PATTERN", help="List the networks of such a name: 'torchvision:res*'.", show_default=False
        ),
    ] = None,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """List the networks that --model takes: how they are written, or those whose name matches a pattern."""
    from fei.models import available, describe

    found = available(pattern)
    if as_json:
        summaries = {} if pattern is not None else {"summaries": {form: describe(form) for form in found}}
        print_json({"models": found, **summaries})
        return
    if pattern is None:
        print_table(["model", "what it is"], [[form, describe(form)] for form in found], words=True)
        say("Try one:  fei explain photo.jpg --model " + found[0])
        return
    for spec in found:
        say(spec)
    if not found:
        note(f"no network matches '{pattern}'; see all with 'fei models torchvision:*' or 'fei models timm:*'")


def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A method, to read all about it.", show_default=False)
    ] = None,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """List the attribution methods that --method takes, or describe one with its options."""
    from fei.methods import available, create, describe

    entries = [describe(one) for one in (available() if name is None else [name])]
    if name is not None and entries[0].family == "adapter":
        create(name)  # what a name from elsewhere does not lead to is told here, and not when it is used
    if as_json:
        print_json({"methods": [_document(entry) for entry in entries]})
    elif name is None:
        for family in dict.fromkeys(entry.family for entry in entries):
            print_table(
                ["controls" if family == "chance" else family, "passes", "what it does and who described it"],
                [[e.name, e.cost, f"{e.summary} ({e.source})"] for e in entries if e.family == family],
                words=True,
            )
        say("Passes: forward + backward, one image, default options, besides a few to look at the network.")
        say("Read about one:  fei methods rise        Try one:  fei explain photo.jpg --method rise -o samples=500")
    else:
        _describe(entries[0])


def _document(entry: Entry) -> dict[str, Any]:
    keys = ("name", "family", "summary", "cost", "source")
    real = _defaults(entry)
    options = [{**vars(option), "default": _shown(real[option.name])} for option in entry.options]
    return {key: getattr(entry, key) for key in keys} | {"options": options}


def _describe(entry: Entry) -> None:
    say(f"{entry.name} ({entry.family}): {entry.summary}\n")
    say(entry.documentation.partition("\nArgs:\n")[0].rstrip() or "Attribution code from elsewhere.")
    if entry.options:
        say("\nOptions, to be given as -o NAME=VALUE:\n")
        real = _defaults(entry)
        rows = [[option.name, option.type, str(_shown(real[option.name])), option.help] for option in entry.options]
        print_table(["option", "type", "default", "what it is"], rows, words=True)


def _defaults(entry: Entry) -> dict[str, Any]:
    """What each option is if nothing is said; of an optimisation method, what its preset says."""
    written = {option.name: option.default for option in entry.options}
    if entry.family != "optimisation":
        return written
    made: dict[str, Any] = getattr(entry.factory(), "config", {})
    return {name: made.get(name, value) if value is None else value for name, value in written.items()}


def _shown(default: Any) -> Any:
    return list(default) if isinstance(default, tuple) else default
