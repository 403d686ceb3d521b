"""One thread at a time, where what it does to a network or to the global generators would be seen by another."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from torch import nn

_P = ParamSpec("_P")
_R = TypeVar("_R")
_guard = threading.Lock()
_locks: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()


def one_at_a_time(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """A method of something that has a `model`: no two threads run it on the same network at once."""

    @functools.wraps(method)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        owner: Any = args[0]
        with alone_with(owner.model):
            return method(*args, **kwargs)

    return called


def alone_with(model: Any) -> AbstractContextManager[Any]:
    """Within the block no other thread explains this network: methods hang hooks on it, and some lend it out."""
    if not isinstance(model, nn.Module):  # who checks the arguments says so
        return nullcontext()
    with _guard:
        return _locks.setdefault(model, threading.RLock())
