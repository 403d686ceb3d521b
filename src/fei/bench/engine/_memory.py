"""Memory that runs out: fewer rows in a forward pass, so that the work goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fei.metrics.cost import _rows as rows_of

_WORDS = ("out of memory", "can't allocate memory", "not enough memory")


class Rows:
    """How many rows pass through a network at once: as many as its caller chooses, until memory runs out.

    Attributes:
        fewer: By stage (a method's index, or a name) the rows of a pass, where memory allows fewer than were asked for.
    """

    def __init__(self) -> None:
        self.fewer: dict[int | str, int] = {}
        self._most = 0

    def begin(self) -> None:
        """Another stage begins."""
        self._most = 0

    @contextmanager
    def watched(self, network: nn.Module) -> Iterator[None]:
        """Within the block the rows of passes are noted."""

        def entered(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._most = max(self._most, rows_of((args, kwargs)))

        handle = network.register_forward_pre_hook(entered, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def halve(self, stage: int | str) -> bool:
        """From now on half the rows of the largest pass of this stage; False if that was a single row."""
        half = min(self._most, self.fewer.get(stage, self._most)) // 2
        if half:
            self.fewer[stage] = half
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        return half > 0


def out_of_memory(error: BaseException) -> bool:
    """Whether an error, or what caused it, says that memory ran out."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError | torch.cuda.OutOfMemoryError):
            return True
        if isinstance(seen, RuntimeError) and any(words in str(seen) for words in _WORDS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
