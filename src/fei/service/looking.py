"""An image as a network takes it, and what the network says of it: decoded once, predicted once."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from fei import models
from fei.common.words import in_brief
from fei.core.scoring import logits_of, top_classes
from fei.data import read_image
from fei.data.images import to_rgb
from fei.errors import InputError, ModelError
from fei.models import Classifier
from fei.report.explorer import Guess
from fei.report.whole import Whole

_BEST = 5
_LONGEST = 640  # pixels of a photograph that is shown whole
_SLIVER = 0.5  # pixels that may be cut off without a word
_SLACK = 0.01  # of the largest logit
ImageSource = str | os.PathLike[str] | Image.Image


@dataclass(frozen=True)
class Look:
    """One image under one network.

    Attributes:
        name: What the image is called.
        source: Its file; ``None`` where it came as values.
        inputs: The network's input (1, C, H, W).
        size: Width and height of the image before it became an input.
        probabilities: What the network gives each class; of a single output, its sigmoid.
        guesses: The best classes.
        seconds: What one pass of the network took.
        whole: All of the image, made smaller, where the network saw only a part.

    Examples:
        >>> seen = fei.service.look(model, images[:1], name="noise")
        >>> [guess.label for guess in seen.guesses][:1] == [model.label(int(seen.probabilities.argmax()))]
        True
    """

    name: str
    source: str | None
    inputs: Tensor
    size: tuple[int, int]
    probabilities: Tensor
    guesses: tuple[Guess, ...]
    seconds: float = 0.0
    whole: Whole | None = None


def look(model: nn.Module, image: ImageSource | Tensor, *, name: str | None = None) -> Look:
    """Read an image and let a network see it.

    Args:
        model: The network, in evaluation mode.
        image: A file or a PIL image, if the network says how it takes these; or its input (1, C, H, W).
        name: What to call the image; by default as its file.

    Raises:
        InputError: If the network does not take files, or there is no such file.
        DataError: If the file cannot be read.
        ModelError: If the network does not say anything that can be used.

    Examples:
        >>> seen = fei.service.look(model, "photos/a.png")
        >>> seen.name, seen.size, tuple(seen.inputs.shape)
        ('a.png', (20, 20), (1, 3, 16, 16))
    """
    source = os.fspath(image) if isinstance(image, str | os.PathLike) else None
    if isinstance(image, Tensor):
        inputs, size, whole = image, (image.shape[3], image.shape[2]), None
    else:
        preprocess = getattr(model, "preprocess", None)
        if preprocess is None:
            raise InputError("This network does not say how it takes files; give its inputs as a tensor (N, C, H, W).")
        pixels = to_rgb(image) if isinstance(image, Image.Image) else read_image(image)
        device = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
        inputs, size, whole = preprocess(pixels)[None].to(device), pixels.size, whole_of(model, pixels)
    started = time.perf_counter()
    with torch.no_grad():
        logits = logits_of(model(inputs.clone()), 1).float()[0]
        probabilities = logits.softmax(0) if len(logits) > 1 else logits.sigmoid()  # a softmax of one is always 1
    seconds = time.perf_counter() - started
    if not probabilities.isfinite().all():
        raise ModelError(
            f"The network{_called(model)} returns NaN or infinite values for this image; check its weights and its "
            "input range."
        )
    called = name or ("image" if source is None else Path(source).name)
    best = tuple(guesses(model, probabilities[None])[0])
    return Look(called, source, inputs, size, probabilities, best, seconds, whole)


def whole_of(model: nn.Module, pixels: Image.Image) -> Whole | None:
    """All of an image, upright RGB, made smaller, where the network says that it sees only a part."""
    box = model.seen_part(pixels.size) if isinstance(model, Classifier) else (0.0, 0.0, *map(float, pixels.size))
    if max(abs(one - other) for one, other in zip(box, (0, 0, *pixels.size), strict=True)) <= _SLIVER:
        return None
    small = pixels.copy()
    small.thumbnail((_LONGEST, _LONGEST))
    return Whole(small, [value * small.width / pixels.width for value in box])


def guesses(model: nn.Module, probabilities: Tensor) -> list[list[Guess]]:
    """The best classes of each row of probabilities, the best first."""
    best, classes = top_classes(probabilities, _BEST)
    return [
        [Guess(index, label(model, index), value) for index, value in zip(indices, values, strict=True)]
        for indices, values in zip(classes.tolist(), best.tolist(), strict=True)
    ]


def label(model: nn.Module, index: int) -> str:
    """What a network calls a class."""
    name: Any = getattr(model, "label", None)
    return str(name(index)) if callable(name) else f"class {index}"


def load_network(spec: str, device: torch.device) -> Classifier:
    """Load a network and try it out on grey: one that fails should fail before the work.

    Raises:
        InputError: If there is no such network.
        ModelError: If it cannot be loaded, or does not work.

    Examples:
        >>> fei.service.load_network("net.py:net", torch.device("cpu")).label(1)
        'dark'
    """
    classifier = models.load(spec).to(device)
    count_classes(classifier, device)
    return classifier


def count_classes(classifier: Classifier, device: torch.device) -> int:
    """How many classes a network tells apart, from a look at grey.

    Raises:
        ModelError: If it does not work.
    """
    side = classifier.input_size
    try:
        with torch.no_grad():
            logits = classifier(torch.full((1, 3, side, side), 0.5, device=device))
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"The network{_called(classifier)} fails on an image of {side} × {side} pixels ({in_brief(error)}); it "
            "must take RGB in [0, 1] of shape (N, 3, H, W)."
        ) from error
    if logits.ndim != 2:
        raise ModelError(
            f"The network{_called(classifier)} returns the shape {tuple(logits.shape)} for one image; it must return "
            "logits of shape (1, classes)."
        )
    probe(classifier, device)
    return int(logits.shape[1])


def probe(classifier: Classifier, device: torch.device) -> None:
    """See that a network's answer to an image is its own: the same each time, and whatever else is in the batch.

    An image of noise is shown to it alone, and with another one. Where the answers differ by more than rounding, it is
    shown alone once more, to tell why.

    Raises:
        ModelError: If they do.
    """
    side = classifier.input_size
    noise = torch.rand((2, 3, side, side), generator=torch.Generator().manual_seed(0)).to(device)

    def answer(rows: Tensor) -> Tensor:
        return logits_of(classifier(rows.clone()), len(rows))

    try:
        with torch.no_grad():
            alone, together = answer(noise[:1]), answer(noise)
            if _alike(alone, together[:1]):
                return
            again = answer(noise[:1])
    except Exception:  # it takes one row at a time, or no noise; whoever asks more of it is told
        return
    if (alone - again).abs().max() > (alone - together[:1]).abs().max() / 10:
        raise ModelError(
            f"The network{_called(classifier)} gives the same image other values at each call; switch off what is "
            "random in it, such as dropout that is written as a function."
        )
    raise ModelError(
        f"The network{_called(classifier)} gives an image other values when there are others in the batch, as "
        "batch normalisation without stored statistics does; have it compute each row by itself."
    )


def _alike(first: Tensor, second: Tensor) -> bool:
    """Whether logits differ by no more than rounding does; where they are no numbers, nothing is said."""
    if not (first.isfinite().all() and second.isfinite().all()):
        return True
    slack = max(_SLACK, 64 * torch.finfo(first.dtype).eps) if first.is_floating_point() else _SLACK
    return float((first - second).abs().max()) <= slack * float(first.abs().max())


def _called(model: nn.Module) -> str:
    spec = getattr(model, "spec", "")
    return f" '{spec}'" if spec else ""
