"""What the page is given: every number it shows, and pixels as compressed arrays."""

from __future__ import annotations

import base64
import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fei import __version__
from fei.common.packages import need
from fei.core.explanation import Explanation
from fei.core.randomness import image_digest
from fei.errors import InputError
from fei.methods import is_control
from fei.metrics import BlackImage, Cost, Curve, Evaluation, agreement_matrix, declared
from fei.protocols import get
from fei.report.drawing import QUIET
from fei.report.explorer.shown import Guess, Panel, Repeated, Shown
from fei.report.shell import packed
from fei.report.whole import Whole

SCHEMA = 1
_TAILS = (0.01, 0.99)  # colours span these quantiles: a few extreme pixels of a gradient would leave all others dark
_DIGITS = 7
_INSIDE = ("cosine", "relevant_cosine", "mse")  # what is shown of each layer


def payload(images: Sequence[Shown]) -> dict[str, Any]:
    """What `explorer.js` reads."""
    return {
        "schema": SCHEMA,
        "fei": __version__,
        "colors": {name: _palette(name) for name in ("inferno", "coolwarm")},
        "metrics": {metric.score: metric.document() for metric in declared().values()},
        "images": [_image(*one) for one in zip(images, _photographs(images), strict=True)],
    }


def _photographs(images: Sequence[Shown]) -> list[int]:
    """Which photograph each image is of, by the place of the first of it: those of one differ in their class."""
    first: dict[tuple[Any, ...], int] = {}
    seen: Counter[tuple[Any, ...]] = Counter()
    places = []
    for place, shown in enumerate(images):
        photograph = (shown.name, image_digest(shown.image))
        times = seen[*photograph, shown.target]  # one class twice is not a choice
        seen[*photograph, shown.target] += 1
        places.append(first.setdefault((*photograph, times), place))
    return places


def ranks(shown: Shown, panel: Panel) -> NDArray[np.uint32]:
    """The place of each pixel in the order in which the protocol deletes them, 0 first, (H·W,)."""
    protocol = get(shown.protocol)
    values = panel.map.detach().cpu().flatten()
    order = protocol.order(values, image_digest(shown.image), shown.seed, len(shown.image)).numpy()
    places = np.empty(len(order), np.uint32)
    places[order] = np.arange(len(order), dtype=np.uint32)
    return places


def _palette(name: str) -> str:
    colours = matplotlib.colormaps[name](np.arange(256), bytes=True)[:, :3]
    return base64.b64encode(np.ascontiguousarray(colours).tobytes()).decode()


def _image(shown: Shown, photograph: int) -> dict[str, Any]:
    if get(shown.protocol).per_value:
        raise InputError(
            f"The explorer paints whole pixels, and protocol {get(shown.protocol).id} replaces single values; choose "
            "another protocol, such as fei-fine."
        )
    low, high = _display_range(shown.image)
    insertion, deletion = shown.reference if isinstance(shown.reference, tuple) else (shown.reference,) * 2
    protocol = get(shown.protocol)
    return {
        "name": shown.name,
        "photograph": photograph,
        "height": shown.image.shape[1],
        "width": shown.image.shape[2],
        "photo": packed(_pixels(shown.image, low, high)),
        "whole": None if shown.whole is None else _whole(shown.whole),
        "reference": {
            "insertion": _reference(insertion, shown.image, low, high),
            "deletion": _reference(deletion, shown.image, low, high),
        },
        "target": {
            "index": shown.target,
            "label": shown.label,
            "probability": None if shown.probability is None else _number(shown.probability),
        },
        "prediction": _guesses(shown.prediction),
        "protocol": protocol.id,
        "score": protocol.score if isinstance(protocol.score, str) else "score",
        "seed": shown.seed,
        "provenance": {name: str(value) for name, value in shown.provenance.items()},
        "code": shown.code,
        "command": shown.command,
        "agreement": _agreement(shown.panels),
        "panels": [_panel(shown, panel) for panel in shown.panels],
    }


def _whole(whole: Whole) -> dict[str, Any]:
    """All of a photograph as a JPEG, and what of it the network saw, in shares of its width and height."""
    file = io.BytesIO()
    whole.photograph.save(file, "JPEG", quality=85)
    sides = (whole.photograph.width, whole.photograph.height) * 2
    shares = [_number(value / side) for value, side in zip(whole.box, sides, strict=True)]
    return {"jpeg": base64.b64encode(file.getvalue()).decode(), "box": shares}


def _display_range(image: Tensor) -> tuple[float, float]:
    """What is shown as black and as white: 0 and 1, or an image's own range where it leaves that (normalised ones)."""
    low, high = float(image.min()), float(image.max())
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


def _pixels(image: Tensor, low: float, high: float) -> NDArray[np.uint8]:
    """8-bit RGB (H, W, 3), as `fei.report.photo` has it."""
    values = (image.detach().cpu().double().numpy() - low) / max(high - low, np.finfo(np.float64).tiny)
    if len(values) != 3:
        values = np.repeat(values.mean(0, keepdims=True), 3, axis=0)
    pixels: NDArray[np.uint8] = np.rint(values.clip(0, 1).transpose(1, 2, 0) * 255).astype(np.uint8)
    return pixels


def _reference(reference: Tensor, image: Tensor, low: float, high: float) -> dict[str, Any]:
    """One colour where R is one, else all its pixels."""
    pixels = _pixels(torch.broadcast_to(reference.detach().cpu(), image.shape), low, high)
    if (pixels == pixels[0, 0]).all():
        return {"color": pixels[0, 0].tolist()}
    return {"pixels": packed(pixels)}


def _agreement(panels: Sequence[Panel]) -> list[list[float]]:
    """Spearman's ρ between the maps of each pair of methods."""
    maps = {panel.method: panel.map.detach().cpu()[None, None] for panel in panels}
    return [_numbers(row) for row in agreement_matrix(maps)[0]]


def _panel(shown: Shown, panel: Panel) -> dict[str, Any]:
    values = panel.map.detach().cpu().float().numpy()
    low, high = np.quantile(values, _TAILS) if np.ptp(values) else (values.min(), values.max())
    if low == high:  # nearly all pixels are alike
        low, high = values.min(), values.max()
    if panel.silent:
        low, high = QUIET["span"]
    sentence = panel.evidence(shown.label, shown.probability)
    return {
        "method": panel.method,
        "control": is_control(panel.method),
        "preview": panel.preview,
        "values": packed(values),
        "ranks": packed(ranks(shown, panel)),
        "low": _number(low),
        "high": _number(high),
        **_measured(panel.evaluation),
        **_blocks(panel),
        "top": {curve: [_guesses(point) for point in points] for curve, points in panel.top.items()},
        "masks": None if panel.explanation is None else _masks(panel.explanation),
        "blackImage": None if panel.black_image is None else _black_image(panel.black_image),
        "cost": None if panel.cost is None else _cost(panel.cost),
        "config": {name: _words(value) for name, value in panel.config.items()},
        "evidence": None if sentence is None else {"found": not panel.silent, "sentence": sentence},
        "repeated": None if panel.repeated is None else _repeated(panel.map, panel.repeated),
        "notes": [] if panel.explanation is None else [str(note) for note in panel.explanation.config.get("notes", [])],
    }


def _repeated(attribution: Tensor, again: Repeated) -> dict[str, Any]:
    """How far each pixel moves in the order of the map with another seed, as a share of all pixels in 255ths."""
    need("A repeated map", "bench", "scipy")
    from scipy.stats import rankdata  # slower to import than torch

    first, second = (rankdata(one.detach().cpu().double().numpy()) for one in (attribution, again.map))
    moved = np.abs(first - second) / max(first.size - 1, 1)
    changes = packed(np.rint(moved * 255).astype(np.uint8))
    return {"seed": again.seed, "correlation": _number(again.correlation), "changes": changes}


def _measured(evaluation: Evaluation | None) -> dict[str, Any]:
    if evaluation is None:
        return {"insertion": None, "deletion": None, "ties": None, "layers": None}
    return {
        "insertion": _curve(evaluation.insertion),
        "deletion": _curve(evaluation.deletion),
        "ties": _number(evaluation.insertion.ties[0]),
        "layers": _layers(evaluation) if evaluation.internal_curves else None,
    }


def _curve(curve: Curve) -> dict[str, Any]:
    return {
        "fractions": [float(fraction) for fraction in curve.fractions],  # in full: they are compared with the scrubber
        "scores": _numbers(curve.scores[0]),
        "auc": _number(curve.auc[0]),
    }


def _layers(evaluation: Evaluation) -> dict[str, Any]:
    layers = evaluation.internal_curves
    shown = [name for name in _INSIDE if name in next(iter(layers.values())).numbers]
    return {
        "fractions": [float(fraction) for fraction in evaluation.insertion.fractions if 0 < fraction < 1],
        "names": _short(layers),
        "mean": {
            name: [_number(similar.numbers[name][0]) for similar in evaluation.internal.values()] for name in shown
        },
    } | {name: [_numbers(similar.numbers[name][0]) for similar in layers.values()] for name in shown}


def _blocks(panel: Panel) -> dict[str, Any]:
    """A transformer block by block, means over the insertion curve: tokens, and attention beside them."""
    layers = {} if panel.evaluation is None else panel.evaluation.internal
    charts: list[dict[str, Any]] = []
    for tokens, rows in (("cls", "cls"), ("patch", "kept")):
        cosine = f"{tokens}_cosine"
        alike = {name: one.numbers[cosine][0] for name, one in layers.items() if cosine in one.numbers}
        heads = {name: getattr(one, rows) for name, one in panel.attention.items()}
        # of a network without a class token, or where no patch is kept, there is nothing to say
        known = {name: one[0] for name, one in heads.items() if one is not None and one.isfinite().all()}
        if alike:
            charts.append({"metric": cosine, "names": _short(alike), "mean": _numbers(alike.values())})
        if known:
            means, spread = [_number(one.mean()) for one in known.values()], [_numbers(one) for one in known.values()]
            charts.append({"metric": f"{rows}_divergence", "names": _short(known), "mean": means, "heads": spread})
    return {"blocks": charts} if charts else {}


def _short(layers: Iterable[str]) -> list[str]:
    return [name.removeprefix("network.") for name in layers]


def _masks(explanation: Explanation) -> dict[str, Any]:
    """Masks as grey levels, and how each went. Without an area, as in the ablations, there is one and no quantile."""
    settings, trace = explanation.config["settings"], explanation.trace
    alphas = explanation.alphas[0].detach().cpu().double().mean(1).numpy()
    areas = settings["constraint"] not in {"l1", "none"}
    return {
        "quantiles": [float(q) for q in settings["quantiles"]] if areas else [None] * len(alphas),
        "alphas": packed(np.rint(alphas.clip(0, 1) * 255).astype(np.uint8)),
        "phi": [_numbers(course) for course in trace.phi[0]],
        "area": [_numbers(course) for course in trace.area[0]],
        "stopped": [int(step) for step in trace.stopped[0]],
        "sites": _short(trace.clipped),
        "clipped": [_numbers(share[0]) for share in trace.clipped.values()],
    }


def _black_image(result: BlackImage) -> dict[str, Any]:
    return {"rate": result.rate, "interval": list(result.interval), "trials": result.trials}


def _cost(cost: Cost) -> dict[str, Any]:
    return {"forwards": cost.forwards, "backwards": cost.backwards, "seconds": _number(cost.seconds)}


def _guesses(guesses: Iterable[Guess]) -> list[dict[str, Any]]:
    return [{"index": g.index, "label": g.label, "probability": _number(g.probability)} for g in guesses]


def _numbers(values: Iterable[Any]) -> list[float]:
    return [_number(value) for value in values]


def _number(value: Any) -> float:
    return float(f"{float(value):.{_DIGITS}g}")


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
