"""Methods that look at the scores of an image under many masks: RISE's are random, Score-CAM's are channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fei.core.checks import check_between, check_count, one_of
from fei.core.scoring import Score
from fei.methods._baseline import Baseline, Task, checked
from fei.methods.cam import features_at, upsample
from fei.references import References, normalised_zero

_SCORES: dict[str, Score] = {"probability": "softmax", "channel-softmax": "logit"}
_FILL = one_of("mean", "black", "reference")


def fill_of(task: Task, fill: str) -> Tensor:
    """What stands where a mask is 0, broadcastable to the images.

    Args:
        task: The images.
        fill: "mean" (zero in the network's normalised space, the mean colour), "black" or "reference" (the call's R).
    """
    if fill == "reference":
        return task.reference
    if fill == "mean":
        return normalised_zero(task.images, task.model)
    return References("black", task.images, task.digests, task.model, task.seed).values


def scores_under(
    masks: Callable[[Tensor], Tensor], count: int, task: Task, fill: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of masks m (b, 1, H, W), and the scores (b,) of the image x⊙m + fill⊙(1−m) under each.

    Args:
        masks: Makes the masks of some indices; it is asked for one batch at a time, which bounds the memory.
        count: How many masks there are.
        task: The one image, and how many rows a batch has; a short one is filled up, because kernels differ by size.
        fill: What stands where a mask is 0.
    """
    for first in range(0, count, task.rows):
        batch = masks(torch.arange(first, first + task.rows).clamp(max=count - 1))
        with torch.no_grad():
            masked = torch.lerp(fill, task.images, batch.to(task.images.dtype))
            scores = task.phi(task.run(masked), copies=task.rows)
        real = min(task.rows, count - first)
        yield batch[:real], scores[:real]
        task.advance((first + real) / count)


@dataclass(eq=False, kw_only=True)
class RISE(Baseline):
    """RISE: Σ_i s(x⊙m_i + fill⊙(1−m_i))·m_i / (N·p), an estimate of the expected score where the pixel is shown.

    Petsiuk, Das & Saenko 2018, "RISE: randomized input sampling for explanation of black-box models". N forward passes
    of one row, no gradient. A mask is an s×s grid of Bernoulli(p) cells, enlarged bilinearly to one cell more than the
    image in both directions, and cut to the image at a random offset of less than a cell. Written from the paper.

    Args:
        samples: N; the paper takes 4000 for VGG16 and 8000 for ResNet50.
        grid: s, cells along each side.
        probability: p, that a cell is shown.
        fill: What stands where a mask is 0: "mean" (the network's mean colour, as the authors'), "black" or
            "reference" (the call's R).
        score: s(·), the "softmax" probability as in the original; "sigmoid" for networks with a single logit.
    """

    samples: int = checked(4000, check_count)
    grid: int = checked(7, check_count)
    probability: float = checked(0.5, check_between)
    fill: str = checked("mean", _FILL)
    score: Score = "softmax"

    one_by_one = True
    parts = 100

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        masks = RandomMasks(task, self.samples, self.grid, self.probability)
        total = torch.zeros_like(task.images[:, 0], dtype=masks.grids.dtype)
        for batch, scores in scores_under(masks, self.samples, task, fill_of(task, self.fill)):
            total += (scores.to(batch).view(-1, 1, 1, 1) * batch).sum(0)
        return total / (self.samples * self.probability)


class RandomMasks:
    """RISE's masks of one image; only the coarse grids and the offsets are kept.

    Attributes:
        grids: The Bernoulli cells (N, 1, s, s).
        offsets: Rows and columns cut off before the image, (N, 2).
    """

    def __init__(self, task: Task, samples: int, grid: int, probability: float) -> None:
        self._size = tuple(task.images.shape[2:])
        self._cell = tuple(-(-side // grid) for side in self._size)
        cells = torch.rand((samples, 1, grid, grid), generator=task.generator("rise-grids")) < probability
        self.grids = cells.to(task.images.device, torch.promote_types(task.images.dtype, torch.float32))
        places = torch.rand((samples, 2), generator=task.generator("rise-offsets"), dtype=torch.float64)
        self.offsets = (places * torch.tensor(self._cell)).long().to(task.images.device)

    def __call__(self, index: Tensor) -> Tensor:
        """The masks (b, 1, H, W) of some indices."""
        grids, offsets = self.grids[index], self.offsets[index]
        enlarged = [(grids.shape[-1] + 1) * cell for cell in self._cell]
        masks = F.interpolate(grids, enlarged, mode="bilinear", align_corners=False)[:, 0]
        rows, columns = (
            first[:, None] + torch.arange(side, device=masks.device)
            for first, side in zip(offsets.T, self._size, strict=True)
        )
        which = torch.arange(len(masks), device=masks.device).view(-1, 1, 1)
        return masks[which, rows[:, :, None], columns[:, None, :]][:, None]


@dataclass(eq=False, kw_only=True)
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

    layer: str | None = None
    relu: bool = False
    weighting: str = checked("probability", one_of(*_SCORES))
    fill: str = checked("mean", _FILL)
    score: Score | None = None  # type: ignore[assignment]  # told by the weighting

    observes = True
    one_by_one = True
    parts = 100

    def __post_init__(self) -> None:
        """Take the score that the weighting asks for, unless another is given."""
        if self.score is None:
            self.score = _SCORES.get(str(self.weighting), "softmax")
        super().__post_init__()

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        features = features_at(task, self.layer)[0]
        weighted = (self._weights(task, features).view(-1, 1, 1) * features).sum(0, keepdim=True)
        return upsample(weighted.relu() if self.relu else weighted, task.images)

    def _weights(self, task: Task, features: Tensor) -> Tensor:
        flat = features.flatten(1)
        varying = (flat.amin(1) < flat.amax(1)).nonzero()[:, 0]

        def masks(index: Tensor) -> Tensor:
            return unit_range(upsample(features[varying[index]], task.images))[:, None]

        scores = [batch for _, batch in scores_under(masks, len(varying), task, fill_of(task, self.fill))]
        weights = features.new_zeros(len(features))
        if scores:
            found = torch.cat(scores).to(weights)
            weights[varying] = found if self.weighting == "probability" else found.softmax(0)
        return weights


def unit_range(maps: Tensor) -> Tensor:
    """Maps (n, H, W) scaled to [0, 1], each by its own extremes."""
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    # a channel that varies by rounding alone may not vary any more once it is upsampled
    return (maps - low) / (high - low).clamp(min=torch.finfo(maps.dtype).tiny)
