"""FEI at home in other libraries; their adapters are imported when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fei.compat import quantus

__all__ = ["quantus"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"fei.compat.{name}")
    raise AttributeError(f"module 'fei.compat' has no attribute {name!r}")
