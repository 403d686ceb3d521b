"""Score-CAM: channels weighted by the score of the image that they, as masks, leave visible; no gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from fei.core.scoring import Score, check_score
from fei.errors import InputError
from fei.methods._baseline import Baseline, Task
from fei.methods.cam import features_at, upsample
from fei.methods.rise import check_fill, fill_of, scores_under

_SCORES: dict[str, Score] = {"probability": "softmax", "channel-softmax": "logit"}


class ScoreCAM(Baseline):
    """Score-CAM: ReLU(Σ_k w_k A_k) with w_k = s(x⊙m_k + fill⊙(1−m_k)), m_k = A_k upsampled and scaled to [0,1].

    Wang et al. 2020, "Score-CAM: score-weighted visual explanations for convolutional neural networks". One forward
    pass, and a row for each channel that is not constant; a constant one has no mask and weight 0. The map is returned
    before the final ReLU, which makes ties, unless `relu` asks for the published one. Two variants are in use under
    this name: the authors' code weights by the class probability under the mask, torchcam and pytorch-grad-cam by a
    softmax of the logits over the channels. Written from the paper.

    Args:
        layer: Module whose output is A; by default the last spatial feature map.
        relu: Apply the final ReLU.
        weighting: "probability" (the authors') or "channel-softmax".
        fill: What stands where a mask is 0: "mean" (the network's mean colour, as the authors'), "black" or
            "reference" (the call's R).
        score: s; ``None`` for what the weighting says, "sigmoid" for the probability of a single logit.
    """

    observes = True
    one_by_one = True
    parts = 100

    def __init__(
        self,
        *,
        layer: str | None = None,
        relu: bool = False,
        weighting: str = "probability",
        fill: str = "mean",
        score: Score | None = None,
    ) -> None:
        if not isinstance(weighting, str) or weighting not in _SCORES:
            raise InputError(f"unknown weighting {weighting!r}; choose one of {', '.join(_SCORES)}")
        check_fill(fill)
        self.score = _SCORES[weighting] if score is None else score
        check_score(self.score)
        self.layer, self.relu, self.weighting, self.fill = layer, relu, weighting, fill

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        features = features_at(task, self.layer)[0]
        weighted = (self._weights(task, features).view(-1, 1, 1) * features).sum(0, keepdim=True)
        return upsample(weighted.relu() if self.relu else weighted, task.images)

    def _weights(self, task: Task, features: Tensor) -> Tensor:
        flat = features.flatten(1)
        varying = (flat.amin(1) < flat.amax(1)).nonzero()[:, 0]

        def masks(index: Tensor) -> Tensor:
            return _unit_range(upsample(features[varying[index]], task.images))[:, None]

        scores = [batch for _, batch in scores_under(masks, len(varying), task, fill_of(task, self.fill))]
        weights = features.new_zeros(len(features))
        if scores:
            found = torch.cat(scores).to(weights)
            weights[varying] = found if self.weighting == "probability" else found.softmax(0)
        return weights


def _unit_range(maps: Tensor) -> Tensor:
    """Maps (n, H, W) scaled to [0, 1], each by its own extremes."""
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    # a channel that varies by rounding alone may not vary any more once it is upsampled
    return (maps - low) / (high - low).clamp(min=torch.finfo(maps.dtype).tiny)
