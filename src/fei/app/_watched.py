"""A method that is watched while it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from fei.methods import Method


class Listener(Protocol):
    """Who is told how a method fares."""

    def begin(self) -> None:
        """It begins."""

    def step(self, step: int, alphas: Tensor) -> None:
        """An optimisation method has done a step; its masks are (n, k, c, H, W) now."""

    def end(self, maps: Tensor) -> None:
        """It has found its maps (N, 1, H, W)."""


class Watched:
    """A method as it is, its options and settings included, but for a listener.

    Args:
        method: The method.
        listener: Who is told.
    """

    def __init__(self, method: Method, listener: Listener) -> None:
        self._method, self._listener = method, listener
        if hasattr(method, "explain"):
            self.explain = partial(self._run, _showing_masks(method.explain, listener.step))

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """What the method returns."""
        return self._run(self._method, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        if name == "explain":  # set above for methods that have it
            raise AttributeError(name)
        return getattr(self._method, name)

    def _run(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._listener.begin()
        found = call(*arguments, **options)
        self._listener.end(found if isinstance(found, Tensor) else found.maps)
        return found


def _showing_masks(explain: Callable[..., Any], on_step: Callable[[int, Tensor], None]) -> Callable[..., Any]:
    """`explain` with its running masks shown, if it is one that shows them."""
    return partial(explain, on_step=on_step) if "on_step" in inspect.signature(explain).parameters else explain
