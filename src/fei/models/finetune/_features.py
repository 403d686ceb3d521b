"""What the last layer of a network sees of each image, computed once."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from fei.common.words import in_brief
from fei.data import Dataset, Item
from fei.errors import DataError, ModelError
from fei.models.classifier import Classifier
from fei.progress import Progress, reporter


@dataclass(frozen=True)
class Features:
    """The input of a layer on images."""

    items: tuple[Item, ...]  # the images that could be read
    values: Tensor  # the input, averaged over positions, (N, features), on the CPU
    classes: Tensor  # those that occur, sorted
    labels: Tensor  # the class of each image as an index into `classes`
    sample: Tensor  # the first few images, as the network takes them
    skipped: tuple[str, ...]  # a sentence for each image that could not be read


def batches(
    classifier: Classifier, data: Dataset, size: int, skipped: list[str], progress: bool | Progress
) -> Iterator[tuple[list[Item], Tensor]]:
    """Read images for a network, `size` at a time; `skipped` gets a sentence for each that cannot be read.

    Yields items, and their pixels (n, 3, S, S) of the network's type and on its device. If none can be read, that is a
    DataError.
    """
    like = next(classifier.parameters())
    with reporter(progress, len(data)) as tick:

        def skip(_: Item, error: DataError) -> None:
            skipped.append(str(error))
            tick()

        readable = data.readable(classifier.preprocess, skip)
        while batch := list(islice(readable, size)):
            items, pixels = zip(*batch, strict=True)
            yield list(items), torch.stack(pixels).to(like)
            for _ in batch:
                tick()
    if len(skipped) == len(data):
        raise DataError(f"None of the {len(data)} images of '{data.spec}' can be read; the first: {skipped[0]}")


def extract(classifier: Classifier, layer: nn.Module, data: Dataset, size: int, progress: bool | Progress) -> Features:
    """Compute the input of a linear layer or convolution on images with labels, averaged over positions.

    The network is in evaluation mode. Where the layer runs several times in a pass, the last run counts. A network that
    fails on them, or computes NaN or infinite values, is a ModelError.
    """
    network = type(classifier.network).__name__
    width = layer.in_features if isinstance(layer, nn.Linear) else getattr(layer, "in_channels", None)
    seen: list[Tensor] = []
    items: list[Item] = []
    values: list[Tensor] = []
    skipped: list[str] = []
    sample = torch.empty(0)
    with layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach())), torch.no_grad():
        for some, pixels in batches(classifier, data, size, skipped, progress):
            try:
                classifier(pixels)
            except RuntimeError as error:  # out of memory among them
                why = f"{len(pixels)} images at once ({in_brief(error)})"
                raise ModelError(f"The network fails on {why}; try a smaller batch size.") from error
            pooled = _average(seen[-1], layer)
            seen.clear()
            if pooled.shape != (len(some), width):
                seen_now = f"{tuple(pooled.shape)} for {len(some)} images"
                raise ModelError(f"The last layer of {network} sees {seen_now}; one row for each image is needed.")
            sample = sample if items else pixels
            items += some
            values.append(pooled)
    features = torch.cat(values)
    if not features.isfinite().all():
        hint = "check its weights, and that it takes RGB in [0, 1]"
        raise ModelError(f"The network {network} computes NaN or infinite values for these images; {hint}.")
    classes, labels = torch.tensor([item.label for item in items]).unique(return_inverse=True)
    return Features(tuple(items), features, classes, labels, sample, tuple(skipped))


def _average(inputs: Tensor, layer: nn.Module) -> Tensor:
    """The mean over positions, which are behind the channels of a convolution and before those of a linear layer."""
    flat = inputs.flatten(2) if isinstance(layer, nn.Conv2d) else inputs.flatten(1, -2).mT if inputs.ndim > 2 else None
    return (inputs if flat is None else flat.double().mean(2)).float().cpu()
