"""The record of one explanation: what was asked, what came out, what it takes to repeat it, and the files of it all."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from torch import nn

from fei import __version__
from fei.common.machine import usable_processors
from fei.core.explanation import Explanation
from fei.models import Classifier
from fei.models.preprocessing import in_words, split_spec
from fei.references import Reference
from fei.report import panel as draw
from fei.report import photo
from fei.report.drawing import QUIET, figure_bytes
from fei.report.explorer import Panel
from fei.service.inquiry import Inquiry
from fei.service.looking import Look, label
from fei.service.outputs import EXPLANATION, MAP, PICTURE, RECORD
from fei.service.request import Request

SCHEMA = 1
_ONE_OUTPUT = (
    "The network has one output, which is read as the logit of one class; its probability is the sigmoid of it."
)
_MOST_OF_SPEC = 40  # a path may be longer than the picture is wide


def explanation_files(
    inquiry: Inquiry, request: Request, seen: Look, found: Panel, *, image_path: str | None = None
) -> tuple[dict[str, Any], dict[str, bytes | str]]:
    """What one method found on one image, as it is written.

    Args:
        inquiry: The network and the methods.
        request: What was asked for, with one method.
        seen: The image, from a file.
        found: What the method found.
        image_path: What to call the image's file; by default as it was given.

    Returns:
        The record as plain data, and the contents of the files by their endings, the record's among them.

    Examples:
        >>> request = fei.service.Request.of("net.py:net?mean=none", ["gradcam"])
        >>> inquiry = fei.service.Inquiry.of(request)
        >>> seen = fei.service.look(inquiry.model, "photos/a.png")
        >>> record, contents = fei.service.explanation_files(inquiry, request, seen, inquiry.find("gradcam", seen))
        >>> sorted(contents), record["prediction"]["label"]
        (['.json', '.map.npy', '.overlay.png'], 'bright')
    """
    record = make_record(inquiry, request, seen, found, image_path or str(seen.source))
    attribution = found.map.float().numpy()
    contents: dict[str, bytes | str] = {MAP: array_bytes(attribution), RECORD: record_text(record)}
    if found.explanation is not None:
        contents[EXPLANATION] = found.explanation.to_bytes()
    best, target = record["prediction"], record["target"]
    shown = "the prediction" if target["index"] == best["index"] else f"{target['probability']:.1%}"
    network, _ = split_spec(request.model)
    spec = network if len(network) <= _MOST_OF_SPEC else f"…{network[-_MOST_OF_SPEC:]}"
    nothing = found.silent and found.evidence(target["label"], target["probability"])
    details = [nothing or f"explained: {target['label']} ({shown})", found.called, spec]
    details += [] if found.explanation is None else [f"steps {found.explanation.config['settings']['steps']}"]
    details += _missed(found)
    headline = f"Predicted: {best['label']}, {best['probability']:.1%}"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a class name in a script that the font lacks
        words = "  ·  ".join([*details, f"seed {request.seed}"])
        quiet = QUIET if found.silent else {}
        how = {"headline": headline, "details": words, "notes": record["notes"], "unit": unit_of(found)}
        picture = draw(photo(seen.inputs[0]), attribution, whole=seen.whole, **how, **quiet)
        contents[PICTURE] = figure_bytes(picture)
    return record, contents


def unit_of(found: Panel) -> str:
    """What the values of a map are."""
    return "value of the map" if found.explanation is None else "mean of the masks, 0 to 1"


def _missed(found: Panel) -> list[str]:
    """What a caption says of attention that no clip site can reach."""
    counts = {} if found.explanation is None else found.explanation.config.get("attention", {})
    hidden = counts.get("hidden", 0)
    return [f"{hidden} of {sum(counts.values())} attention layers not reached"] if hidden else []


def make_record(inquiry: Inquiry, request: Request, seen: Look, found: Panel, image_path: str) -> dict[str, Any]:
    """The record as plain data; arguments as for `explanation_files`."""
    top = [vars(guess) for guess in seen.guesses]
    explanation, cost = found.explanation, found.cost
    index = inquiry.explained(seen)
    target: dict[str, Any] = {
        "index": index,
        "label": label(inquiry.model, index),
        "probability": float(seen.probabilities[index]),
        "chosen_by": "prediction" if inquiry.target is None else "option",
    }
    spelled, again = _spelled_out(request, found), found.repeated
    notes = [*inquiry.notes, *([_ONE_OUTPUT] if len(seen.probabilities) == 1 else [])]
    notes += [] if explanation is None else explanation.config.get("notes", [])
    return {
        "schema": SCHEMA,
        "image": {"path": image_path, "sha256": digest(Path(str(seen.source)))},
        "model": request.model,
        "network": inquiry.identity,
        "preprocessing": preprocessing(inquiry.model, seen),
        "notes": notes,
        "prediction": top[0] | {"top5": top},
        "target": target,
        "method": found.method,
        "preview": found.preview,
        "config": {"settings": dict(found.config), "threads": torch.get_num_threads()}
        if explanation is None
        else dict(explanation.config),
        "trace": None if explanation is None else summarize_trace(explanation),
        "evidence": summarize_evidence(found, target["label"], target["probability"]),
        "stability": None if again is None else {"seed": again.seed, "correlation": again.correlation},
        "seed": request.seed,
        "seconds": 0.0 if cost is None else round(cost.seconds, 3),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "hardware": hardware(seen.inputs.device),
        "request": spelled.model_dump(mode="json"),
        "command": spelled.command(image_path),
    }


def preprocessing(model: nn.Module, seen: Look) -> dict[str, Any] | None:
    """What became of the photograph before the network saw it; ``None`` where the network does not say."""
    if not isinstance(model, Classifier):
        return None
    described = {name: value for name, value in model.description.items() if name != "labels"}
    crop = [round(value, 3) for value in model.seen_part(seen.size)]
    return {"words": in_words(model), **described, "photograph": list(seen.size), "crop": crop}


def record_text(record: dict[str, Any]) -> str:
    """A record as JSON, as it is written."""
    return json.dumps(record, indent=2, allow_nan=False) + "\n"


def array_bytes(values: np.ndarray[Any, Any]) -> bytes:
    """An array as the bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def versions() -> dict[str, str]:
    """What a number depends on."""
    others = {"numpy": np.__version__, "pillow": PIL.__version__}
    return {"fei": __version__, "torch": str(torch.__version__), "python": platform.python_version()} | others


def hardware(device: torch.device) -> dict[str, Any]:
    """What it was computed on."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processors": usable_processors(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }


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


def summarize_evidence(found: Panel, label: str, probability: float) -> dict[str, Any] | None:
    """What the masks of one image keep of the score, and the sentence that is said where nothing was found."""
    weighed = None if found.explanation is None else found.explanation.evidence
    if weighed is None:
        return None
    return {
        "kept": weighed.kept[0].tolist(),
        "chance": weighed.chance[0].tolist(),
        "whole": float(weighed.whole),
        "found": not found.silent,
        "sentence": found.evidence(label, probability) if found.silent else None,
    }


def _spelled_out(request: Request, found: Panel) -> Request:
    """The request of one method with what was left to defaults spelled out, since defaults may change."""
    changes: dict[str, Any] = {"methods": {found.method: dict(request.methods[found.method])}}
    if found.explanation is not None:
        config = found.explanation.config
        changes["methods"][found.method] |= {name: config["settings"][name] for name in ("steps", "preset")}
        changes |= {"reference": str(Reference(**config["reference"])), "device": config["device"].split(":")[0]}
    return request.model_copy(update=changes)
