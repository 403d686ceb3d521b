"""timm:NAME, the classifiers of timm with their weights."""

import fnmatch
import math
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from fei.common.words import in_brief, suggestion
from fei.errors import InputError, ModelError
from fei.models.classifier import Classifier
from fei.models.sources._checkpoint import Checkpoint, build_for, load_checkpoint
from fei.models.sources._download import fetch_from_hub, fetch_url
from fei.models.sources._packages import import_beside_torchvision

_IMAGENET = 1000


def load_from_timm(name: str, checkpoint: Checkpoint | None) -> Classifier:
    """Build a classifier of timm, with its weights and the preprocessing that belongs to them.

    The name is "ARCHITECTURE" for its default weights, "ARCHITECTURE.TAG" for certain ones, either with "@none" for
    random weights. With a checkpoint nothing is downloaded.
    """
    timm = import_beside_torchvision("timm", "timm")
    name, _, wanted = name.partition("@")
    if wanted.casefold() not in ("", "none"):
        hint = f"write timm:ARCHITECTURE.TAG, or timm:{name}@none for random weights"
        raise InputError(f"The weights of timm are not named with '@{wanted}'; {hint}.")
    known = [*timm.list_models(), *timm.list_pretrained()]
    if name not in known:
        hint = suggestion(name, known, "check the name.")
        raise InputError(f"The package timm has no network '{name}', see fei models 'timm:*'; {hint}")
    if wanted or checkpoint is not None:
        network, changed = build_for(checkpoint, partial(timm.create_model, name))
    else:
        network, changed = _build_with_weights(timm, name), 0
    named = network.num_classes == _IMAGENET and not changed
    labels = timm.data.ImageNetInfo().label_descriptions() if named else None
    classifier = Classifier(network, labels=labels, **_preprocessing(timm, network, name))
    return load_checkpoint(classifier, checkpoint, changed)


def timm_names(pattern: str) -> list[str]:
    """What to write after "timm:" for all networks whose name matches a pattern such as "resnet50*".

    Networks with weights are named with their tag, those without with "@none".
    """
    timm = import_beside_torchvision("timm", "timm")
    tagged = timm.list_pretrained()
    with_weights = {name.partition(".")[0] for name in tagged}
    names = [*tagged, *(f"{name}@none" for name in timm.list_models() if name not in with_weights)]
    return sorted(name for name in names if fnmatch.fnmatchcase(name.removesuffix("@none"), pattern))


def _build_with_weights(timm: ModuleType, name: str) -> nn.Module:
    config = timm.models.get_pretrained_cfg(name)
    if config is None or not config.has_weights:
        raise InputError(f"'{name}' has no weights in timm; write timm:{name}@none, or add ':' and a checkpoint.")
    if config.hf_hub_id:
        # Of the hub where timm keeps them, in the safe format if there is one.
        named = config.hf_hub_filename or "pytorch_model.bin"
        safe = {"pytorch_model.bin": "model.safetensors"}.get(named, str(Path(named).with_suffix(".safetensors")))
        names = [safe, named] if named.endswith(".bin") else [named]
        advice = f"download it elsewhere and name it as a checkpoint: timm:{name}:path/to/{names[0]}"
        file = fetch_from_hub(config.hf_hub_id, names, advice=advice)
    else:
        file = fetch_url(config.url)
    try:
        with torch.random.fork_rng(devices=[]):  # the initial weights are drawn only to be overwritten
            # The file is named since timm would ask the hub again, and wait long where it does not answer.
            network: nn.Module = timm.create_model(name, pretrained=True, pretrained_cfg_overlay={"file": str(file)})
            return network
    except Exception as error:  # a damaged file makes timm raise nearly anything
        wrong = f"The weights {file} of timm's {name} cannot be read ({in_brief(error)})"
        raise ModelError(f"{wrong}; delete them to download them again.") from error


def _preprocessing(timm: ModuleType, network: nn.Module, name: str) -> dict[str, Any]:
    config = timm.data.resolve_model_data_config(network)
    channels, height, width = config["input_size"]
    if channels != 3 or height != width:
        shape = config["input_size"]
        raise ModelError(f"The network {name} of timm takes inputs of shape {shape}; choose one for square RGB images.")

    return {
        "mean": config["mean"],
        "std": config["std"],
        "input_size": height,
        "resize": math.floor(height / config["crop_pct"]),
        "interpolation": "bilinear" if config["interpolation"] == "bilinear" else "bicubic",
        "squash": config["crop_mode"] == "squash",
    }
