"""A small picture of every method: its map over a photograph, and alone."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import torch
from kept import kept
from PIL import Image
from torch import Tensor

from fei import methods, models
from fei.data import demo_image
from fei.report import colorize, overlay, photo

NETWORK, PHOTOGRAPH = "efficientnet_lite0", "chelsea"
# Of the methods that take thousands of passes, fewer: a picture to look at, in seconds.
FEWER: dict[str, dict[str, Any]] = {
    "extremal-perturbation": {"steps": 60},
    "kernel-shap": {"samples": 300},
    "rise": {"samples": 600},
}


def picture(name: str) -> bytes | None:
    """A JPEG of a method's map, or nothing for those that need a transformer, which does not come with the install."""
    if methods.describe(name).family == "attention":
        return None
    return kept(f"{name}.jpg", f"{NETWORK} {PHOTOGRAPH} {FEWER.get(name)}", lambda: _drawn(name))


@cache
def _subject() -> tuple[models.Classifier, Tensor]:
    model = models.load(NETWORK)
    return model, model.preprocess(demo_image(PHOTOGRAPH))[None]


def _drawn(name: str) -> bytes:
    model, images = _subject()
    found = methods.create(name, **FEWER.get(name, {}))(model, images)[0, 0].detach().numpy()
    shown = photo(images[0])
    pair = torch.cat([torch.from_numpy(pixels) for pixels in (shown, overlay(shown, found), colorize(found))], 1)
    file = io.BytesIO()
    Image.fromarray(pair.numpy()).save(file, "JPEG", quality=82, optimize=True)
    return file.getvalue()
