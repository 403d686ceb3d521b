"""The page that ``fei explain --pdf`` writes: one explanation for somebody who was not there."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np

from fei.data import read_image
from fei.metrics.criteria import criterion
from fei.report.drawing import QUIET
from fei.report.explorer import Panel
from fei.report.sheet import Check, pdf_bytes, sheet
from fei.service.looking import Look
from fei.service.record import unit_of


def sheet_bytes(seen: Look, found: Panel, record: dict[str, Any], text: str) -> bytes:
    """One explanation as a PDF of one page.

    Args:
        seen: The image, from a file.
        found: What the method found, measured.
        record: Its record.
        text: The record as it is written.
    """
    target, best = record["target"], record["prediction"]
    kept, left, whole = _halves(found)
    share, other = (part / whole if whole else 0.0 for part in (kept, left))
    claim = (
        f"The half of the pixels that the map ranks first keeps {share:.0%} of the score of '{target['label']}' "
        f"({kept:.2f} of {whole:.2f}); the other half keeps {other:.0%}."
    )
    if not _more(kept, left):
        claim += " So the map does not tell where in the picture the score comes from."
    if found.silent:
        claim = f"{record['evidence']['sentence'].capitalize()}. {claim}"
    box = record["preprocessing"]["crop"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a class name in a script that the font lacks
        page = sheet(
            read_image(str(seen.source)),
            box,
            found.map.float().numpy(),
            headline=f"Why '{target['label']}' ({target['probability']:.1%}) in {seen.name}?"
            + (" (a preview)" if found.preview else ""),
            claim=claim,
            checks=checks(found, record),
            facts=_facts(record, best, text),
            unit=unit_of(found),
            span=QUIET["span"] if found.silent else None,
        )
        return pdf_bytes(page)


def checks(found: Panel, record: dict[str, Any]) -> list[Check]:
    """What is known of how far a map can be believed."""
    kept, left, whole = _halves(found)
    notes, weighed, again = record["notes"], record["evidence"], record["stability"]
    made = [
        Check("the first half of the pixels keeps half of the score", kept >= whole / 2, f"{kept:.2f} of {whole:.2f}"),
        Check("it keeps more than the other half", _more(kept, left), f"{kept:.2f} against {left:.2f}"),
    ]
    if weighed is None:
        made.append(Check("masks keep more than random ones", None, "the method has no masks"))
    else:
        most = max(one - other for one, other in zip(weighed["kept"], weighed["chance"], strict=True))
        made.append(Check("something in the picture speaks for the class", weighed["found"], f"{most:+.2f} to chance"))
    alike = None if again is None else f"rank correlation {again['correlation']:.2f} with seed {again['seed']}"
    stable = None if again is None else again["correlation"] >= criterion("stability").limit
    made.append(Check("another seed gives the same map", stable, alike or "ask for it with --stability"))
    made.append(Check("no remarks on the network and the map", not notes, " ".join(notes) or "none"))
    return made


def _more(kept: float, left: float) -> bool:
    """Whether one score is above another in the digits that are written: what reads as equal is no more."""
    return round(kept, 2) > round(left, 2)


def _halves(found: Panel) -> tuple[float, float, float]:
    """The score with the half that the map ranks first, with the other half, and with all pixels."""
    evaluation: Any = found.evaluation
    curves = evaluation.insertion, evaluation.deletion
    half, other = (float(np.interp(0.5, curve.fractions.cpu(), curve.scores[0].cpu().double())) for curve in curves)
    return half, other, float(curves[0].scores[0, 0])


def _facts(record: dict[str, Any], best: dict[str, Any], text: str) -> dict[str, str]:
    network, settings = record["network"], record["config"].get("settings", {})
    files = list(network["source"].items())
    options = ", ".join(f"{name} {value}" for name, value in settings.items() if isinstance(value, int | float | str))
    return {
        "prediction": f"{best['label']} ({best['index']}), {best['probability']:.1%}",
        "explained": f"{record['target']['label']} ({record['target']['index']}), by {record['target']['chosen_by']}",
        "method": f"{record['method']}{', a preview' if record['preview'] else ''}, seed {record['seed']}; {options}"[
            :400
        ],
        "photograph": f"{record['image']['path']}, SHA-256 {record['image']['sha256']}",
        "network": record["model"],
        "weights": f"SHA-256 {network['weights']}",
        "source": "; ".join(f"{name} SHA-256 {digest}" for name, digest in files[:2]) or "of fei and torch",
        "input": record["preprocessing"]["words"],
        "made": f"{record['made']}, {record['seconds']:.1f} s, {_listed(record['hardware'])}",
        "versions": _listed(record["versions"]),
        "record": f"SHA-256 {hashlib.sha256(text.encode()).hexdigest()}",
    }


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
