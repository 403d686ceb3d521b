"""Random numbers that depend on the image and the seed alone: not on order, batch, worker or global state."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

import torch
from torch import Tensor

from fei.errors import InputError


def image_digest(image: Tensor) -> str:
    """SHA-256 of an image's values (as float32, or float64 if it is) and shape."""
    dtype = torch.float64 if image.dtype == torch.float64 else torch.float32
    values = image.detach().to("cpu", dtype).contiguous()
    content = ctypes.string_at(values.data_ptr(), values.nbytes)
    return hashlib.sha256(repr(tuple(values.shape)).encode() + content).hexdigest()


def seed_of(generator: Any, default: int = 0) -> int:
    """The seed that a caller's generator supplies, which is not drawn from; `default` without one."""
    if generator is None:
        return default
    if not isinstance(generator, torch.Generator):
        raise InputError(
            "`generator` must be a torch.Generator, such as torch.Generator().manual_seed(0), or None; got "
            f"{type(generator).__name__}."
        )
    return generator.initial_seed()


def generator_for(seed: int, digest: str, purpose: str) -> torch.Generator:
    """A CPU generator for one purpose on one image: its seed is drawn from (seed, image, purpose)."""
    mixed = hashlib.sha256(f"{seed}/{digest}/{purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(mixed[:8], "little") >> 1)
