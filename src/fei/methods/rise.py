"""RISE: pixels matter by the scores of the random masks that show them; and what scores an image under masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from fei.core.checks import check_count
from fei.core.scoring import Score, check_score
from fei.errors import InputError
from fei.methods._baseline import Baseline, Task
from fei.protocols import normalised_zero
from fei.references import References

FILLS = ("mean", "black", "reference")


def check_fill(fill: str) -> None:
    """Refuse an unknown fill."""
    if fill not in FILLS:
        raise InputError(f"unknown fill {fill!r}; choose one of {', '.join(FILLS)}")


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

    one_by_one = True
    parts = 100

    def __init__(
        self,
        *,
        samples: int = 4000,
        grid: int = 7,
        probability: float = 0.5,
        fill: str = "mean",
        score: Score = "softmax",
    ) -> None:
        check_count("samples", samples)
        check_count("grid", grid)
        if isinstance(probability, bool) or not isinstance(probability, (int, float)) or not 0 < probability < 1:
            raise InputError(f"`probability` must be a number strictly between 0 and 1; got {probability!r}")
        check_fill(fill)
        check_score(score)
        self.samples, self.grid, self.probability = samples, grid, probability
        self.fill, self.score = fill, score

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
