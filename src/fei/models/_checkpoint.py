"""Weights from a file, as tensors and nothing else."""

import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fei.errors import InputError, ModelError
from fei.models._wording import first_few, in_brief


def load_checkpoint(network: nn.Module, file: Path) -> None:
    """Load weights into a network; a file that wants to run code is refused.

    Args:
        network: The network, changed in place.
        file: A .safetensors file, or a .pt or .pth file with a state dict, as it is or under "state_dict" or "model".

    Raises:
        InputError: If there is no such file, or its name ends otherwise.
        ModelError: If it is damaged, holds other things than tensors, or does not fit the network.
    """
    if file.suffix not in (".safetensors", ".pt", ".pth"):
        raise InputError(f"The checkpoint '{file}' ends in '{file.suffix}'; give a .safetensors, .pt or .pth file.")
    if not file.is_file():
        raise InputError(f"There is no checkpoint '{file}'; check the path.")
    state = _read_safetensors(file) if file.suffix == ".safetensors" else _read_torch(file)
    try:
        keys = network.load_state_dict(state, strict=False)
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


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"The checkpoint '{file}' cannot be read ({in_brief(error)}); it may be damaged.") from error


def _read_torch(file: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols, on files that are refused anyway
            content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"The checkpoint '{file}' was refused: it is damaged, or holds Python objects besides tensors, which could "
            "run code when loaded; save the network's state_dict() alone, or a .safetensors file."
        ) from error
    except Exception as error:  # a damaged archive makes torch raise nearly anything
        raise ModelError(f"The checkpoint '{file}' cannot be read ({in_brief(error)}); it may be damaged.") from error
    return _state_dict(content, file)


def _state_dict(content: Any, file: Path) -> dict[str, Tensor]:
    """The state dict in a checkpoint, or one level below where training scripts put it."""
    for candidate in (content, *(content.get(key) for key in ("state_dict", "model") if isinstance(content, Mapping))):
        if isinstance(candidate, Mapping) and candidate and all(isinstance(v, Tensor) for v in candidate.values()):
            return dict(candidate)
    found = (
        f"a {type(content).__name__}" if not isinstance(content, Mapping) else first_few([str(key) for key in content])
    )
    raise ModelError(
        f"The checkpoint '{file}' holds {found}; a state dict, or one under the key 'state_dict' or 'model', is needed."
    )
