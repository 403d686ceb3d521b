"""Until `fei.service` has these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from fei import models
from fei.core.scoring import top_classes
from fei.errors import InputError, ModelError
from fei.models import Classifier
from fei.report.explorer import Guess, Panel
from fei.report.explorer.notebook import Comparison
from fei.report.overlay import figure_bytes, photo
from fei.report.overlay import panel as overlay_panel
from fei.service import collect as _collect
from fei.service.record import Finding, Prediction, array_bytes, make_record, record_text
from fei.service.request import Request as _Request


@dataclass(frozen=True)
class Look:
    name: str
    source: Path | None
    inputs: Tensor
    size: tuple[int, int]
    probabilities: Tensor
    guesses: tuple[Guess, ...]


@dataclass(frozen=True)
class Request:
    model: str
    method: str
    target: str | None
    seed: int
    device: str
    reference: str | None
    batch_size: int | None
    options: dict[str, Any]


def load_network(spec: str, device: torch.device) -> Classifier:
    classifier = models.load(spec).to(device)
    look(classifier, Image.new("RGB", (classifier.input_size,) * 2, "gray"), name=spec)
    return classifier


def look(classifier: Classifier, image: Image.Image, *, name: str | None = None) -> Look:
    device = next((p.device for p in classifier.parameters()), torch.device("cpu"))
    inputs = classifier.preprocess(image)[None].to(device)
    with torch.no_grad():
        try:
            logits = classifier(inputs)
        except (ModelError, InputError):
            raise
        except Exception as error:
            raise ModelError(f"The network fails on this photo ({type(error).__name__}).") from error
    if logits.ndim != 2 or not logits.isfinite().all():
        raise ModelError(f"The network '{name}' does not give finite logits of shape (1, classes).")
    probabilities = logits.float().softmax(1)[0]
    values, classes = top_classes(probabilities, 5)
    guesses = tuple(Guess(i, classifier.label(i), p) for i, p in zip(classes.tolist(), values.tolist(), strict=True))
    return Look(name or "photo", None, inputs, image.size, probabilities, guesses)


def collect(classifier: Classifier, images: list[Look], methods: Any, **options: Any) -> Comparison:
    return _collect(classifier, [one.source for one in images], methods, **options)


def explanation_files(
    classifier: Classifier, request: Request, look: Look, found: Panel, *, image_path: str
) -> tuple[dict[str, Any], dict[str, bytes]]:
    attribution = found.map.numpy()
    values, classes = top_classes(look.probabilities, 5)
    prediction = Prediction(classes.tolist(), values.tolist(), look.probabilities.tolist())
    config = (
        {"settings": found.config, "threads": torch.get_num_threads()}
        if found.explanation is None
        else dict(found.explanation.config)
    )
    finding = Finding(found.method, attribution, int(request.target or 0), "option", found.explanation, config)
    old = _Request(request.model, request.method, request.target, request.seed, None, None, request.device, None, None)
    seconds = 0.0 if found.cost is None else found.cost.seconds
    record = make_record(look.source, old, classifier, prediction, finding, seconds)
    record["command"] = record["command"].replace(str(look.source), image_path)
    record["image"]["path"] = image_path
    picture = overlay_panel(photo(look.inputs[0]), attribution, headline="x", details="y")
    files = {
        ".json": record_text(record).encode(),
        ".map.npy": array_bytes(attribution),
        ".overlay.png": figure_bytes(picture),
    }
    if found.explanation is not None:
        files[".explanation.safetensors"] = found.explanation.to_bytes()
    return record, files
