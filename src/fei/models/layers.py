"""The feature layers of any network: the ones it names, or those found in it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from fei.models.structure import find_feature_layers


def feature_layers(model: nn.Module, inputs: Tensor) -> Sequence[str]:
    """Module names from shallow to deep, the last one being the layer for class activation maps.

    Args:
        model: A network; its `feature_layers` are taken if it has them.
        inputs: Images it takes.
    """
    known: Sequence[str] | None = getattr(model, "feature_layers", None)
    return known or find_feature_layers(model, inputs[:1].detach())
