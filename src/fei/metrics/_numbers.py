"""Small arguments of metrics, checked at the door."""

from __future__ import annotations

import math
from typing import Any

import torch

from fei.errors import InputError


def seed_of(generator: torch.Generator | None) -> int:
    """The seed a generator supplies; 0 without one. It is not drawn from."""
    return 0 if generator is None else generator.initial_seed()


def check_count(name: str, value: Any) -> None:
    """Refuse what is no whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"`{name}` must be a whole number of at least 1; got {value!r}")


def check_size(name: str, value: Any) -> None:
    """Refuse what is no finite number of at least 0."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise InputError(f"`{name}` must be a finite number of at least 0; got {value!r}")
