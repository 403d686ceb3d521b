"""A rule at work on the gradient of one site, in pieces that stay in the processor's cache.

A rule takes several passes over as many numbers as a site has, and on a CPU their time is that of the memory. So each
piece of a gradient goes through all of them at once: the way home, the guard, the clipping, and, where the site is a
ReLU that works in place, the ReLU's own slope, for which another pass would be made. What comes out is the same to the
bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

import torch
from torch import Tensor

from fei.core.clipgrad import Rule
from fei.core.folding import Ramp

_PIECE = 2**18  # numbers, a megabyte: fewer make the calls cost more than the memory does


@dataclass(frozen=True)
class Hold:
    """What the gradient of one site is held against in one pass.

    Attributes:
        rule: What is clipped.
        kept: What was kept of h, for all rows or one that stands for all.
        value: h̃.
        guard: What ρ is held against, if it was made already; else it is made of `kept` and `value`.
        ramp: The ReLU that made the value without the graph's knowledge, if one did: its slope is ours to apply.
    """

    rule: Rule
    kept: Tensor
    value: Tensor
    guard: Tensor | None = None
    ramp: Ramp | None = None

    def clip(self, rho: Tensor) -> Tensor:
        """What the rule leaves of ρ, without the slope of a ReLU; a new tensor."""
        guard = self.rule.guard(self.kept.expand_as(self.value), self.value) if self.guard is None else self.guard
        return self.rule.clip(rho, guard)

    def slope(self, clipped: Tensor) -> Tensor:
        """Gradients, which are overwritten, with the slope of the ReLU if there is one."""
        if self.ramp is not None:
            self.ramp.slope(clipped, self.value)
        return clipped

    def pass_on(self, rho: Tensor, memory: Tensor | None = None) -> Tensor:
        """What goes on from here: ρ clipped, with the slope of the ReLU.

        Args:
            rho: The gradient.
            memory: Where to write it, if it fits.
        """
        lines = self._lines(rho)
        if lines is None:
            return self.slope(self.clip(rho))
        out = memory if memory is not None and _alike(memory, rho) else torch.empty_like(rho)
        for into, of_rho, value, kept, guard, scratch in _pieces(_line(out), *lines):
            held = self.rule.guard(kept, value, scratch) if guard is None else guard
            self.rule.block.clip(of_rho, held, into)
            if self.ramp is not None:
                self.ramp.slope(into, value)
        return out

    def _lines(self, rho: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None] | None:
        """ρ, h̃, what was kept and the guard with a row for each image, in the order of memory, if they have one."""
        if not (rho.is_cpu and rho.ndim > 1 and rho.numel() > _PIECE and self.rule.local and _alike(rho, self.value)):
            return None
        if not _alike(self.kept, self.value[: len(self.kept)]):
            return None
        if self.guard is not None and not _alike(self.guard, self.value[: len(self.guard)]):
            return None
        return _line(rho), _line(self.value), _line(self.kept), None if self.guard is None else _line(self.guard)


def _pieces(
    out: Tensor, rho: Tensor, value: Tensor, kept: Tensor, guard: Tensor | None
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]]:
    """The same columns of each, and memory for as many numbers."""
    width = max(1, _PIECE // len(rho))
    scratch = torch.empty(len(rho), width, dtype=value.dtype)
    guards = repeat(None) if guard is None else guard.split(width, 1)
    parts = (each.split(width, 1) for each in (out, rho, value, kept))
    for into, of_rho, of_value, of_kept, of_guard in zip(*parts, guards, strict=False):
        memory = scratch if of_value.shape[1] == width else None
        yield into, of_rho, of_value, of_kept, of_guard, memory


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape, precision and order in memory, without gaps."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_contiguous() and other.is_contiguous():
        return True
    last = torch.channels_last
    return one.ndim == 4 and one.is_contiguous(memory_format=last) and other.is_contiguous(memory_format=last)


def _line(value: Tensor) -> Tensor:
    """A view (rows, units) in the order of memory."""
    return value.flatten(1) if value.is_contiguous() else value.permute(0, 2, 3, 1).flatten(1)
