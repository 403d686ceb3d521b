"""The results of a job as files: the explorer, and a zip of everything."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fei.report.explorer import Panel, Shown, explorer_html
from fei.service import Inquiry, Look, Request, explanation_files, look

if TYPE_CHECKING:
    from fei.app.jobs import Order
    from fei.methods import Method

EXPLORER, ARCHIVE = "explorer.html", "fei-results.zip"


def write_results(
    folder: Path, order: Order, shown: Shown, made: Mapping[str, Method], check: Callable[[], None]
) -> dict[str, Path]:
    """Write the explorer and the zip.

    The zip holds the photo; for each method a picture, its map (.npy) and a record (.json) of how it was made, with
    the command that makes it again beside the photo, and for an optimisation method its masks and traces
    (.safetensors); and the explorer.

    Args:
        folder: Where to; the files of a job that fails on the way are its caller's to remove.
        order: What was asked for.
        shown: What was found.
        made: The methods, by name.
        check: Called between the parts; what it raises ends the work.

    Returns:
        The two files, by name.
    """
    shown = _without_path(shown, order.photo.file)
    explorer, archive = folder / EXPLORER, folder / ARCHIVE
    explorer.write_text(explorer_html(shown), encoding="utf-8")
    check()
    seen = look(order.network.classifier, order.photo.file)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(_member(order.photo.file.name), order.photo.file.read_bytes())
        file.writestr(_member(EXPLORER), explorer.read_bytes())
        for found in shown.panels:
            _add_method(file, order, shown, found, seen)
            check()
    return {EXPLORER: explorer, ARCHIVE: archive}


def _member(name: str) -> zipfile.ZipInfo:
    """A file of the zip, which tells nothing of this machine's clock and time zone."""
    member = zipfile.ZipInfo(name)  # of 1980, the first year that a zip knows
    member.compress_type = zipfile.ZIP_DEFLATED
    return member


def _add_method(file: zipfile.ZipFile, order: Order, shown: Shown, found: Panel, seen: Look) -> None:
    network, name = order.network, order.photo.file.name
    request = Request(
        model=network.spec,
        methods={found.method: {}},
        target=str(order.target),
        seed=order.seed,
        device=network.device.type,
    )
    inquiry = Inquiry(network.classifier, {}, order.seed, target=order.target)
    _, contents = explanation_files(inquiry, request, seen, found, image_path=name)
    for ending, content in contents.items():
        file.writestr(_member(f"{found.method}{ending}"), content)


def _without_path(shown: Shown, file: Path) -> Shown:
    """What is shown, speaking of the photo as it is called in the zip and not of where the server keeps it."""

    def told(text: str) -> str:
        return text.replace(str(file), file.name)

    return replace(
        shown,
        provenance={name: told(str(value)) for name, value in shown.provenance.items()},
        code=None if shown.code is None else told(shown.code),
        command=None if shown.command is None else told(shown.command),
    )
