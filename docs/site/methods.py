"""A page per family of methods: equation, source, cost and options from the registry, a picture, and when to use it."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pictures import FEWER, picture

from fei import methods

WHEN = Path(__file__).with_name("when.toml")
TITLES = {
    "optimisation": "Optimisation",
    "gradient": "Gradients",
    "activation": "Class activation maps",
    "attention": "Attention",
    "perturbation": "Perturbation",
    "chance": "Controls",
}


def pages() -> Iterator[tuple[str, str | bytes]]:
    """The pages and pictures of all methods, each with its place on the site."""
    words = tomllib.loads(WHEN.read_text(encoding="utf-8"))
    declared = declarations()
    for family, title in TITLES.items():
        parts = [f"# {title}\n\n{words['families'][family].strip()}\n"]
        entries = [entry for entry in declared if entry["family"] == family]
        parts.append(_overview(entries))
        told: dict[str, str] = {}  # what was told of which method first
        for entry in entries:
            first = told.setdefault(methods.describe(entry["name"]).documentation, entry["name"])
            drawn = picture(entry["name"])
            file = f"{entry['name'].replace('+', 'p')}.jpg"
            if drawn is not None:
                yield f"methods/{file}", drawn
            alike = "" if first == entry["name"] else first
            parts.append(_section(entry, words["methods"][entry["name"]], file if drawn is not None else "", alike))
        yield f"methods/{family}.md", "\n".join(parts)


def declarations() -> list[dict[str, Any]]:
    """What the command line tells of every method."""
    command = [sys.executable, "-m", "fei", "methods", "--json"]
    told = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    found: list[dict[str, Any]] = json.loads(told)["methods"]
    return found


def _overview(entries: list[dict[str, Any]]) -> str:
    rows = [f"| [`{e['name']}`](#{_anchor(e['name'])}) | {e['summary']} | {e['cost']} |" for e in entries]
    return "\n".join(["| method | what it does | passes |", "|---|---|---|", *rows, ""])


def _anchor(name: str) -> str:
    return name.replace("+", "-plus")


def _section(entry: dict[str, Any], when: str, file: str, alike: str) -> str:
    """One method; where the one before has the same text and options, they are not told again."""
    name = entry["name"]
    told = methods.describe(name).documentation.partition("\nArgs:\n")[0].partition("\nExample:\n")[0]
    few = ", ".join(f"{option}={value}" for option, value in FEWER.get(name, {}).items())
    caption = f"A photograph of a cat, the map of {name} over it, and the map alone{f', with {few}' if few else ''}"
    facts = f"- **When**: {when.strip()}\n- **Passes**: {entry['cost']}\n- **Source**: {entry['source']}\n"
    parts = [
        f"## {name} {{ #{_anchor(name)} }}\n",
        f"{entry['summary'][0].upper()}{entry['summary'][1:]}. Otherwise as [{alike}](#{_anchor(alike)}).\n"
        if alike
        else f"{told.strip()}\n",
        f"![{caption}]({file})\n" if file else "",
        facts,
        f"```console\n$ fei explain photo.jpg --method {name}\n```\n",
        "" if alike else _options(entry),
    ]
    return "\n".join(part for part in parts if part)


def _options(entry: dict[str, Any]) -> str:
    if not entry["options"]:
        return "It has no options.\n"
    rows = [
        f"| `{option['name']}` | `{option['default']}` | {option['help'].replace('|', chr(92) + '|')} |"
        for option in entry["options"]
    ]
    table = "\n".join(["    | option | default | what it is |", "    |---|---|---|", *(f"    {row}" for row in rows)])
    return f'??? note "Options, as `-o NAME=VALUE` or in Python"\n\n{table}\n'
