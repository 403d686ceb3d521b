"""All weights of a network trained further, by Adam."""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fei.data import Dataset, Item
from fei.errors import ModelError
from fei.models.classifier import Classifier
from fei.models.structure import find_head
from fei.progress import Progress, reporter

_PATIENCE = 3


class TrainingSettings(NamedTuple):
    """How all weights are trained: what the weights of the last layer cost, and the options of `finetune`."""

    penalty: float
    epochs: int
    lr: float
    batch_size: int
    seed: int


class Training(NamedTuple):
    """How a training went."""

    epochs: int  # the passes completed
    best_epoch: int  # the one whose weights were kept; 0 for those before the first
    interrupted: bool  # whether Ctrl-C ended it


def train_whole(
    classifier: Classifier, data: Dataset, held: Dataset | None, settings: TrainingSettings, progress: bool | Progress
) -> Training:
    """Minimise the cross-entropy + penalty/2 ‖W‖², W being the weights of the last layer, over all weights.

    The weights of the epoch with the lowest cross-entropy are kept: on the images held out, or without them on
    those trained on, during the epoch. Three epochs without a lower one end the training, and so does Ctrl-C. The
    network is in evaluation mode and stays so; its weights are changed in place. Weights that cannot be trained, or a
    loss that becomes infinite, are a ModelError.
    """
    held_ids = {item.id for item in held or ()}
    items = [item for item in data if item.id not in held_ids]
    generator = torch.Generator().manual_seed(settings.seed)
    weights = [weight for weight in classifier.parameters() if weight.is_floating_point()]
    flags = [weight.requires_grad for weight in weights]
    adam = torch.optim.Adam([weight.requires_grad_() for weight in weights], settings.lr)
    head = find_head(classifier)[1].weight
    best, best_epoch, done, lowest, interrupted = deepcopy(classifier.state_dict()), 0, 0, math.inf, False
    with reporter(progress, settings.epochs * len(items) + (settings.epochs + 1) * len(held_ids)) as tick:
        try:
            if held is not None:
                lowest = _loss(classifier, held, settings.batch_size, tick)
            while done < settings.epochs and done - best_epoch < _PATIENCE:
                loss = _epoch(classifier, head, adam, items, settings, generator, tick)
                loss = loss if held is None else _loss(classifier, held, settings.batch_size, tick)
                done += 1
                if loss < lowest:
                    best, best_epoch, lowest = deepcopy(classifier.state_dict()), done, loss
        except KeyboardInterrupt:
            interrupted = True
        finally:
            classifier.load_state_dict(best)
            for weight, flag in zip(weights, flags, strict=True):
                weight.grad = None
                weight.requires_grad_(flag)
    return Training(done, best_epoch, interrupted)


def _epoch(
    classifier: Classifier,
    head: Tensor,
    adam: torch.optim.Adam,
    items: Sequence[Item],
    settings: TrainingSettings,
    generator: torch.Generator,
    tick: Callable[[], None],
) -> float:
    """Take a step for each batch, in random order; returns the mean cross-entropy on the way."""
    total = 0.0
    order = torch.randperm(len(items), generator=generator)
    for chosen in order.split(settings.batch_size):
        batch = [items[index] for index in chosen.tolist()]
        mirrored = torch.rand(len(batch), generator=generator) < 0.5
        inputs, labels = _read(classifier, batch)
        inputs = torch.where(mirrored.to(inputs.device)[:, None, None, None], inputs.flip(-1), inputs)
        loss = F.cross_entropy(classifier(inputs).float(), labels)
        if not loss.requires_grad:
            network = type(classifier.network).__name__
            raise ModelError(f"The network {network} lets no gradient through; leave out --whole.")
        if not loss.isfinite():
            raise ModelError("The loss of the training became NaN or infinite; give a smaller learning rate with --lr.")
        adam.zero_grad()
        torch.autograd.backward(loss + settings.penalty / 2 * head.float().square().sum())
        adam.step()
        total += loss.item() * len(batch)
        for _ in batch:
            tick()
    return total / len(items)


@torch.no_grad()
def _loss(classifier: Classifier, data: Dataset, batch_size: int, tick: Callable[[], None]) -> float:
    """The mean cross-entropy."""
    total = 0.0
    for start in range(0, len(data), batch_size):
        inputs, labels = _read(classifier, data[start : start + batch_size])
        total += F.cross_entropy(classifier(inputs).float(), labels, reduction="sum").item()
        for _ in labels:
            tick()
    return total / len(data)


def _read(classifier: Classifier, items: Sequence[Item]) -> tuple[Tensor, Tensor]:
    like = next(classifier.parameters())
    inputs = torch.stack([classifier.preprocess(item.path) for item in items])
    return inputs.to(like), torch.tensor([item.label for item in items], device=like.device)
