"""The results of a job as files: the explorer, and a zip of everything."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fei.core.scoring import top_classes
from fei.report.explorer import Panel, Shown, explorer_html
from fei.report.overlay import figure_bytes, panel, photo
from fei.service.record import Finding, Prediction, array_bytes, make_record, record_text
from fei.service.request import Request

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
    prediction = _prediction(order)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(_member(order.photo.file.name), order.photo.file.read_bytes())
        file.writestr(_member(EXPLORER), explorer.read_bytes())
        for found in shown.panels:
            _add_method(file, order, shown, found, prediction, getattr(made[found.method], "config", {}))
            check()
    return {EXPLORER: explorer, ARCHIVE: archive}


def _member(name: str) -> zipfile.ZipInfo:
    """A file of the zip, which tells nothing of this machine's clock and time zone."""
    member = zipfile.ZipInfo(name)  # of 1980, the first year that a zip knows
    member.compress_type = zipfile.ZIP_DEFLATED
    return member


def _add_method(
    file: zipfile.ZipFile,
    order: Order,
    shown: Shown,
    found: Panel,
    prediction: Prediction,
    config: Mapping[str, Any],
) -> None:
    attribution = found.map.numpy()
    settings = {"settings": config, "threads": torch.get_num_threads()}
    finding = Finding(
        found.method,
        attribution,
        shown.target,
        "option",
        found.explanation,
        settings if found.explanation is None else dict(found.explanation.config),
    )
    seconds = 0.0 if found.cost is None else found.cost.seconds
    record = _record(order, finding, prediction, seconds)
    file.writestr(_member(f"{found.method}.json"), record_text(record))
    file.writestr(_member(f"{found.method}.map.npy"), array_bytes(attribution))
    headline = f"Predicted: {record['prediction']['label']}, {record['prediction']['probability']:.1%}"
    details = f"explained: {shown.label}  ·  {found.method}  ·  {order.network.name}  ·  seed {order.seed}"
    picture = panel(photo(shown.image), attribution, headline=headline, details=details)
    file.writestr(_member(f"{found.method}.overlay.png"), figure_bytes(picture))
    if found.explanation is not None:
        file.writestr(_member(f"{found.method}.explanation.safetensors"), found.explanation.to_bytes())


def _record(order: Order, finding: Finding, prediction: Prediction, seconds: float) -> dict[str, Any]:
    """The record that ``fei explain`` would write beside the photo."""
    network, file = order.network, order.photo.file
    request = Request(
        network.spec, finding.method, str(order.target), order.seed, None, None, network.device.type, None, None
    )
    record = make_record(file, request, network.classifier, prediction, finding, seconds)
    record["image"]["path"] = file.name
    record["command"] = record["command"].replace(str(file), file.name)
    return record


@torch.no_grad()
def _prediction(order: Order) -> Prediction:
    logits = order.network.classifier(order.network.inputs(order.photo.read()))
    probabilities = logits.float().softmax(1)[0]
    values, classes = top_classes(probabilities, 5)
    return Prediction(classes.tolist(), values.tolist(), probabilities.tolist())


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
