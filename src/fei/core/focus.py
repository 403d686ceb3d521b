"""The layer at which a class has its evidence: the last one whose places in the image still speak for a class.

In a convolutional network this is the last feature map. Of a transformer's tokens only some may matter late: where the
class token alone is read, the patches of the last block's output have no gradient. And before a LayerNorm the sum of
h·∂s/∂h over the channels of a token is 0, because nothing changes when the token is scaled. So normalised tokens are
looked at, and the last ones taken whose patches have evidence; with a class token these are the last block's first
normalised values, the ones its attention reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from fei.core.attention import find_attention
from fei.core.balance import balanced_relevance
from fei.core.dataflow import Call, Flow
from fei.core.relevance import evidence_of, relevance
from fei.core.sites import Site, find_layer, sites_at
from fei.core.stream import Stream, find_stream
from fei.core.tokens import Grid, grid_of
from fei.errors import ModelError

_NORMALIZING = frozenset({"layer_norm", "rms_norm", "group_norm", "batch_norm"})
_SAYS = 1e-3  # evidence of a place that is more than round-off, as a share of what its units say for and against


@dataclass(frozen=True)
class Focus:
    """A value in the network, and where its places lie in the image.

    Attributes:
        site: The value.
        grid: Where its places are.
        flow: The network's data flow.
        stream: The tokens of a plain transformer; ``None`` elsewhere.
    """

    site: Site
    grid: Grid
    flow: Flow
    stream: Stream | None = None

    def evidence(self, model: nn.Module, images: Tensor, score: Callable[[Any], Tensor]) -> Tensor:
        """What each place has to say for a class, (N, 1, h, w): the relevance of its units, Σ h·∂s/∂h.

        In a plain transformer it is that of the patches over all blocks, with balanced gradients.
        """
        if self.stream is not None:
            tokens = balanced_relevance(model, self.flow, self.stream, images, score)
            return self.stream.grid.to_map(tokens[..., None])
        (relevant,) = relevance(model, [self.site], images, score)
        return evidence_of(self.grid.to_map(relevant))


def find_focus(
    model: nn.Module, flow: Flow, image: Tensor, layer: str | None, score: Callable[[Any], Tensor]
) -> Focus | None:
    """The layer at which the evidence is read, or ``None`` where no value that speaks for a class forms a grid.

    Args:
        model: The network.
        flow: Its data flow.
        image: A batch of one image, (1, C, H, W).
        layer: Its last feature layer; taken if it is a feature map (N, C, h, w) of a network without attention.
        score: Of each row of the network's output.
    """
    calls = {call.key: call for call in flow.calls}
    named = None if layer is None else find_layer(model, flow, layer)
    last = None if named is None else calls[named.key]
    if named is not None and last is not None and last.shape is not None and len(last.shape) == 4:
        grid = grid_of(flow, last)
        if (grid is None or grid.layout == "map") and not find_attention(model, flow).between_tokens:
            return Focus(named, Grid(last.shape[2], last.shape[3]), flow)
    considered = [call for call in flow.calls if call is last or call.function in _NORMALIZING]
    sites, grids = _with_grids(model, flow, considered)
    for site, grid, relevant in reversed(list(zip(sites, grids, relevance(model, sites, image, score), strict=True))):
        if _speaks(grid.to_map(relevant)):
            return Focus(site, grid, flow, _stream(model, flow))
    return None


def _stream(model: nn.Module, flow: Flow) -> Stream | None:
    try:
        return find_stream(model, flow)
    except ModelError:  # windows, pooled tokens, or attention that cannot be reached
        return None


def _with_grids(model: nn.Module, flow: Flow, calls: list[Call]) -> tuple[list[Site], list[Grid]]:
    grids = {call.key: grid for call in calls if call.clippable and (grid := grid_of(flow, call)) is not None}
    sites = sites_at(model, flow, [call for call in calls if call.key in grids])
    return sites, [grids[site.key] for site in sites]


def _speaks(relevant: Tensor) -> bool:
    """Whether more than half of the places of a map (N, C, h, w) have evidence."""
    evidence, size = relevant.sum(1).abs(), relevant.abs().sum(1)
    return bool(((evidence > _SAYS * size) & (size > 0)).float().mean() > 0.5)
