"""One image through one network: decoded once, predicted once, any method, one result, one record, one writer.

Names are imported when first used: what was asked for can be told without loading torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fei.service._collect import black_images, collect

__all__ = ["black_images", "collect"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("fei.service._collect"), name)
    raise AttributeError(f"module 'fei.service' has no attribute {name!r}")
