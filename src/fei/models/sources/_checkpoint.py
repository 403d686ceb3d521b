"""Weights from a file, as tensors and nothing else."""

import json
import pickle
import pickletools
import re
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from fei.common.words import first_few, in_brief
from fei.errors import InputError, ModelError
from fei.models.classifier import Classifier
from fei.models.structure import find_head, grey_image, observe, replace_head

_ARCHIVE = b"PK\x03\x04"
_BARE = 5  # pickles before the numbers, where they are not in an archive
_MOST_UNFOLDED = 1_000_000
# What weights and the notes of a training are made of.
_KNOWN = re.compile(
    r"collections (OrderedDict|Counter)|_codecs encode|builtins (set|complex)|torch (Size|device|\w+Storage|[a-z]\w*)"
    r"|torch\._utils _rebuild_(tensor(_v[23])?|parameter(_with_state)?|qtensor)|torch\.serialization _get_layout"
    r"|torch\.storage UntypedStorage|torch\.nn\.parameter Parameter|torch\._tensor _rebuild_from_type_v2"
)


@dataclass(frozen=True)
class Checkpoint:
    """The content of a file of weights."""

    file: Path
    state: Mapping[str, Tensor]  # on the CPU
    labels: list[str] | None = None  # from the key "fei.labels" (a JSON list) of a .safetensors file's metadata


def read_checkpoint(file: Path) -> Checkpoint:
    """Read a file of weights; one that wants to run code is refused.

    It is a .safetensors file, or a .pt or .pth file with a state dict, as it is or under "state_dict" or "model". One
    that is damaged, or holds other things than tensors, is a ModelError.
    """
    if file.suffix not in (".safetensors", ".pt", ".pth"):
        raise InputError(f"The checkpoint '{file}' ends in '{file.suffix}'; give a .safetensors, .pt or .pth file.")
    if not file.is_file():
        raise InputError(f"There is no checkpoint '{file}'; check the path.")
    checkpoint = _read_safetensors(file) if file.suffix == ".safetensors" else Checkpoint(file, _read_torch(file))
    size = file.stat().st_size
    for name, tensor in checkpoint.state.items():
        if tensor.numel() * tensor.element_size() > size:
            raise ModelError(f"'{name}' in the checkpoint '{file}' has more numbers than the file; save it again.")
    return checkpoint


def load_checkpoint(classifier: Classifier, checkpoint: Checkpoint | None) -> Classifier:
    """Load weights, if there are any, into a classifier, and return it.

    Where they are for another number of classes, its last layer is replaced first. It takes the labels of the
    checkpoint; without these it keeps its own, unless the number of classes has changed. Weights that do not fit in
    more than that number, or other than as many labels as classes, are a ModelError.
    """
    if checkpoint is None:
        return classifier
    network = classifier.network
    wrong = f"The checkpoint '{checkpoint.file}' does not fit the network"
    classes = _other_classes(network, checkpoint.state)
    with torch.random.fork_rng(devices=[]):  # the new weights are drawn only to be overwritten
        if classes is not None and _only_the_head_differs(classifier, checkpoint.state):
            replace_head(classifier, classes)
            classifier.labels = None
    try:
        keys = network.load_state_dict(_with_versions(checkpoint.state, network), strict=False)
    except RuntimeError as error:  # a tensor of another shape
        mismatch = str(error).splitlines()[-1].strip().rstrip(".")
        raise ModelError(f"{wrong} ({mismatch}); give the weights of this very network.") from error
    if keys.missing_keys or keys.unexpected_keys:
        mismatch = f"missing: {first_few(keys.missing_keys)}; unexpected: {first_few(keys.unexpected_keys)}"
        raise ModelError(f"{wrong} ({mismatch}); give the weights of this very network.")
    if (labels := checkpoint.labels) is not None:
        logits = observe(classifier, grey_image(classifier), lambda *_: None, "the number of its classes")
        outputs = logits.shape[1] if isinstance(logits, Tensor) else 0
        if len(labels) != outputs:
            mismatch = f"'{checkpoint.file}' names {len(labels)} classes and the network has {outputs}"
            raise ModelError(f"The checkpoint {mismatch}; write the file again with a label for each class.")
        classifier.labels = labels
    return classifier


def build_for(checkpoint: Checkpoint | None, build: Callable[..., nn.Module]) -> tuple[nn.Module, bool]:
    """Build a network with as many classes as a checkpoint has, without its weights yet.

    `build` makes it with as many classes as it has by default, or with `num_classes`. Returns also whether their number
    is not the default one.
    """
    if checkpoint is None:
        return build(), False
    with torch.random.fork_rng(devices=[]):  # the initial weights are drawn only to be overwritten
        network = build()
        classes = _other_classes(network, checkpoint.state)
        return (network, False) if classes is None else (build(num_classes=classes), True)


def _other_classes(network: nn.Module, state: Mapping[str, Tensor]) -> int | None:
    """The number of classes that weights are for, if they fit a network in all but one length, that of the output."""
    own = network.state_dict()
    changed = _of_another_shape(network, state)
    lengths = {(own[key].shape[:1], state[key].shape[:1]) for key in changed}
    if len(lengths) != 1 or any(own[key].shape[1:] != state[key].shape[1:] for key in changed):
        return None
    ((_, length),) = lengths
    return length[0] or None if length else None


def _of_another_shape(network: nn.Module, state: Mapping[str, Tensor]) -> set[str]:
    own = network.state_dict()
    return {key for key in own.keys() & state.keys() if own[key].shape != state[key].shape}


def _only_the_head_differs(classifier: Classifier, state: Mapping[str, Tensor]) -> bool:
    try:
        _, head = find_head(classifier)
    except ModelError:  # it has none of its own: then the weights do not fit, which the caller says better
        return False
    modules = classifier.network.named_modules(remove_duplicate=False)
    names = {f"{name}.{key}" for name, module in modules if module is head for key, _ in module.named_parameters()}
    return _of_another_shape(classifier.network, state) == names


def _with_versions(state: Mapping[str, Tensor], network: nn.Module) -> Mapping[str, Tensor]:
    """The state with the versions of the network's modules, where the file does not keep any, as safetensors do not.

    Some modules refuse weights without a version. Only batch normalisation is better without: it then makes up for
    the counter that old files lack.
    """
    if hasattr(state, "_metadata"):
        return state
    versioned = OrderedDict(state)
    norms = {name for name, module in network.named_modules() if isinstance(module, nn.modules.batchnorm._NormBase)}
    known = getattr(network.state_dict(), "_metadata", {})
    vars(versioned)["_metadata"] = {name: version for name, version in known.items() if name not in norms}
    return versioned


def _damaged(file: Path, error: Exception) -> ModelError:
    return ModelError(
        f"The checkpoint '{file}' cannot be read ({in_brief(error)}); it may be damaged, so save it again."
    )


def _read_safetensors(file: Path) -> Checkpoint:
    try:
        with safe_open(file, framework="pt") as opened:
            metadata: dict[str, str] = opened.metadata() or {}
        state = load_file(file)
    except (SafetensorError, OSError) as error:
        raise _damaged(file, error) from error
    try:
        labels = json.loads(metadata.get("fei.labels", "null"))
    except (ValueError, RecursionError):
        labels = ...
    if labels is not None and not (isinstance(labels, list) and all(isinstance(label, str) for label in labels)):
        raise ModelError(f"The 'fei.labels' in '{file}' are not a JSON list of strings; write the file again.")
    return Checkpoint(file, state, labels)


def _read_torch(file: Path) -> Mapping[str, Tensor]:
    """The state dict in a checkpoint of torch, or one level below where training scripts put it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols, on files that are refused anyway
            _look_through(file)
            content: Any = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"The checkpoint '{file}' was refused, since it is damaged or holds Python objects besides tensors, which "
            "could run code or fill the memory; save the network's state_dict() alone, or a .safetensors file."
        ) from error
    except Exception as error:  # a damaged archive makes torch raise nearly anything
        raise _damaged(file, error) from error
    found = f"a {type(content).__name__}"
    if isinstance(content, Mapping):
        for candidate in (content, content.get("state_dict"), content.get("model")):
            if isinstance(candidate, Mapping) and candidate and all(isinstance(v, Tensor) for v in candidate.values()):
                return candidate
        found = first_few([str(key) for key in content])
    needed = "a state dict, or one under the key 'state_dict' or 'model', is needed"
    raise ModelError(f"The checkpoint '{file}' holds {found}; {needed}.")


def _look_through(file: Path) -> None:
    """See that a checkpoint of torch holds weights and nothing that grows when it is loaded, before torch loads it.

    torch's reader of weights runs no code. Yet a few bytes can make it ask for any amount of memory, or never come to
    an end: numbers that become arrays, archives that unpack to a thousand times their size, tuples that hold each other
    twice. Raises an UnpicklingError, or nearly any other where the file is damaged.
    """
    with file.open("rb") as stream:
        archived = stream.read(len(_ARCHIVE)) == _ARCHIVE
        stream.seek(0)
        if not archived:
            for _ in range(_BARE):
                if stream.peek(1):
                    _look_at(pickletools.genops(stream))
            return
        with zipfile.ZipFile(stream) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > file.stat().st_size:
                raise pickle.UnpicklingError("the archive unpacks to more than it is")
            for entry in entries:
                if entry.filename.endswith("data.pkl"):
                    _look_at(pickletools.genops(archive.read(entry)))


def _look_at(operations: Iterator[tuple[pickletools.OpcodeInfo, object, int | None]]) -> None:
    """Refuse names that weights do not need, and tuples that are far larger unfolded than written."""
    sizes: dict[object, int] = {}  # of what can be referred to: for a tuple, all that it may hold, else 0
    unfolded, top = 1, 0
    for code, argument, _ in operations:
        if code.name == "GLOBAL" and not _KNOWN.fullmatch(str(argument)):
            raise pickle.UnpicklingError(f"'{argument}' is no part of weights")
        if code.name.endswith("PUT"):
            sizes[argument] = top
        elif code.name.endswith("GET"):
            top = sizes.get(argument, 0)
            unfolded += top
            if unfolded > _MOST_UNFOLDED:
                raise pickle.UnpicklingError("tuples inside tuples without end")
        else:
            top = unfolded if code.name.startswith("TUPLE") else 0
