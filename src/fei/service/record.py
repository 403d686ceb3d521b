"""The record of one explanation: what was explained, what came out, and what it takes to repeat it."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fei import __version__

if TYPE_CHECKING:
    from fei.core.explanation import Explanation
    from fei.models import Classifier
    from fei.service.request import Request

SCHEMA = 1


@dataclass(frozen=True)
class Prediction:
    """What the network says: its best classes with their probabilities, and the probabilities of all."""

    classes: list[int]
    best: list[float]
    probabilities: list[float]


@dataclass(frozen=True)
class Finding:
    """What a method found: the map (H, W), the class it explains, who chose that, how, and more where there is more."""

    method: str
    attribution: np.ndarray[Any, np.dtype[np.float32]]
    target: int
    chosen_by: str
    explanation: Explanation | None
    config: dict[str, Any]


def make_record(
    image: Path, request: Request, classifier: Classifier, prediction: Prediction, finding: Finding, seconds: float
) -> dict[str, Any]:
    """The record as plain data."""
    top = [
        {"index": index, "label": classifier.label(index), "probability": probability}
        for index, probability in zip(prediction.classes, prediction.best, strict=True)
    ]
    explanation = finding.explanation
    return {
        "schema": SCHEMA,
        "image": {"path": str(image), "sha256": _digest(image)},
        "model": request.model,
        "prediction": top[0] | {"top5": top},
        "target": {
            "index": finding.target,
            "label": classifier.label(finding.target),
            "probability": prediction.probabilities[finding.target],
            "chosen_by": finding.chosen_by,
        },
        "method": finding.method,
        "config": finding.config,
        "trace": None if explanation is None else summarize_trace(explanation),
        "seed": request.seed,
        "seconds": round(seconds, 3),
        "versions": {"fei": __version__, "torch": str(torch.__version__), "python": platform.python_version()},
        "command": _command(image, request, finding),
    }


def record_text(record: dict[str, Any]) -> str:
    """A record as JSON, as it is written."""
    return json.dumps(record, indent=2, allow_nan=False) + "\n"


def array_bytes(values: np.ndarray[Any, Any]) -> bytes:
    """An array as the bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def summarize_trace(explanation: Explanation) -> dict[str, Any]:
    """How the optimisation of one image went, mask by mask, and how much was clipped where."""
    trace, settings = explanation.trace, explanation.config["settings"]
    # where no area is asked for, there is one mask, of no quantile
    quantiles = [None] if settings["constraint"] in {"l1", "none"} else settings["quantiles"]
    masks = [
        {
            "quantile": quantile,
            "area_asked": None if quantile is None else round(1 - quantile, 6),
            "area_got": float(trace.area[0, i, -1]),
            "phi_first": float(trace.phi[0, i, 0]),
            "phi_last": float(trace.phi[0, i, -1]),
            "stopped_after": int(trace.stopped[0, i]) if trace.stopped[0, i] >= 0 else None,
        }
        for i, quantile in enumerate(quantiles)
    ]
    return {"masks": masks, "clipped": {site: float(share[0].mean()) for site, share in trace.clipped.items()}}


def _command(image: Path, request: Request, finding: Finding) -> str:
    """The command that repeats this, with what was left to defaults spelled out, since defaults may change."""
    options: dict[str, Any] = {
        "--model": request.model,
        "--method": finding.method,
        "--target": finding.target if finding.chosen_by == "option" else None,
        "--seed": request.seed,
        "--steps": request.steps,
        "--preset": request.preset,
        "--reference": request.reference,
        "--batch-size": request.batch_size,
        "--device": request.device,
    }
    extra = [word for option in request.options for word in ("--option", option)]
    if finding.explanation is not None:
        config = finding.explanation.config
        options["--steps"], options["--preset"] = config["settings"]["steps"], config["settings"]["preset"]
        options["--reference"], options["--device"] = config["reference"]["kind"], config["device"].split(":")[0]
    words = ["fei", "explain", str(image)]
    for name, value in options.items():
        words += [] if value is None else [name, str(value)]
    return shlex.join(words + extra)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
