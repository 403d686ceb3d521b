"""Attribution methods under one interface, by name.

    method = fei.methods.create("fei", steps=50)
    maps = method(model, images)

A method is any object that can be called as `Method` says; optimisation methods also have ``explain``. `as_method`
makes one of any callable, captum class or torchcam extractor. Listing the methods loads neither torch nor captum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fei.common.lazy import lazy
from fei.methods._call import Method, MethodCall, called_with
from fei.methods._options import Option
from fei.methods._registry import Entry, available, create, describe, is_control

if TYPE_CHECKING:
    from fei.methods._baseline import Baseline, Task, checked
    from fei.methods.adapters import as_method

_HOMES = dict.fromkeys(("Baseline", "Task", "checked"), "_baseline") | {"as_method": "adapters"}

__all__ = ["Baseline", "Entry", "Method", "MethodCall", "Option", "Task"]
__all__ += ["as_method", "available", "called_with", "checked", "create", "describe", "is_control"]
__getattr__ = lazy(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
