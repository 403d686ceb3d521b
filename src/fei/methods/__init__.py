"""Attribution methods under one interface, by name.

    method = fei.methods.create("fei-vm", steps=50)
    maps = method(model, images)

A method is any object that can be called as `Method` says; optimisation methods also have ``explain``. `as_method`
makes one of any callable, captum class or torchcam extractor. Listing the methods loads neither torch nor captum.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fei.methods._call import Call, Method, called_with
from fei.methods._options import Option
from fei.methods._registry import Entry, available, create, describe

if TYPE_CHECKING:
    from fei.methods._baseline import Baseline, Task, checked
    from fei.methods.adapters import as_method

_HOME = dict.fromkeys(("Baseline", "Task", "checked"), "fei.methods._baseline") | {"as_method": "fei.methods.adapters"}

__all__ = ["Baseline", "Call", "Entry", "Method", "Option", "Task"]
__all__ += ["as_method", "available", "called_with", "checked", "create", "describe"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'fei.methods' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
