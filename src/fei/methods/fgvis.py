"""FGVis: the other defence against evidence that is not there, within the same optimisation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from fei.core.attribution import FEI
from fei.core.clipgrad import Rule
from fei.methods.fei import FEIMethod


def leaves_original_range(reference: Tensor, activation: Tensor) -> Tensor:
    """Whether h̃ lies outside [min(0, h), max(0, h)]."""
    return (activation < reference.clamp(max=0)) | (activation > reference.clamp(min=0))


def _inside_only(falls: Tensor, outside: Tensor) -> Tensor:
    return ~outside


class FGVis(FEI):
    """Fine-grained visual explanations: a gradient passes a nonlinearity only where min(0, h) ≤ h̃ ≤ max(0, h).

    Wagner et al. 2019, "Interpretable and fine-grained visual explanations for convolutional neural networks", inside
    ensemble quantile optimisation, as the FEI paper compares it (section 4.2). There is a mask value for each pixel
    *and channel*, so that x̃ may take colours that are in neither x nor R; the map is the mean over channels. Cost as
    FEI's. Written from the paper.

    Args:
        model: The classifier.
        options: What `fei.FEI` takes, but for the variant; `sites` are all nonlinearities unless given.
    """

    mask_per_channel = True

    def __init__(self, model: nn.Module, **options: Any) -> None:
        super().__init__(model, "none", **({"sites": "nonlinearity"} | options))
        self.settings = replace(self.settings, variant="fgvis")

    @property
    def rule(self) -> Rule:
        """The gate of FGVis; it looks at neither sign nor size of the gradient."""
        return Rule(leaves_original_range, _inside_only)


class FGVisMethod(FEIMethod):
    """FGVis waiting for a model; options as in `FGVis`."""

    def __init__(self, **options: Any) -> None:
        super().__init__("fgvis", **options)

    def _explainer(self, model: nn.Module) -> FEI:
        return FGVis(model, **self.options)
