"""hf:ID, image classifiers of Hugging Face, from the hub or from a folder."""

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from fei.common.words import first_few, in_brief
from fei.errors import InputError, ModelError
from fei.models.classifier import Classifier
from fei.models.sources._checkpoint import Checkpoint, build_for, load_checkpoint
from fei.models.sources._download import fetch_folder_from_hub
from fei.models.sources._image_text import is_image_text, load_image_text
from fei.models.sources._packages import import_beside_torchvision

_BILINEAR = 2  # Pillow's number of it


def load_from_hf(name: str, checkpoint: Checkpoint | None) -> Classifier:
    """Load an image classifier that the transformers library knows, with the preprocessing that belongs to it.

    Only .safetensors files are read, and no code that comes with a model is ever run. The name is the ID of a model on
    the hub, such as "google/vit-base-patch16-224", or a folder with one. With a checkpoint only the configuration is
    downloaded.
    """
    transformers = import_beside_torchvision("transformers", "hf")
    if not name:
        raise InputError("The model's ID is missing after 'hf:'; write hf:ID, or hf:path/to/folder.")
    folder = Path(name)
    if not folder.is_dir():
        patterns, needed = ["config.json", "preprocessor_config.json"], "config.json"
        if checkpoint is None:
            weights = ["*.safetensors", "*.safetensors.index.json", "tokenizer*", "vocab*", "merges.txt", "*_map.json"]
            patterns, needed = [*patterns, *weights], "model*.safetensors"
        advice = "download the model elsewhere and name its folder: hf:path/to/folder"
        folder = fetch_folder_from_hub(name, patterns, needed=needed, advice=advice)
    try:
        if checkpoint is None and not _has_safetensors(folder):
            raise ModelError(
                f"The model '{name}' has no complete .safetensors file, and no other format is read, since it could "
                "run code; convert it with save_pretrained(..., safe_serialization=True)."
            )
        with ExitStack() as after:  # no progress bars and no advice meanwhile
            logging = transformers.utils.logging
            after.callback(logging.set_verbosity, logging.get_verbosity())
            if logging.is_progress_bar_enabled():
                after.callback(logging.enable_progress_bar)
            logging.set_verbosity_error()
            logging.disable_progress_bar()
            _refuse_kernels(folder / "config.json", name)
            config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
            processor = transformers.AutoImageProcessor.from_pretrained(folder, trust_remote_code=False).to_dict()
            if is_image_text(config):
                if checkpoint is not None:
                    raise ModelError(f"The model '{name}' compares images with texts; leave the checkpoint out.")
                return Classifier(load_image_text(transformers, folder), **_preprocessing(processor, name))
            if checkpoint is None:
                network, changed = _with_weights(transformers, folder, name), 0
            else:
                network, changed = build_for(checkpoint, partial(_build, transformers, config))
        names = [str(config.id2label[index]) for index in sorted(config.id2label)]
        labels = None if changed or all(name == f"LABEL_{index}" for index, name in enumerate(names)) else names
        classifier = Classifier(network, labels=labels, **_preprocessing(processor, name))
    except ModelError:
        raise
    except Exception as error:  # transformers raises nearly anything on a model of another kind
        needed = "it must be an image classifier that transformers knows without code of its own"
        raise ModelError(f"The model '{name}' cannot be loaded ({in_brief(error)}); {needed}.") from error
    return load_checkpoint(classifier, checkpoint, changed)


def _refuse_kernels(file: Path, name: str) -> None:
    """Refuse a configuration that has transformers fetch code from the hub for some of its layers."""
    rest: list[Any] = [json.loads(file.read_text(encoding="utf-8"))]
    while rest:
        value = rest.pop()
        rest += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for key in value if isinstance(value, dict) else ():
            if "implementation" in key and "/" in str(value[key]):
                raise ModelError(f"The model '{name}' names code in '{key}' of its config.json; take that line out.")


def _has_safetensors(folder: Path) -> bool:
    """Whether the weights are there as one .safetensors file, or as all the parts that an index lists."""
    parts, index = ["model.safetensors"], folder / "model.safetensors.index.json"
    if not (folder / parts[0]).is_file() and index.is_file():
        parts = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    return all((folder / part).is_file() for part in parts)


def _with_weights(transformers: ModuleType, folder: Path, name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):  # what is drawn is overwritten, or refused below
        network: nn.Module
        network, report = transformers.AutoModelForImageClassification.from_pretrained(
            folder, use_safetensors=True, trust_remote_code=False, local_files_only=True, output_loading_info=True
        )
    if report["missing_keys"]:
        missing = first_few(sorted(report["missing_keys"]))
        raise ModelError(f"The model '{name}' has no weights for {missing}; choose a trained image classifier.")
    return network


def _build(transformers: ModuleType, config: Any, num_classes: int | None = None) -> nn.Module:
    if num_classes is not None:
        config.num_labels = num_classes
    network: nn.Module = transformers.AutoModelForImageClassification.from_config(config, trust_remote_code=False)
    return network


def _preprocessing(processor: dict[str, Any], name: str) -> dict[str, Any]:
    """How images are prepared, from the settings of an image processor."""
    size = processor.get("size") or {}
    squash = "height" in size
    sides = {size.get("height"), size.get("width")} if squash else {size.get("shortest_edge")}
    crop = processor.get("crop_size") if processor.get("do_center_crop") else None
    crop_sides = {crop["height"], crop["width"]} if crop else sides
    if len(sides) != 1 or len(crop_sides) != 1 or not isinstance(resize := sides.pop(), int):
        raise ModelError(f"The model '{name}' takes images of the size {crop or size}; choose one for square images.")
    input_size = crop["height"] if crop else resize
    if (portion := processor.get("crop_pct")) is not None and not squash:
        # ConvNeXt's and PoolFormer's: the size is what is left, except that large images are not cropped.
        squash = resize >= 384 and crop is None
        resize = resize if squash else int(resize / portion)
    # From values in [0, 1] instead of those that the processor's factor gives.
    unit = 255 * processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 255
    given = processor if processor.get("do_normalize", True) else {"image_mean": (0.0,) * 3, "image_std": (1.0,) * 3}
    return {
        "mean": [value / unit for value in given["image_mean"]],
        "std": [value / unit for value in given["image_std"]],
        "input_size": input_size,
        "resize": resize,
        "interpolation": "bilinear" if processor.get("resample") == _BILINEAR else "bicubic",
        "squash": squash,
    }
