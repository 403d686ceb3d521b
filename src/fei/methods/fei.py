"""FEI as a method, configured once and applied to any model; and FGVis, another defence in the same optimisation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fei.core.attribution import FEI
from fei.core.checks import only
from fei.core.clipgrad import Block, Matching, Rule
from fei.core.evidence import Evidence
from fei.core.explanation import Explanation
from fei.core.optimization import Watcher
from fei.core.scoring import Target
from fei.methods._call import MethodCall, called_with


@dataclass(frozen=True, kw_only=True)
class WatchedCall(MethodCall):
    """A call whose steps can be looked at.

    Attributes:
        on_step: As in `fei.FEI.explain`.
    """

    on_step: Watcher | None = None


class FEIMethod:
    """FEI waiting for a model.

    Args:
        variant: The clipping rule; none for the flagship.
        options: What `fei.FEI` takes, by keyword.
    """

    def __init__(self, variant: str | None = None, **options: Any) -> None:
        self.variant, self.options = variant, options
        self._explainer(nn.Identity())  # refuses bad options now, not at the first call

    def _explainer(self, model: nn.Module) -> FEI:
        return FEI(model, self.variant, **self.options)

    @property
    def name(self) -> str:
        """The name it is registered under."""
        return "fei" if self.variant is None else self.variant if self.variant == "fgvis" else f"fei-{self.variant}"

    @property
    def config(self) -> dict[str, Any]:
        """All settings as plain data, those of the preset included."""
        return self._explainer(nn.Identity()).config

    @property
    def preview(self) -> FEIMethod | None:
        """What makes a preview of the map, see `fei.FEI.refine`; ``None`` where there is none."""
        quicker = self._explainer(nn.Identity()).preview
        return None if quicker is None else FEIMethod(**vars(quicker.settings) | {"variant": self.variant})

    @called_with(MethodCall)
    def __call__(self, call: MethodCall) -> Tensor:
        """Attribution maps (N, 1, H, W); see `fei.methods.Method`."""
        maps = self._explainer(call.model).attribute(
            call.inputs,
            call.target,
            call.reference,
            internal_batch_size=call.batch_size,
            generator=call.generator,
            progress=call.progress,
        )
        return only(maps, "maps")  # type: ignore[no-any-return]

    def weigh(self, model: nn.Module, found: Explanation, target: Target = None) -> Evidence:
        """What the masks keep of the score; see `fei.FEI.weigh`."""
        return self._explainer(model).weigh(found, target)

    @called_with(WatchedCall)
    def explain(self, call: WatchedCall) -> Explanation:
        """Masks, maps and traces; see `fei.FEI.explain`."""
        given = dict(vars(call))
        explainer, inputs, reference = self._explainer(given.pop("model")), given.pop("inputs"), given.pop("reference")
        size = given.pop("batch_size")
        return explainer.explain(inputs, baselines=reference, internal_batch_size=size, evidence=False, **given)


def stays_in_original_range(reference: Tensor, activation: Tensor) -> Tensor:
    """Whether h̃ lies in [min(0, h), max(0, h)]."""
    return (activation >= reference.clamp(max=0)) & (activation <= reference.clamp(min=0))


def _gate(reference: Tensor, activation: Tensor, memory: Tensor | None) -> Tensor:
    return stays_in_original_range(reference, activation).to(activation.dtype)


def _passed(grad: Tensor, gate: Tensor, memory: Tensor | None) -> Tensor:
    return torch.mul(grad, gate, out=memory)


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
        return Rule(Matching(torch.clone, _gate), Block(lambda gate: gate, _passed))


class FGVisMethod(FEIMethod):
    """FGVis waiting for a model; options as in `FGVis`."""

    def __init__(self, **options: Any) -> None:
        super().__init__("fgvis", **options)

    def _explainer(self, model: nn.Module) -> FEI:
        return FGVis(model, **self.options)
