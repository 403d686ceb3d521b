"""Attention patterns in a pass on the images of a task, as values of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fei.core.pathway import visit_sites
from fei.core.stream import Stream
from fei.methods._baseline import Task


@dataclass(frozen=True)
class Patterns:
    """What a pass left behind.

    Attributes:
        stream: The tokens they are between.
        patterns: A of each block as the network has it.
        tokens: The tokens that come out of each block, if they were asked for.
        output: The network's output.
        rows: How many images passed.
    """

    stream: Stream
    patterns: list[Tensor]
    tokens: list[Tensor]
    output: Any
    rows: int

    def gradients(self, score: Tensor, blocks: Sequence[int] | None = None, *, again: bool = False) -> list[Tensor]:
        """∂s/∂A of some blocks, (n, heads, T, T) each.

        Args:
            score: s.
            blocks: Which blocks; all if not given.
            again: Whether the same pass will be gone back through once more.
        """
        wanted = self.patterns if blocks is None else [self.patterns[number] for number in blocks]
        found = torch.autograd.grad(score.sum(), wanted, retain_graph=again)
        return [self.stream.of_heads(gradient, self.rows) for gradient in found]

    @property
    def values(self) -> list[Tensor]:
        """A of each block, (n, heads, T, T)."""
        return [self.stream.of_heads(pattern.detach(), self.rows) for pattern in self.patterns]


def rows_read(gradient: Tensor) -> Tensor:
    """Which rows of the last block's A the score is read from, as shares (n, T): the class token's, or those pooled.

    Args:
        gradient: ∂s/∂A of the last block, (n, heads, T, T): 0 in the rows of tokens that nothing reads.
    """
    read = (gradient != 0).any(-1).any(1).to(gradient.dtype)
    read = torch.where(read.any(1, keepdim=True), read, 1.0)  # where there is no gradient at all
    return read / read.sum(1, keepdim=True)


def patterns_of(task: Task, *, tokens: bool = False) -> Patterns:
    """The patterns of a pass on the images; with `tokens`, also the tokens that come out of each block."""
    stream = task.survey.stream
    ends = [*stream.inputs[1:], stream.output] if tokens else []
    sites = [*stream.patterns, *ends]
    seen: dict[int, Tensor] = {}
    leaf = task.images.detach().requires_grad_()
    output = task.observe(lambda: visit_sites(task.model, sites, leaf, seen.__setitem__))
    count = len(stream.patterns)
    return Patterns(
        stream, [seen[i] for i in range(count)], [seen[i] for i in range(count, len(sites))], output, len(leaf)
    )
