"""torchvision:NAME, the classifiers of torchvision with their ImageNet weights."""

import fnmatch
import re
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from fei.common.words import suggestion
from fei.errors import InputError
from fei.models.classifier import IMAGENET_MEAN, IMAGENET_STD, Classifier
from fei.models.sources._checkpoint import Checkpoint, build_for, load_checkpoint, read_checkpoint
from fei.models.sources._download import fetch_url
from fei.models.sources._embedded import imagenet_labels
from fei.models.sources._packages import import_torchvision

# The paper's; of all others torchvision's DEFAULT is taken.
_DEFAULTS = {"resnet50": "IMAGENET1K_V1", "vgg16": "IMAGENET1K_V1"}

# They help in training only, and are not run afterwards.
_AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")

# How DenseNet's files of 2017 spell what is called norm1 and conv2 today.
_OLD_DENSENET = re.compile(r"(.*denselayer\d+\.(?:norm|conv))\.([12]\..*)")


def load_from_torchvision(name: str, checkpoint: Checkpoint | None) -> Classifier:
    """Build a classifier of torchvision, with its weights and the preprocessing that belongs to them.

    The default weights are torchvision's own DEFAULT, except for resnet50 and vgg16: there they are IMAGENET1K_V1, on
    which the paper's results rest. (The DEFAULT of ResNet50 is IMAGENET1K_V2, which was trained by another recipe.)

    The name is "NAME", "NAME@WEIGHTS" in upper or lower case, or "NAME@none" for random weights, ImageNet's mean and
    deviation, and 224 pixels (Inception: 299). With a checkpoint nothing is downloaded, and "@WEIGHTS" stands for the
    preprocessing.
    """
    models = import_torchvision().models
    name, _, wanted = name.partition("@")
    if name not in _names(models):
        hint = suggestion(name, _names(models), "check the name.")
        raise InputError(f"The package torchvision has no classifier '{name}', see fei models 'torchvision:*'; {hint}")
    weights = _choose_weights(models, name, wanted)
    if checkpoint is None and weights is not None:
        checkpoint = read_checkpoint(fetch_url(weights.url))
    if checkpoint is not None:
        checkpoint = replace(checkpoint, state=_todays_names(checkpoint.state))

    network, changed = build_for(checkpoint, partial(_build, models, name, weights, checkpoint is None))
    settings: dict[str, Any] = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD, "labels": imagenet_labels()}
    settings["input_size"] = 299 if name == "inception_v3" else 224
    settings = settings if weights is None else _of_weights(weights)
    return load_checkpoint(Classifier(network, **settings | ({"labels": None} if changed else {})), checkpoint, changed)


def torchvision_names(pattern: str) -> list[str]:
    """The names of torchvision's classifiers that match a pattern such as "res*"."""
    return fnmatch.filter(_names(import_torchvision().models), pattern)


def _names(models: ModuleType) -> list[str]:
    return sorted(models.list_models(module=models))


def _choose_weights(models: ModuleType, name: str, wanted: str) -> Any:
    """A member of the network's enumeration of weights, or None."""
    if wanted.casefold() == "none":
        return None
    known = models.get_model_weights(name)
    if not wanted:
        return known[_DEFAULTS.get(name, "DEFAULT")]
    for key, weights in known.__members__.items():  # DEFAULT among them
        if key.casefold() == wanted.casefold():
            return weights
    hint = suggestion(wanted, known.__members__, f"give one of {', '.join(known.__members__)} or none.")
    raise InputError(f"The network {name} of torchvision has no weights '{wanted}'; {hint}")


def _build(models: ModuleType, name: str, weights: Any, initialize: bool, **options: Any) -> nn.Module:
    """The architecture that weights are for, without them."""
    if name in ("googlenet", "inception_v3"):
        # Their weights are TensorFlow's, which were trained on another normalisation than ImageNet's usual one.
        options |= {"aux_logits": False, "transform_input": weights is not None}
    if name in ("googlenet", "inception_v3") or name.startswith("vgg"):
        options["init_weights"] = initialize
    if name.startswith("vit_") and weights is not None:
        options["image_size"] = weights.meta["min_size"][0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about how weights are drawn
        network: nn.Module = models.get_model(name, weights=None, **options)
    return network


def _todays_names(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """A state dict without auxiliary heads and old spellings."""
    kept = OrderedDict(
        (_OLD_DENSENET.sub(r"\1\2", key), tensor) for key, tensor in state.items() if not key.startswith(_AUXILIARY)
    )
    if hasattr(state, "_metadata"):  # the versions of the modules
        vars(kept)["_metadata"] = state._metadata
    return kept


def _of_weights(weights: Any) -> dict[str, Any]:
    """How images are prepared for certain weights."""
    transforms = weights.transforms()
    return {
        "mean": transforms.mean,
        "std": transforms.std,
        "input_size": transforms.crop_size[0],
        "resize": transforms.resize_size[0],
        "interpolation": transforms.interpolation.value,
        "labels": weights.meta["categories"],
    }
