"""A network for classes of the user's own: a new last layer on its features, or all of its weights trained further."""

import contextlib
import copy
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as serialize

from fei.common.files import write_file
from fei.common.words import in_brief
from fei.core.checks import check_count
from fei.data import Dataset
from fei.errors import InputError, ModelError
from fei.models.classifier import Classifier
from fei.models.finetune._data import class_names, hold_out, labelled
from fei.models.finetune._features import batches, extract
from fei.models.finetune._head import WEIGHT_DECAY, fit_head, install
from fei.models.finetune._whole import Training, TrainingSettings, train_whole
from fei.models.structure import find_head, replace_head
from fei.progress import Progress

STEPS = 500
"""How often the objective of a new last layer is evaluated at most."""
EPOCHS = 20
"""Passes over the images with all weights at most."""
LR = 1e-5
"""The step size with all weights."""
BATCH_SIZE = 16
"""Images in one pass."""


@dataclass(frozen=True)
class Finetuned:
    """A network after training.

    Attributes:
        classifier: The network, in evaluation mode, with the names of the new classes.
        head: The name of the new last layer among the modules of `classifier`.
        images: How many images there were to train on, those of the validation among them.
        validation_images: How many of them chose the weight decay, and ended the training of the whole network.
        trained_classes: How many classes had an image.
        accuracy: The share of training images that it gets right; None where Ctrl-C came before it was known.
        weight_decay: The λ that was used.
        steps: How often the objective of the last layer was evaluated.
        epochs: Passes over the images with all weights; 0 where only the last layer was trained.
        best_epoch: The one whose weights these are; 0 for those before the first.
        interrupted: Whether Ctrl-C ended the training early; the network is then the best one so far.
        skipped: A sentence for each image that could not be read.

    Examples:
        >>> from fei.models.finetune import finetune
        >>> found = finetune(fei.models.load("net.py:net?mean=none"), fei.data.load("imagefolder:classes"))
        >>> found.images, found.trained_classes, found.epochs
        (8, 2, 0)
    """

    classifier: Classifier
    head: str
    images: int
    validation_images: int
    trained_classes: int
    accuracy: float | None
    weight_decay: float
    steps: int
    epochs: int
    best_epoch: int
    interrupted: bool
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Score:
    """How often a network is right.

    Attributes:
        correct: On how many images its highest logit is that of the label.
        images: Of how many.
        skipped: A sentence for each image that could not be read.

    Examples:
        >>> from fei.models.finetune import Score
        >>> Score(correct=3, images=4, skipped=()).accuracy
        0.75
    """

    correct: int
    images: int
    skipped: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """The share of images that it gets right."""
        return self.correct / self.images


def finetune(
    classifier: Classifier,
    data: Dataset,
    *,
    whole: bool = False,
    epochs: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    batch_size: int = BATCH_SIZE,
    seed: int = 0,
    progress: bool | Progress = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Finetuned:
    """Train a copy of a network on images of other classes.

    The last layer, linear or a 1 × 1 convolution, is replaced. Its input on each image, averaged over positions,
    is computed once; multinomial logistic regression then gives its weights, which is convex and needs no learning
    rate: (1/N) Σ cross-entropy + λ/2 ‖W‖², on features that are centred and brought to one common scale. λ is chosen on
    a fifth of the images if each class has five, and is `WEIGHT_DECAY` if not.

    The layer has an output for each class on the data set's list, so that labels stay valid. A class without an
    image gets the weight zero and a logit 30 below the average of the others, so a probability below e⁻³⁰.
    Where a ReLU follows the layer, a constant is added to all biases, which the softmax does not see, to disable it.

    With `whole`, Adam then minimises the same objective over all weights, with images mirrored at random. The network
    stays in evaluation mode: BatchNorm keeps its statistics and nothing is dropped out. The weights of the epoch with
    the lowest cross-entropy are kept, on the held-out fifth if there is one; three epochs without a lower one end it.
    Neither step trains on the fifth then. With too few images to hold one out, the last layer alone is the better
    choice.

    Ctrl-C ends the training, not the call: the best weights so far are returned. While the features are computed there
    are none yet, and it does end the call.

    Args:
        classifier: The network to start from. It is not changed.
        data: Images with labels.
        whole: Train all weights, not only the last layer.
        epochs: The most passes over the images: iterations of L-BFGS, 500 by default, or with `whole` epochs of Adam,
            20 by default.
        lr: The step of Adam, 1e-5 by default; only with `whole`.
        weight_decay: λ.
        batch_size: Images in one forward pass.
        seed: For the held-out fifth, and with `whole` for order and mirroring. Global generators stay as they are.
        progress: Show a bar, or call this on (done, total).
        tell: Called with a few words on what begins.

    Returns:
        The trained copy, and how it went.

    Raises:
        InputError: If an option is out of range, or the data set has no labels.
        DataError: If fewer than two classes have an image that can be read.
        ModelError: If the network cannot be copied, has no last layer that makes its logits, or computes NaN.

    Examples:
        >>> from fei.models.finetune import finetune
        >>> found = finetune(fei.models.load("net.py:net?mean=none"), fei.data.load("imagefolder:classes"))
        >>> found.classifier.label(0), found.accuracy
        ('bright', 1.0)
    """
    _check_options(epochs, batch_size, seed, lr=lr, weight_decay=weight_decay)
    if lr is not None and not whole:
        raise InputError("`lr` is the step of the training of the whole network; leave it out, or use --whole.")
    data = labelled(data)
    names = class_names(data)
    network = _copied(classifier)
    name, head = find_head(network)
    tell(f"Computing the features of {len(data)} images")
    features = extract(network, head, data, batch_size, progress)
    data = replace(data, items=features.items)
    class_names(data)  # two classes must be left
    held = hold_out(data, seed)[1]
    tell("Fitting the last layer")
    steps = STEPS if whole or epochs is None else epochs
    bias = head.bias is not None
    fit = fit_head(features, held, weight_decay, bias=bias, refit=not whole, steps=steps, progress=progress)
    with torch.random.fork_rng(devices=[]):  # the new weights are drawn only to be overwritten
        replace_head(network, len(names))
    network.labels, network.spec = names, ""  # no specification means these weights yet
    exact = install(network, features, fit, len(names))
    if not (exact or whole):
        how = f"makes its logits of its last layer, '{name}', by more than averaging over positions"
        raise ModelError(f"The network {how}; train all of it (whole=True, --whole).")
    training = Training(0, 0, fit.interrupted)
    if whole and not fit.interrupted:
        tell("Training the whole network; Ctrl-C ends it and keeps the best so far")
        settings = TrainingSettings(fit.weight_decay * fit.scale**2, epochs or EPOCHS, lr or LR, batch_size, seed)
        training = train_whole(network, data, held, settings, progress)
    accuracy: float | None = fit.accuracy(features)
    if training.best_epoch or not exact:
        accuracy = None
        with contextlib.suppress(KeyboardInterrupt):
            if not training.interrupted:
                tell(f"Counting how many of the {len(data)} images it gets right")
                accuracy = measure(network, data, batch_size=batch_size, progress=progress).accuracy
    counts = (len(data), len(held or ()), len(features.classes))
    return Finetuned(network, name, *counts, accuracy, fit.weight_decay, fit.steps, *training, features.skipped)


def measure(
    classifier: Classifier, data: Dataset, *, batch_size: int = BATCH_SIZE, progress: bool | Progress = False
) -> Score:
    """Count how often a network's highest logit is that of the label.

    Args:
        classifier: The network, in evaluation mode.
        data: Images; those without a label are passed over.
        batch_size: Images in one forward pass.
        progress: Show a bar, or call this on (done, total).

    Returns:
        The score.

    Raises:
        InputError: If the network is in training mode, or no image has a label.
        DataError: If no image can be read.

    Examples:
        >>> from fei.models.finetune import finetune, measure
        >>> data = fei.data.load("imagefolder:classes")
        >>> measure(finetune(fei.models.load("net.py:net?mean=none"), data).classifier, data).correct
        8
    """
    if classifier.training:
        raise InputError("The network is in training mode; call its eval() first.")
    correct = images = 0
    skipped: list[str] = []
    for items, inputs in batches(classifier, labelled(data), batch_size, skipped, progress):
        with torch.no_grad():
            predicted = classifier(inputs).argmax(1).tolist()
        correct += sum(item.label == index for item, index in zip(items, predicted, strict=True))
        images += len(items)
    return Score(correct, images, tuple(skipped))


def save(classifier: Classifier, file: Path, *, spec: str, report: Mapping[str, Any]) -> None:
    """Write a network's weights to a .safetensors file, whole or not at all, for `fei.models.load("SPEC:FILE")`.

    Args:
        classifier: The network.
        file: Where to. Its folder must be there.
        spec: How the network was loaded, without a checkpoint; kept as "fei.spec".
        report: What is known of its training; kept as "fei.report", in JSON. The labels are kept as "fei.labels".

    Raises:
        InputError: If the name of the file ends otherwise.
        DataError: If the disk refuses.

    Examples:
        >>> from pathlib import Path
        >>> from fei.models.finetune import finetune, save
        >>> found = finetune(fei.models.load("net.py:net?mean=none"), fei.data.load("imagefolder:classes"))
        >>> save(found.classifier, Path("mine.safetensors"), spec="net.py:net", report={"images": found.images})
        >>> Path("mine.safetensors").exists()
        True
    """
    if file.suffix != ".safetensors":
        raise InputError(f"The file for the weights is '{file}'; give a name that ends in .safetensors.")
    # A clone of each: two names of one tensor are two tensors in the file.
    tensors = classifier.network.state_dict().items()
    state = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors}
    metadata = {"fei.spec": spec, "fei.report": json.dumps(dict(report), allow_nan=False)}
    if classifier.labels is not None:
        metadata["fei.labels"] = json.dumps(classifier.labels)
    write_file(file, serialize(state, metadata), what="weights")


def _check_options(epochs: int | None, batch_size: int, seed: int, **above_zero: float | None) -> None:
    if epochs is not None:
        check_count("epochs", epochs)
    check_count("batch_size", batch_size)
    for name, value in above_zero.items():
        if value is not None and not 0 < value < math.inf:
            usual = {"lr": LR, "weight_decay": WEIGHT_DECAY}[name]
            raise InputError(f"`{name}` is {value!r}; give a number above zero, such as {usual:g}.")
    if not isinstance(seed, int) or isinstance(seed, bool) or not -(2**63) <= seed < 2**63:
        raise InputError(f"`seed` is {seed!r}; give a whole number of at most 64 bits.")


def _copied(classifier: Classifier) -> Classifier:
    if not isinstance(classifier, Classifier):
        raise InputError(f"The network is a {type(classifier).__name__}; give a Classifier, as fei.models.load does.")
    try:
        return copy.deepcopy(classifier).eval()
    except Exception as error:  # a module may refuse to be copied in any way
        what = f"The network {type(classifier.network).__name__}, of which a copy is trained,"
        raise ModelError(f"{what} cannot be copied ({in_brief(error)}); make copy.deepcopy work on it.") from error
