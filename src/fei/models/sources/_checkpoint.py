"""Weights from a file, as tensors and nothing else."""

import json
import os
import pickle
import pickletools
import re
import struct
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from fei.common.words import first_few, in_brief
from fei.errors import InputError, ModelError
from fei.models.classifier import Classifier
from fei.models.structure import count_outputs, find_head, replace_head

_ARCHIVE = b"PK\x03\x04"
_TAIL = 22 + 20 + 56  # bytes of the records at the end of an archive
_ENDINGS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".tar")
# Where training scripts put the weights, the first of these that is there; what wrappers put before their names.
_PLACES = ("state_dict", "model_state_dict", "model", "net", "network")
_AVERAGED = ("model_ema", "state_dict_ema", "ema_state_dict", "ema_model", "ema")
_PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.")
_BARE = 5  # pickles before the numbers, where they are not in an archive
_MOST_UNFOLDED = 1_000_000
# What weights and the notes of a training are made of.
_KNOWN = re.compile(
    r"collections (OrderedDict|Counter)|builtins (set|complex)|torch (Size|device|\w+Storage|[a-z]\w*)"
    r"|torch\._utils _rebuild_(tensor(_v[23])?|parameter(_with_state)?|qtensor)|torch\.serialization _get_layout"
    r"|torch\.storage UntypedStorage|torch\.nn\.parameter Parameter|torch\._tensor _rebuild_from_type_v2"
)


@dataclass(frozen=True)
class Checkpoint:
    """The content of a file of weights."""

    file: Path
    state: Mapping[str, Tensor]  # on the CPU
    labels: list[str] | None = None  # from the key "fei.labels" (a JSON list) of a .safetensors file's metadata
    remarks: tuple[str, ...] = ()  # sentences on which weights were taken

    def named_for(self, network: nn.Module) -> Mapping[str, Tensor]:
        """The weights, with what a wrapper puts before all their names as the network has it itself."""
        own = network.state_dict().keys()
        prefix = next((p for p in _PREFIXES if own and all(key.startswith(p) for key in own)), "")
        if not prefix or any(key.startswith(prefix) for key in self.state):
            return self.state
        return _renamed(self.state, lambda key: prefix + key)


def read_checkpoint(file: Path) -> Checkpoint:
    """Read a file of weights; one that wants to run code is refused.

    It is a .safetensors file, or one of torch with a state dict, as it is or one level below: under "state_dict",
    "model_state_dict", "model", "net" or "network", or under a name for averaged weights such as "model_ema" where
    there are no others. Prefixes that wrappers put before all names ("module.", "_orig_mod.") are taken off. One that
    is damaged, or holds other things than tensors, is a ModelError.
    """
    if file.suffix not in _ENDINGS:
        known = f"{', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}"
        raise InputError(f"The checkpoint '{file}' ends in '{file.suffix}'; give a {known} file.")
    if not file.is_file():
        raise InputError(f"There is no checkpoint '{file}'; check the path.")
    checkpoint = _read_safetensors(file) if file.suffix == ".safetensors" else _read_torch(file)
    checkpoint = replace(checkpoint, state=_unwrapped(checkpoint.state))
    size = file.stat().st_size
    for name, tensor in checkpoint.state.items():
        if tensor.numel() * tensor.element_size() > size:
            raise ModelError(f"'{name}' in the checkpoint '{file}' has more numbers than the file; save it again.")
    return checkpoint


def load_checkpoint(classifier: Classifier, checkpoint: Checkpoint | None, built_for: int = 0) -> Classifier:
    """Load weights, if there are any, into a classifier, and return it.

    Where they are for another number of classes, its last layer is replaced first. It takes the labels of the
    checkpoint; without these it keeps its own, unless the number of classes has changed, which the classifier then
    remarks (`built_for` is their number before, where `build_for` has changed it). Weights that do not fit in more than
    that number, or other than as many labels as classes, are a ModelError.
    """
    if checkpoint is None:
        return classifier
    network, state = classifier.network, checkpoint.named_for(classifier.network)
    wrong = f"The checkpoint '{checkpoint.file}' does not fit the network"
    classes = _other_classes(network, state)
    with torch.random.fork_rng(devices=[]):  # the new weights are drawn only to be overwritten
        if classes is not None and _only_the_head_differs(classifier, state):
            built_for = find_head(classifier)[1].weight.shape[0]
            replace_head(classifier, classes)
            classifier.labels = None
    try:
        keys = network.load_state_dict(_with_versions(state, network), strict=False)
    except RuntimeError as error:  # a tensor of another shape
        mismatch = str(error).splitlines()[-1].strip().rstrip(".")
        raise ModelError(f"{wrong} ({mismatch}); give the weights of this very network.") from error
    if keys.missing_keys or keys.unexpected_keys:
        mismatch = f"missing: {first_few(keys.missing_keys)}; unexpected: {first_few(keys.unexpected_keys)}"
        raise ModelError(f"{wrong} ({mismatch}); give the weights of this very network.")
    if (labels := checkpoint.labels) is not None:
        if len(labels) != (outputs := count_outputs(classifier)):
            mismatch = f"'{checkpoint.file}' names {len(labels)} classes and the network has {outputs}"
            raise ModelError(f"The checkpoint {mismatch}; write the file again with a label for each class.")
        classifier.labels = labels
    classifier.remarks += checkpoint.remarks
    if built_for:
        names = "the names of its classes are not used; --labels FILE gives others"
        names = names if labels is None else "its classes are called as the file says"
        classifier.remarks += (
            f"The weights in '{checkpoint.file.name}' are for {count_outputs(classifier)} classes and the network for "
            f"{built_for}: its last layer was made to fit, and {names}.",
        )
    return classifier


def build_for(checkpoint: Checkpoint | None, build: Callable[..., nn.Module]) -> tuple[nn.Module, int]:
    """Build a network with as many classes as a checkpoint has, without its weights yet.

    `build` makes it with as many classes as it has by default, or with `num_classes`. Returns also the default number
    of classes where it was not taken, else 0.
    """
    if checkpoint is None:
        return build(), 0
    with torch.random.fork_rng(devices=[]):  # the initial weights are drawn only to be overwritten
        network = build()
        state = checkpoint.named_for(network)
        classes = _other_classes(network, state)
        if classes is None:
            return network, 0
        (before, *_), *_ = (network.state_dict()[key].shape for key in sorted(_of_another_shape(network, state)))
        return build(num_classes=classes), before


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


def _renamed(state: Mapping[str, Tensor], name: Callable[[str], str]) -> Mapping[str, Tensor]:
    renamed = OrderedDict((name(key), tensor) for key, tensor in state.items())
    if hasattr(state, "_metadata"):  # the versions of the modules, by names that may end before the prefix does
        versions = {f"{key}." if key else "": version for key, version in state._metadata.items()}
        vars(renamed)["_metadata"] = {name(key).rstrip("."): version for key, version in versions.items()}
    return renamed


def _unwrapped(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Weights without what wrappers put before all their names, nor the counter of averaged ones."""
    while True:
        names = state.keys() - {"n_averaged"}
        prefix = next((prefix for prefix in _PREFIXES if names and all(name.startswith(prefix) for name in names)), "")
        if not prefix:
            return state
        kept = _renamed(state, lambda key, prefix=prefix: key.removeprefix(prefix))  # type: ignore[misc]
        state = OrderedDict((key, kept[key]) for key in kept if key != "n_averaged")
        if hasattr(kept, "_metadata"):
            vars(state)["_metadata"] = kept._metadata


def _read_torch(file: Path) -> Checkpoint:
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
        if _is_state(content):
            return Checkpoint(file, content)
        plain, averaged = ([key for key in keys if _is_state(content.get(key))] for keys in (_PLACES, _AVERAGED))
        if plain or averaged:
            taken = (plain or averaged)[0]
            said = f"The checkpoint '{file.name}' holds plain weights and averaged ones ('{(averaged or [''])[0]}')"
            remarks = (f"{said}; the plain ones ('{taken}') are explained.",) if plain and averaged else ()
            return Checkpoint(file, content[taken], remarks=remarks)
        found = first_few([str(key) for key in content])
    needed = f"a state dict, or one under the key {', '.join(_PLACES)} or {_AVERAGED[0]}, is needed"
    raise ModelError(f"The checkpoint '{file}' holds {found}; {needed}.")


def _is_state(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(isinstance(v, Tensor) for v in value.values())


def _look_through(file: Path) -> None:
    """See that a checkpoint of torch holds weights and nothing that grows when it is loaded, before torch loads it.

    torch's reader of weights runs no code. Yet a few bytes can make it ask for any amount of memory, or never come to
    an end: numbers that become arrays, archives that unpack to a thousand times their size, tuples that hold each other
    twice, texts that are encoded again and again. torch has a zip reader of its own, for which upper and lower case are
    the same; so that both readers see the same files, the archive is one as torch writes it. Raises an UnpicklingError,
    or nearly any other where the file is damaged.
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
            _look_at_the_end(stream)
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > file.stat().st_size:
                raise pickle.UnpicklingError("the archive unpacks to more than it is")
            if len({entry.filename.lower() for entry in entries}) < len(entries):
                raise pickle.UnpicklingError("two files of the archive have the same name")
            for entry in entries:
                if entry.compress_type != zipfile.ZIP_STORED:
                    raise pickle.UnpicklingError("the archive is compressed")
                if entry.filename.lower().endswith(".pkl"):
                    _look_at(pickletools.genops(archive.read(entry)))


def _look_at_the_end(stream: BinaryIO) -> None:
    """See that the list of an archive's files is where its last bytes say, and directly before them.

    Python's reader looks for it there, torch's at the place that is given: they must not find two lists.
    """
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - _TAIL))
    tail = stream.read()
    end = size - 22
    if tail[-22:-18] != b"PK\5\6" or tail[-2:] != b"\0\0":
        raise pickle.UnpicklingError("the archive does not end as torch ends one")
    length, start = struct.unpack("<II", tail[-10:-2])
    if tail[-42:-38] == b"PK\6\7":  # large archives say it once more, in 64 bits
        end = size - _TAIL
        if tail[:4] != b"PK\6\6" or struct.unpack("<Q", tail[-34:-26]) != (end,):
            raise pickle.UnpicklingError("the archive does not end as torch ends one")
        length, start = struct.unpack("<QQ", tail[40:56])
    if start + length != end:
        raise pickle.UnpicklingError("the archive has a second list of files")


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
