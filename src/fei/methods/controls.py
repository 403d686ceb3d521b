"""Maps that know nothing of the network: what chance looks like under a metric."""

from __future__ import annotations

import torch
from torch import Tensor

from fei.core.randomness import generator_for
from fei.methods._baseline import Baseline, Task


class Random(Baseline):
    """A uniform random number for each pixel, from the seed and the image; ignores the network and the target."""

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        size = tuple(task.images.shape[2:])
        draws = [torch.rand(size, generator=generator_for(task.seed, digest, "random-map")) for digest in task.digests]
        return torch.stack(draws).to(task.images.device)
