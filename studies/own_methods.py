"""Methods that only the study needs, made from the package's own."""

from __future__ import annotations

from typing import Any

from torch import Tensor

import fei
from fei.core.settings import as_stored
from fei.methods import Baseline
from fei.methods.cam import features_at, upsample
from fei.methods.masking import ScoreCAM
from fei.references import Reference


class FewerChannels(ScoreCAM):
    """Score-CAM with the channels that vary most over the image, the others having weight 0.

    A forward pass for each of 512 to 2048 channels is more than the study can pay for all photographs.

    Args:
        channels: How many.
    """

    def __init__(self, *, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def maps(self, task: Any) -> Tensor:
        """The map of one image."""
        features = features_at(task, self.layer)[0]
        most = features.flatten(1).var(1).argsort(descending=True, stable=True)[: self.channels]
        kept = features[most]
        weighted = (self._weights(task, kept).view(-1, 1, 1) * kept).sum(0, keepdim=True)
        return upsample(weighted, task.images)


class OtherReference(Baseline):
    """FEI whose masks are optimised with another reference than the one that the metrics then use.

    Args:
        kind: As in `fei.references.Reference`.
        resample: A fresh one at each step.
        variant: FEI's.
        steps: FEI's; the preset's without.
    """

    one_by_one = True
    score = "softmax"

    def __init__(self, *, kind: str, resample: bool = False, variant: str = "vm", steps: int | None = None) -> None:
        self.reference = Reference(kind, resample)
        self.variant, self.steps = variant, steps
        fei.methods.create(f"fei-{variant}", steps=steps)  # refuses bad options now

    @property
    def config(self) -> dict[str, Any]:
        """The reference, and the settings of FEI."""
        made = fei.methods.create(f"fei-{self.variant}", steps=self.steps)
        settings = as_stored(made.config, attends=False)  # type: ignore[attr-defined]
        return {"reference": vars(self.reference), "fei": settings}

    def maps(self, task: Any) -> Tensor:
        """The map of one image."""
        explainer = fei.FEI(task.model, self.variant, steps=self.steps, seed=task.seed)
        maps: Any = explainer.attribute(task.images, task.chosen, self.reference)
        return maps[:, 0]  # type: ignore[no-any-return]
