"""Networks run with rows laid out as suits the device: on a CPU convolutions are faster channels last."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

Output = TypeVar("Output")


class Layout:
    """The layout in which a network's rows are computed: channels last on a CPU, otherwise as they come.

    A network that reshapes with ``view`` may refuse rows that are channels last, some only where there is more than
    one. It gets them contiguous from then on. Values agree to rounding.
    """

    def __init__(self) -> None:
        self._refused = self._proved = False

    def run(self, network: Callable[[Tensor], Output], rows: Tensor) -> Output:
        """What a network makes of rows (N, C, H, W); where it refuses the layout it is called a second time."""
        if self._refused or rows.device.type != "cpu":
            return network(rows)
        try:
            output = network(rows.contiguous(memory_format=torch.channels_last))
        except RuntimeError:
            if self._proved:  # not for the layout, then
                raise
            self._refused = True
            return network(rows.contiguous())
        self._proved = self._proved or len(rows) > 1
        return output
