"""Leaving patches out of a transformer's sequence: what is removed is not painted over, the network never sees it.

The tokens of an image pass one value on their way from the patch embedding to the first block, that with the position
embedding in it. Behind it a plain vision transformer treats its tokens as a set, so that a shorter sequence is as good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fei.core.checks import explained_failure
from fei.core.dataflow import CallKey, trace
from fei.core.folding import Folding
from fei.core.pathway import visit_sites
from fei.core.scoring import logits_of
from fei.core.stream import find_stream
from fei.core.tokens import Grid
from fei.errors import ModelError

_LEVELS = 1e9  # of a map's means that are told apart: what differs by round-off alone is equal
_REFUSED = (
    "The network's patches cannot be left out: it has no attention over one sequence of them, or their places matter "
    "behind the position embedding; use a protocol that paints pixels over, such as held-out."
)
_SAME = 1e-3  # of the span of the logits: what they may differ by when patches change places


@dataclass(frozen=True)
class Sequencing:
    """Where a network's tokens enter its first block.

    Attributes:
        key: The call that makes the sequence.
        grid: Which tokens of it are patches, and how they lie in the image.
    """

    key: CallKey
    grid: Grid

    @classmethod
    def of(cls, model: nn.Module, image: Tensor) -> Sequencing:
        """That of a network whose tokens can be dropped.

        Args:
            model: The network; only ever called.
            image: A batch of one image.

        Raises:
            ModelError: If there is no such value, or the tokens behind it are more than a set.
        """
        with explained_failure(image):
            flow, output = trace(model, image)
        try:
            stream = find_stream(model, flow)
        except ModelError as error:
            raise ModelError(_REFUSED) from error
        found = cls(stream.inputs[0].key, stream.grid)
        logits = logits_of(output, 1).detach()
        turned = torch.arange(found.patches - 1, -1, -1, device=image.device)[None]
        try:
            again, _ = (found._logits(model, image, patches) for patches in (turned, turned[:, ::2]))
        except (RuntimeError, AssertionError) as error:
            raise ModelError(_REFUSED) from error
        if (again - logits).abs().max() > _SAME * (logits.amax() - logits.amin()):
            raise ModelError(_REFUSED)
        return found

    @torch.no_grad()
    def _logits(self, model: nn.Module, image: Tensor, patches: Tensor) -> Tensor:
        return logits_of(visit_sites(model, [], image, lambda _, __: None, self.keeping(patches)), 1)

    @property
    def patches(self) -> int:
        """How many tokens are patches."""
        return self.grid.height * self.grid.width

    def means(self, maps: Tensor) -> Tensor:
        """The mean of maps (N, H, W) over each patch, (N, h, w); what differs by round-off alone is made equal."""
        wide = maps if maps.device.type == "mps" else maps.double()  # MPS has no float64
        means = F.adaptive_avg_pool2d(wide[:, None], (self.grid.height, self.grid.width))[:, 0]
        span = means.abs().amax((1, 2), keepdim=True).clamp(min=torch.finfo(means.dtype).tiny)
        return (means / span * _LEVELS).round()

    def keeping(self, patches: Tensor) -> Folding:
        """What is exchanged in a pass, so that only some patches go on.

        Args:
            patches: Which ones for each row of the pass, (rows, count), in the order in which they are to come.
        """

        def shortened(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            tokens: Tensor = func(*args, **kwargs)
            own, index = self.grid.patches, (patches + self.grid.first)[..., None]
            kept = tokens.gather(1, index.expand(-1, -1, tokens.shape[2]))
            return torch.cat([tokens[:, : own.start], kept, tokens[:, own.stop :]], 1)

        return Folding({self.key: shortened})
