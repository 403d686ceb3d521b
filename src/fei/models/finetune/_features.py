"""What the last layer of a network sees of each image, computed once."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fei.common.words import in_brief
from fei.data import Dataset, Item
from fei.errors import DataError, ModelError
from fei.models.classifier import Classifier
from fei.models.finetune._logistic import Fit
from fei.progress import Progress, reporter


@dataclass(frozen=True)
class Features:
    """The input of a layer on images.

    Attributes:
        items: The images that could be read.
        values: The input, averaged over positions, (N, features), on the CPU.
        classes: The classes that occur, sorted.
        labels: The class of each image as an index into `classes`.
        sample: The first few images, as the network takes them.
        skipped: A sentence for each image that could not be read.
    """

    items: tuple[Item, ...]
    values: Tensor
    classes: Tensor
    labels: Tensor
    sample: Tensor
    skipped: tuple[str, ...]

    def accuracy(self, fit: Fit) -> float:
        """The share of images that a fit on these features gets right."""
        return (fit.logits(self.values).argmax(1) == self.labels).double().mean().item()


def batches(
    classifier: Classifier, data: Dataset, size: int, skipped: list[str], progress: bool | Progress
) -> Iterator[tuple[list[Item], Tensor]]:
    """Read images for a network, several at a time.

    Args:
        classifier: The network that they are prepared for.
        data: The images.
        size: How many at a time.
        skipped: Gets a sentence for each that cannot be read.
        progress: Show a bar, or call this on (done, total), both in images.

    Yields:
        Items, and their pixels (n, 3, S, S) of the network's type and on its device.

    Raises:
        DataError: If none of them can be read.
    """
    like = next(classifier.parameters())
    with reporter(progress, len(data)) as tick:

        def skip(_: Item, error: DataError) -> None:
            skipped.append(str(error))
            tick()

        items: list[Item] = []
        pixels: list[Tensor] = []
        for item, prepared in data.readable(classifier.preprocess, skip):
            items.append(item)
            pixels.append(prepared)
            if len(items) == size:
                yield items, torch.stack(pixels).to(like)
                for _ in items:
                    tick()
                items, pixels = [], []
        if items:
            yield items, torch.stack(pixels).to(like)
            for _ in items:
                tick()
    if len(skipped) == len(data):
        raise DataError(f"None of the {len(data)} images of '{data.spec}' can be read; the first: {skipped[0]}")


def extract(classifier: Classifier, layer: nn.Module, data: Dataset, size: int, progress: bool | Progress) -> Features:
    """Compute the input of a layer on images, averaged over positions.

    Args:
        classifier: The network, in evaluation mode.
        layer: Its linear layer or convolution; where it runs several times, the last run counts.
        data: The images, each with a label.
        size: How many in one forward pass.
        progress: Show a bar, or call this on (done, total).

    Returns:
        The features.

    Raises:
        DataError: If no image can be read.
        ModelError: If the network fails on them, or computes NaN or infinite values.
    """
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    items: list[Item] = []
    values: list[Tensor] = []
    skipped: list[str] = []
    sample = torch.empty(0)
    try:
        for some, pixels in batches(classifier, data, size, skipped, progress):
            _run(classifier, pixels)
            pooled = _average(seen[-1], layer)
            seen.clear()
            if pooled.shape != (len(some), _inputs(layer)):
                raise ModelError(
                    f"The last layer of {type(classifier.network).__name__} sees {tuple(pooled.shape)} for {len(some)} "
                    "images, so that it cannot be trained on them; one row for each is needed."
                )
            sample = sample if items else pixels
            items += some
            values.append(pooled)
    finally:
        handle.remove()
    features = torch.cat(values)
    if not features.isfinite().all():
        raise ModelError(
            f"The network {type(classifier.network).__name__} computes NaN or infinite values for these images; "
            "check its weights and that it takes RGB in [0, 1]."
        )
    classes, labels = torch.tensor([item.label for item in items]).unique(return_inverse=True)
    return Features(tuple(items), features, classes, labels, sample, tuple(skipped))


def _run(classifier: Classifier, pixels: Tensor) -> None:
    try:
        with torch.no_grad():
            classifier(pixels)
    except RuntimeError as error:  # out of memory among them
        raise ModelError(
            f"The network fails on {len(pixels)} images at once ({in_brief(error)}); try a smaller batch size."
        ) from error


def _average(inputs: Tensor, layer: nn.Module) -> Tensor:
    """The mean over positions, which are behind the channels of a convolution and before those of a linear layer."""
    flat = inputs.flatten(2) if isinstance(layer, nn.Conv2d) else inputs.flatten(1, -2).mT if inputs.ndim > 2 else None
    return (inputs if flat is None else flat.double().mean(2)).float().cpu()


def _inputs(layer: nn.Module) -> int | None:
    return layer.in_features if isinstance(layer, nn.Linear) else getattr(layer, "in_channels", None)
