"""Attribution methods under one interface, by name.

    method = fei.methods.create("fei-vm", steps=50)
    maps = method(model, images)

A method is any object that can be called as `Method` says; optimisation methods also have ``explain``. `as_method`
makes one of any callable, captum class or torchcam extractor.
"""

from fei.methods._baseline import Baseline, Task
from fei.methods._options import Option
from fei.methods._registry import Entry, Method, available, create, describe
from fei.methods.adapters import as_method

__all__ = ["Baseline", "Entry", "Method", "Option", "Task", "as_method", "available", "create", "describe"]
