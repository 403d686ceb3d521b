"""Attribution methods under one interface, by name.

    method = fei.methods.create("fei-vm", steps=50)
    maps = method(model, images)

A method is any object that can be called as `Method` says; optimisation methods also have ``explain``.
"""

from fei.methods._registry import Entry, Method, available, create, describe

__all__ = ["Entry", "Method", "available", "create", "describe"]
