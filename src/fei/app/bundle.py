"""The results of a run as files: the explorer, and a zip of everything."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fei.app._shim import explanation_files
from fei.report.explorer import Shown, explorer_html

if TYPE_CHECKING:
    from fei.app.runs import Order

EXPLORER, ARCHIVE = "explorer.html", "fei-results.zip"


def write_results(folder: Path, order: Order, shown: Shown, check: Callable[[], None]) -> dict[str, Path]:
    """Write the explorer and the zip: the photo, the explorer, and for each method what ``fei explain`` writes.

    Args:
        folder: Where to; the files of a run that fails on the way are its caller's to remove.
        order: What was asked for.
        shown: What was found.
        check: Called between the parts; what it raises ends the work.

    Returns:
        The two files, by name.
    """
    photo, explorer, archive = order.look.source, folder / EXPLORER, folder / ARCHIVE
    assert photo is not None
    explorer.write_text(explorer_html(_without_path(shown, photo)), encoding="utf-8")
    check()
    with zipfile.ZipFile(archive, "w") as file:
        _add(file, photo.name, photo.read_bytes())
        _add(file, EXPLORER, explorer.read_bytes())
        for panel in shown.panels:
            _, files = explanation_files(
                order.network.classifier, order.request(panel.method), order.look, panel, image_path=photo.name
            )
            for ending, content in files.items():
                _add(file, panel.method + ending, content)
            check()
    return {EXPLORER: explorer, ARCHIVE: archive}


def _add(file: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a file to the zip, which tells nothing of this machine's clock and time zone."""
    member = zipfile.ZipInfo(name)  # of 1980, the first year that a zip knows
    member.compress_type = zipfile.ZIP_DEFLATED
    file.writestr(member, content)


def _without_path(shown: Shown, file: Path) -> Shown:
    """What is shown, speaking of the photo as it is called in the zip and not of where the server keeps it."""

    def told(text: str | None) -> str | None:
        return None if text is None else text.replace(str(file), file.name)

    provenance = {name: told(str(value)) for name, value in shown.provenance.items()}
    return replace(shown, provenance=provenance, code=told(shown.code), command=told(shown.command))
