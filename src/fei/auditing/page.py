"""The report of an audit: one HTML file, with JSON, Markdown and a page to explore beside it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fei import __version__
from fei.auditing.measured import Measured
from fei.auditing.questions import PROTOCOL
from fei.auditing.recommendation import disagreement
from fei.auditing.result import Audit
from fei.auditing.verdicts import FAIL
from fei.auditing.written import markdown
from fei.bench.store import MAPS
from fei.bench.store.disk import read_map
from fei.common.files import write_files
from fei.core.scoring import Target
from fei.errors import FEIError
from fei.methods import create
from fei.metrics import Cost, Curve, Evaluation
from fei.models import Classifier
from fei.protocols import get
from fei.report import photo
from fei.report.explorer import Panel, explorer_html
from fei.report.shell import Page, document
from fei.report.thumbnails import map_address, photograph_address
from fei.service import Inquiry, Look, look

_TITLE = "FEI audit"
_MOST_SHOWN, _MOST_MAPS = 3, 4
_PAGE = Page(
    name="audit",
    brand=_TITLE,
    skip="Skip to the table",
    help="A mark in the table shows its numbers, with a click or with Enter.",
    scripts=("audit.js",),
)


def write_report(audit: Audit, classifier: Classifier, paths: Mapping[str, Path]) -> None:
    """Write the report into the audit's folder.

    Args:
        audit: What was found.
        classifier: The network.
        paths: The files of the images, by their names.

    Raises:
        DataError: If the disk refuses.
    """
    content = audit.document()
    shown, pages = _pictures(audit, classifier, paths)
    explorer = f"{'' if audit.stem == 'audit' else f'{audit.stem}-'}explorer.html" if pages else None
    payload = content | {
        "fei": __version__,
        "command": command(audit),
        "pictures": shown,
        "explorer": explorer,
        "folder": str(audit.folder),
    }
    title = f"{audit.asked['spec']} · {_TITLE}"
    files: dict[str, bytes | str] = {
        f"{audit.stem}.html": document(_PAGE, title, payload),
        f"{audit.stem}.json": json.dumps(content, indent=2, allow_nan=False) + "\n",
        f"{audit.stem}.md": markdown(audit),
    }
    if explorer is not None:
        files[explorer] = explorer_html(pages, title=f"{title}, photographs")
    write_files(audit.folder, files, what="report")


def command(audit: Audit) -> str:
    """The command that asks for this audit again."""
    asked = audit.asked
    words = ["fei", "audit", "--model", asked["spec"], "--data", asked["data"], "--budget", f"{asked['budget']:g}s"]
    return shlex.join([*words, "--seed", str(asked["seed"])])


def _pictures(
    audit: Audit, classifier: Classifier, paths: Mapping[str, Path]
) -> tuple[list[dict[str, Any]], list[Any]]:
    """The photographs where methods disagree most, and the worst one of the recommended method."""
    chosen = _shown_methods(audit)
    maps = _kept(audit, chosen)
    common = [item for item in audit.items if all((method, item) in maps for method in chosen)] if chosen else []
    apart = {item: disagreement([maps[method, item] for method in chosen]) for item in common if len(chosen) > 1}
    picked = [(item, "disagree", apart[item]) for item in sorted(apart, key=lambda item: -apart[item])[:_MOST_SHOWN]]
    if audit.recommended is not None and (shares := _shares(audit.measured, audit.recommended, common)):
        worst = min(shares, key=lambda item: shares[item])
        picked.append((worst, "worst", shares[worst]))
    options = audit.asked["options"]
    made = {method: create(method, **options.get(method, {})) for method in chosen}
    inquiry = Inquiry(classifier, made, audit.asked["seed"], protocol=get(PROTOCOL))
    found: list[dict[str, Any]] = []
    pages = []
    for item, why, value in picked:
        try:
            seen = look(classifier, paths[item])
        except FEIError:  # gone by now
            continue
        if item not in [one["item"] for one in found]:
            pages.append(inquiry.shown(seen, [_panel(audit, method, item, maps) for method in chosen]))
        found.append(_picture(audit, item, why, value, seen, {method: maps[method, item] for method in chosen}))
    return found, pages


def _shares(measured: Measured, method: str, items: Sequence[str]) -> dict[str, float]:
    """Insertion − deletion by image, as a share of the photograph's score."""
    scores = {item: measured.scores[method, item].get("probability", 0.0) for item in items}
    return {item: gain / scores[item] for item, gain in measured.gains(method, items).items() if scores[item] > 0}


def _shown_methods(audit: Audit) -> list[str]:
    """The recommended method first, then the next best, and the last of those that fail."""
    best = list(audit.methods[: _MOST_MAPS - 1])
    failing = [m for m in audit.methods if any(audit.table[m, q.name].answer == FAIL for q in audit.questions)]
    chosen = [*best, *(m for m in reversed(failing) if m not in best)][:_MOST_MAPS]
    if audit.recommended in chosen:
        chosen.sort(key=lambda method: method != audit.recommended)
    return [method for method in chosen if ":" not in method]


def _kept(audit: Audit, methods: Sequence[str]) -> dict[tuple[str, str], NDArray[np.float32]]:
    folder = audit.folder / MAPS
    keys = {place: key for place, key in audit.measured.keys.items() if place[0] in methods}
    found = {place: read_map(folder, key) for place, key in keys.items()}
    return {
        place: values
        for place, values in found.items()
        if values is not None and values.ndim == 2 and np.isfinite(values).all()
    }


def _picture(
    audit: Audit, item: str, why: str, value: float, seen: Look, maps: Mapping[str, NDArray[np.float32]]
) -> dict[str, Any]:
    facts = audit.measured.facts.get(item, {})
    return {
        "item": item,
        "why": why,
        "value": value,
        "label": facts.get("label"),
        "probability": facts.get("probability"),
        "correct": facts.get("correct"),
        "photograph": photograph_address(photo(seen.inputs[0].cpu())),
        "maps": [
            {"method": method, "picture": map_address(each), "gain": audit.measured.gains(method, [item]).get(item)}
            for method, each in maps.items()
        ],
    }


def _panel(audit: Audit, method: str, item: str, maps: Mapping[tuple[str, str], NDArray[np.float32]]) -> Panel:
    seconds = audit.measured.cost(method) or 0.0
    facts = audit.measured.facts.get(item, {})
    target: Any = facts.get("target", -1)
    return Panel(
        method,
        torch.from_numpy(maps[method, item]),
        evaluation=_evaluation(audit, method, item, target),
        cost=Cost(0, 0, seconds, None),
    )


def _evaluation(audit: Audit, method: str, item: str, target: Target) -> Evaluation | None:
    """The curves as they were stored."""
    stored = {name: (shares, values) for name, shares, values in audit.measured.curves.get((method, item), [])}
    scores = audit.measured.scores.get((method, item), {})
    if not {"insertion", "deletion"} <= stored.keys():
        return None

    def curve(name: str) -> Curve:
        shares, values = stored[name]
        return Curve(
            torch.tensor(shares, dtype=torch.float64),
            torch.tensor([values]),
            torch.tensor([scores[name]]),
            PROTOCOL,
            torch.tensor([scores.get("ties", 0.0)]),
            name == "insertion",
        )

    return Evaluation(curve("insertion"), curve("deletion"), {}, {}, torch.tensor([target]), 0.0)
