"""Where networks compute."""

from __future__ import annotations

import torch

from fei.errors import InputError


def choose_device(name: str) -> torch.device:
    """The torch device of a name; "auto" for CUDA where there is one, else the CPU.

    Raises:
        InputError: If there is no such device.
    """
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device("cuda" if there["cuda"] else "cpu")
    if name not in there:
        raise InputError(f"Unknown device '{name}'; choose one of {', '.join(there)}, auto.")
    if not there[name]:
        raise InputError(f"This machine has no device '{name}' that torch can use; choose cpu or auto.")
    return torch.device(name)
