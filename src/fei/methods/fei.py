"""The FEI variants as methods: `fei.FEI` configured once and applied to any model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fei.core.attribution import FEI
from fei.core.explanation import Explanation
from fei.core.optimization import Watcher
from fei.core.scoring import Target
from fei.progress import Progress
from fei.references import ReferenceSpec


class FEIMethod:
    """FEI waiting for a model.

    Args:
        variant: The clipping rule.
        options: What `fei.FEI` takes, by keyword.
    """

    def __init__(self, variant: str = "vm", **options: Any) -> None:
        self.variant, self.options = variant, options
        self._explainer(nn.Identity())  # refuses bad options now, not at the first call

    def _explainer(self, model: nn.Module) -> FEI:
        return FEI(model, self.variant, **self.options)

    @property
    def config(self) -> dict[str, Any]:
        """All settings as plain data, those of the preset included."""
        return self._explainer(nn.Identity()).config

    def __call__(
        self,
        model: nn.Module,
        inputs: Tensor,
        target: Target = None,
        *,
        reference: ReferenceSpec = None,
        generator: torch.Generator | None = None,
        batch_size: int | None = None,
        progress: bool | Progress = False,
    ) -> Tensor:
        """Attribution maps (N, 1, H, W)."""
        return self.explain(
            model,
            inputs,
            target,
            reference=reference,
            generator=generator,
            batch_size=batch_size,
            progress=progress,
        ).maps

    def explain(
        self,
        model: nn.Module,
        inputs: Tensor,
        target: Target = None,
        *,
        reference: ReferenceSpec = None,
        generator: torch.Generator | None = None,
        batch_size: int | None = None,
        progress: bool | Progress = False,
        on_step: Watcher | None = None,
    ) -> Explanation:
        """Masks, maps and traces; see `fei.FEI.explain`."""
        return self._explainer(model).explain(
            inputs,
            target,
            reference,
            internal_batch_size=batch_size,
            generator=generator,
            progress=progress,
            on_step=on_step,
        )
