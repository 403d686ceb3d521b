"""Notebooks as pages: executed while the site is built, then written as Markdown with their outputs."""

from __future__ import annotations

import base64
import posixpath
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
from kept import kept
from nbclient import NotebookClient

SECONDS = 900  # for one cell; a machine may be busy


def pages(source: Path, uri: str, lead: Callable[[str], str]) -> Iterator[tuple[str, str | bytes]]:
    """The page of a notebook and its pictures, each with its place on the site; `lead` mends the links of a text."""
    text = source.read_text(encoding="utf-8")
    executed = kept(source.name, text, lambda: _executed(text))
    parts: list[str] = []
    pictures = 0
    for cell in nbformat.reads(executed.decode(), as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(lead(cell.source))
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                pictures += 1
                name = f"{posixpath.splitext(uri)[0]}-{pictures}.png"
                yield name, base64.b64decode(data["image/png"])
                parts.append(f"![{_alternative(cell.source)}]({posixpath.basename(name)})")
            elif printed := _printed(output, data):
                parts.append(f"```text\n{printed}\n```")
    yield uri, "\n\n".join(parts) + "\n"


def _executed(text: str) -> bytes:
    notebook = nbformat.reads(text, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=resources)
        client.extra_arguments = ["--IPKernelApp.log_level=40"]  # errors, and not that it listens on this machine
        client.execute()
    return nbformat.writes(notebook).encode()


def _alternative(code: str) -> str:
    """What stands for a picture where it is not seen: the code that made it, on one line."""
    return "What is drawn by " + re.sub(r"[\[\]()]", " ", code.strip().splitlines()[-1]).strip()


def _printed(output: Any, data: dict[str, str]) -> str:
    text = output.text if output.output_type == "stream" else data.get("text/plain", "")
    return re.sub(r"\x1b\[[0-9;]*m", "", text).strip("\n")
