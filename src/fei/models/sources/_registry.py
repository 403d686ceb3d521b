"""What a model specification can say. A new kind of network is one line in the table."""

import fnmatch
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fei.errors import InputError
from fei.models.classifier import Classifier
from fei.models.preprocessing import split_spec, tell
from fei.models.sources._checkpoint import Checkpoint, read_checkpoint
from fei.models.sources._embedded import load_efficientnet_lite0
from fei.models.sources._hf import load_from_hf
from fei.models.sources._own import load_from_file, load_from_package
from fei.models.sources._timm import load_from_timm, timm_names
from fei.models.sources._torchvision import load_from_torchvision, torchvision_names


class _Source(NamedTuple):
    """A kind of network: what it is, the pattern of its specification without a checkpoint, and its loader.

    The loader makes the classifier of the part of the pattern in brackets and of a checkpoint with weights to take
    instead, if there is one. It raises an InputError if there is no such network, and a ModelError if that cannot be
    used or downloaded, or the checkpoint does not fit, and a PackageError if its package is not installed.
    """

    summary: str
    pattern: str
    load: Callable[[str, Checkpoint | None], Classifier]


_SOURCES = {
    "efficientnet_lite0": _Source(
        "the network that comes with the install, ImageNet weights", r"(efficientnet_lite0)", load_efficientnet_lite0
    ),
    "torchvision:NAME[@WEIGHTS|@none][:checkpoint]": _Source(
        "a classifier of torchvision; @none: random weights", r"torchvision:([^:]*)", load_from_torchvision
    ),
    "timm:NAME[@none][:checkpoint]": _Source(
        "a classifier of timm; @none: random weights", r"timm:([^:]*)", load_from_timm
    ),
    "hf:ID[:checkpoint]": _Source(
        "an image classifier or image–text model of Hugging Face, or a folder with one",
        r"hf:((?:[A-Za-z]:[\\/])?[^:]*)",
        load_from_hf,
    ),
    "path/to/file.py:factory[:checkpoint]": _Source(
        "a function in a Python file that returns an nn.Module", r"(.+\.py(?::[^:]*)?)", load_from_file
    ),
    "package.module:factory[:checkpoint]": _Source(
        "such a function in an installed package", r"([A-Za-z_][\w.]*:[^:]*)", load_from_package
    ),
}

# Of the kinds that can be listed, by what their specifications begin with: the names that match a pattern.
_NAMES = {
    "": lambda pattern: fnmatch.filter(["efficientnet_lite0"], pattern),
    "torchvision:": torchvision_names,
    "timm:": timm_names,
}

_CHECKPOINT = r"(?::((?:[A-Za-z]:[\\/])?[^:]*))?"  # a colon is that of a Windows drive, or starts something new


def available(pattern: str | None = None) -> list[str]:
    """How the networks that `load` knows are written.

    Args:
        pattern: Such as "torchvision:res*" or "timm:*vit*": list the networks of that name instead.

    Returns:
        Names, and forms to fill in; with a pattern, specifications as `load` takes them.

    Raises:
        InputError: If it is the pattern of a kind of network that cannot be listed.
        PackageError: If the package that has them is not installed.

    Examples:
        >>> fei.models.available()[0]
        'efficientnet_lite0'
    """
    if pattern is None:
        return list(_SOURCES)
    prefix = pattern[: pattern.find(":") + 1]
    if prefix not in _NAMES:
        raise InputError(f"'{pattern}' cannot be listed; give a pattern such as 'torchvision:res*' or 'timm:*vit*'.")
    return [prefix + name for name in _NAMES[prefix](pattern.removeprefix(prefix))]


def describe(form: str) -> str:
    """What one of the forms that `available` lists stands for, in a few words.

    Examples:
        >>> fei.models.describe("efficientnet_lite0")
        'the network that comes with the install, ImageNet weights'
    """
    return _SOURCES[form].summary


def load(spec: str) -> Classifier:
    """Load a network, in evaluation mode, on the CPU.

    Args:
        spec: Which one, as one of

            - "efficientnet_lite0": with ImageNet weights; it comes with the install.
            - "torchvision:NAME", "torchvision:NAME@WEIGHTS": with ImageNet weights. The default ones are torchvision's
              DEFAULT, except IMAGENET1K_V1, the paper's, for resnet50 and vgg16 (the DEFAULT of ResNet50 is V2).
            - "timm:ARCHITECTURE", "timm:ARCHITECTURE.TAG": with the weights that timm has for it.
            - "hf:ID" or "hf:path/to/folder": an image classifier of Hugging Face.
            - "path/to/file.py:factory", "package.module:factory": what a function of yours returns, called without
              arguments: an `nn.Module` on RGB in [0, 1], which may carry `input_size`, `labels` and `feature_layers`.

            "@none" after a name of torchvision or timm asks for random weights. ":checkpoint" after any of them names a
            .safetensors, .pt or .pth file with weights to load instead; where it is for another number of classes, the
            network's last layer is replaced to fit it. "?mean=imagenet&labels=names.txt" at the end says what images
            the network was trained on and what its classes are called, see `fei.models.preprocessing`.

    Returns:
        The network as a `Classifier`.

    Raises:
        InputError: If the specification names nothing that exists.
        ModelError: If the network or its weights were found and cannot be used, or cannot be downloaded.
        PackageError: If the package that has the network is not installed.

    Examples:
        >>> fei.models.load("net.py:net?mean=none").label(0)
        'bright'
    """
    if not isinstance(spec, str):
        raise InputError(f"The model is given as a {type(spec).__name__}; give a string: {', '.join(available())}.")
    bare, told = split_spec(spec)
    for source in _SOURCES.values():
        if match := re.fullmatch(source.pattern + _CHECKPOINT, bare):
            name, file = match.groups()
            classifier = source.load(name, read_checkpoint(Path(file)) if file else None)
            tell(classifier, told)
            classifier.spec = spec
            return classifier.eval()
    raise InputError(f"There is no model '{spec}'; give one of: {', '.join(available())}.")
