"""Weights from a file, as tensors and nothing else."""

import json
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from fei.common.words import first_few, in_brief
from fei.errors import InputError, ModelError
from fei.models._forward import grey_image, observe
from fei.models._head import find_head, replace_head
from fei.models._pickles import look_through
from fei.models.classifier import Classifier


@dataclass(frozen=True)
class Metadata:
    """What a .safetensors file says of its weights, beside them.

    Attributes:
        labels: The names of the classes, from the key "fei.labels" (a JSON list).
        spec: The network they were made for, as `fei.models.load` takes it, from the key "fei.spec".
    """

    labels: list[str] | None = None
    spec: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """The content of a file of weights.

    Attributes:
        file: Where it came from.
        state: The tensors by name.
        metadata: What the file says of them.
    """

    file: Path
    state: Mapping[str, Tensor]
    metadata: Metadata


def read_checkpoint(file: Path) -> Checkpoint:
    """Read a file of weights; one that wants to run code is refused.

    Args:
        file: A .safetensors file, or a .pt or .pth file with a state dict, as it is or under "state_dict" or "model".

    Returns:
        Its tensors, on the CPU, and its metadata.

    Raises:
        InputError: If there is no such file, or its name ends otherwise.
        ModelError: If it is damaged, or holds other things than tensors.
    """
    if file.suffix not in (".safetensors", ".pt", ".pth"):
        raise InputError(f"The checkpoint '{file}' ends in '{file.suffix}'; give a .safetensors, .pt or .pth file.")
    if not file.is_file():
        raise InputError(f"There is no checkpoint '{file}'; check the path.")
    state = _read_safetensors(file) if file.suffix == ".safetensors" else _read_torch(file)
    size = file.stat().st_size
    if swollen := [name for name, tensor in state.items() if tensor.numel() * tensor.element_size() > size]:
        raise ModelError(
            f"The checkpoint '{file}' says that '{swollen[0]}' has more numbers than are in the file; save it anew."
        )
    return Checkpoint(file, state, read_metadata(file))


def read_metadata(file: Path) -> Metadata:
    """Read what a .safetensors file says of its weights; a .pt or .pth file says nothing.

    Args:
        file: The file.

    Returns:
        The labels and the specification, each None where the file does not name it.

    Raises:
        ModelError: If the file is damaged, or its labels are no JSON list of strings.
    """
    if file.suffix != ".safetensors":
        return Metadata()
    try:
        with safe_open(file, framework="pt") as opened:
            found: dict[str, str] = opened.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise _damaged(file, error) from error
    try:
        labels = json.loads(found.get("fei.labels", "null"))
    except (ValueError, RecursionError):
        labels = ...
    if labels is not None and not (isinstance(labels, list) and all(isinstance(label, str) for label in labels)):
        raise ModelError(f"The 'fei.labels' in '{file}' are not a JSON list of strings; write the file anew.")
    return Metadata(labels, found.get("fei.spec"))


def load_checkpoint(classifier: Classifier, checkpoint: Checkpoint) -> None:
    """Load weights into a classifier; where they are for another number of classes, its last layer is replaced first.

    Args:
        classifier: The classifier, changed in place. It takes the labels of the checkpoint; without these it keeps its
            own, unless the number of classes has changed.
        checkpoint: The weights of its network.

    Raises:
        ModelError: If the weights do not fit the network in more than the number of classes, or if there are not as
            many labels as classes.
    """
    file, network = checkpoint.file, classifier.network
    classes = other_classes(network, checkpoint.state)
    with torch.random.fork_rng(devices=[]):  # the new weights are drawn only to be overwritten
        if classes is not None and _only_the_head_differs(classifier, checkpoint.state):
            replace_head(classifier, classes)
            classifier.labels = None
    try:
        keys = network.load_state_dict(_with_versions(checkpoint.state, network), strict=False)
    except RuntimeError as error:  # a tensor of another shape
        mismatch = str(error).splitlines()[-1].strip().rstrip(".")
        raise ModelError(
            f"The checkpoint '{file}' does not fit the network ({mismatch}); give the weights of this very network."
        ) from error
    if keys.missing_keys or keys.unexpected_keys:
        raise ModelError(
            f"The checkpoint '{file}' does not fit the network (missing: {first_few(keys.missing_keys)}; unexpected: "
            f"{first_few(keys.unexpected_keys)}); give the weights of this very network."
        )
    if checkpoint.metadata.labels is not None:
        classifier.labels = _as_many_as_classes(checkpoint.metadata.labels, classifier, file)


def build_for(checkpoint: Checkpoint | None, build: Callable[[int | None], nn.Module]) -> tuple[nn.Module, int | None]:
    """Build a network with as many classes as a checkpoint has.

    Args:
        checkpoint: The weights that it is for, if any.
        build: Makes the network for a number of classes; for None, with as many as it has by default.

    Returns:
        The network, without these weights yet; and its number of classes where that is not the default one.
    """
    if checkpoint is None:
        return build(None), None
    with torch.random.fork_rng(devices=[]):  # the initial weights are drawn only to be overwritten
        network = build(None)
        classes = other_classes(network, checkpoint.state)
        return (network, None) if classes is None else (build(classes), classes)


def other_classes(network: nn.Module, state: Mapping[str, Tensor]) -> int | None:
    """The number of classes that weights are for, if they fit a network in all but one length, that of the output."""
    own = network.state_dict()
    changed = _of_another_shape(network, state)
    lengths = {(own[key].shape[:1], state[key].shape[:1]) for key in changed}
    if len(lengths) != 1 or any(own[key].shape[1:] != state[key].shape[1:] for key in changed):
        return None
    (_, length), *_ = lengths
    return length[0] or None if length else None


def _of_another_shape(network: nn.Module, state: Mapping[str, Tensor]) -> set[str]:
    own = network.state_dict()
    return {key for key in own.keys() & state.keys() if own[key].shape != state[key].shape}


def _only_the_head_differs(classifier: Classifier, state: Mapping[str, Tensor]) -> bool:
    try:
        _, head = find_head(classifier)
    except ModelError:  # it has none of its own: then the weights do not fit, which the caller says better
        return False
    names = {
        f"{name}.{parameter}"
        for name, module in classifier.network.named_modules(remove_duplicate=False)
        if module is head
        for parameter, _ in module.named_parameters()
    }
    return _of_another_shape(classifier.network, state) == names


def _with_versions(state: Mapping[str, Tensor], network: nn.Module) -> Mapping[str, Tensor]:
    """The state with the versions of the network's modules, where the file does not keep any, as safetensors do not.

    Some modules refuse weights without a version. Batch normalisation alone is better off without: it then makes up
    for the counter that old files lack.
    """
    if hasattr(state, "_metadata"):
        return state
    versioned = OrderedDict(state)
    batch_norms = {
        name for name, module in network.named_modules() if isinstance(module, nn.modules.batchnorm._NormBase)
    }
    known = getattr(network.state_dict(), "_metadata", {})
    vars(versioned)["_metadata"] = {name: version for name, version in known.items() if name not in batch_norms}
    return versioned


def _as_many_as_classes(labels: list[str], classifier: Classifier, file: Path) -> list[str]:
    logits = observe(classifier, grey_image(classifier), lambda *_: None)
    classes = logits.shape[1] if isinstance(logits, Tensor) else 0
    if len(labels) != classes:
        raise ModelError(
            f"The checkpoint '{file}' names {len(labels)} classes and the network has {classes}; write the file anew "
            "with a label for each class."
        )
    return labels


def _damaged(file: Path, error: Exception) -> ModelError:
    return ModelError(f"The checkpoint '{file}' cannot be read ({in_brief(error)}); it may be damaged.")


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise _damaged(file, error) from error


def _read_torch(file: Path) -> Mapping[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols, on files that are refused anyway
            look_through(file)
            content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"The checkpoint '{file}' was refused: it is damaged, or holds Python objects besides tensors, which could "
            "run code or fill the memory when loaded; save the network's state_dict() alone, or a .safetensors file."
        ) from error
    except Exception as error:  # a damaged archive makes torch raise nearly anything
        raise _damaged(file, error) from error
    return _state_dict(content, file)


def _state_dict(content: Any, file: Path) -> Mapping[str, Tensor]:
    """The state dict in a checkpoint, or one level below where training scripts put it."""
    for candidate in (content, *(content.get(key) for key in ("state_dict", "model") if isinstance(content, Mapping))):
        if isinstance(candidate, Mapping) and candidate and all(isinstance(v, Tensor) for v in candidate.values()):
            return candidate
    found = (
        f"a {type(content).__name__}" if not isinstance(content, Mapping) else first_few([str(key) for key in content])
    )
    raise ModelError(
        f"The checkpoint '{file}' holds {found}; a state dict, or one under the key 'state_dict' or 'model', is needed."
    )
