"""Extremal Perturbation: for each of several areas, the smooth mask of that area which keeps the score highest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fei.core.checks import check_count, check_shares, is_number
from fei.core.randomness import generator_for
from fei.core.scoring import Score
from fei.errors import InputError
from fei.methods._baseline import Baseline, Task, checked
from fei.references import gaussian_blur, normalised_zero

_LEARNING_RATE, _MOMENTUM, _DAMPENING = 0.01, 0.9, 0.9
_AREA_WEIGHT, _AREA_GROWTH = 300.0, 1.0035
_BLUR_LEVELS, _MAX_BLUR = 8, 20.0
_TEMPERATURE = 1 / 20
_MAP_SMOOTHING = 0.09


def _check_width(name: str, value: Any) -> None:
    if not is_number(value) or value <= 0:
        raise InputError(f"`{name}` must be a finite number above 0; got {value!r}.")


@dataclass(eq=False, kw_only=True)
class ExtremalPerturbation(Baseline):
    """Extremal Perturbation: M = Σ_a m_a smoothed, m_a = argmax_m s(m⊗x) − λ·mean((sort(m) − r_a)²).

    Fong, Patrick & Vedaldi 2019, "Understanding deep networks via extremal perturbations and smooth masks". One forward
    and one backward pass of one row for each step and area. r_a is 0 on the smallest 1−a of the values and 1 on the
    rest, which makes m a binary mask of area a; λ = 300·1.0035^t grows with the step t. m reaches beyond the image,
    and its area is a share of all of it, as in the authors' code: 260×260 for an image of 224×224, where a is 1.35·a
    of the image if nothing lies outside. m⊗x blurs the image with σ = 20·(1−m) pixel by pixel, interpolated between 8
    levels, zeros of the network's normalised space, its mean colour, being around the image. m is the smooth maximum of
    a kernel placed at the cells of a coarse grid, see `SmoothMasks`; the grid starts at 1, is moved by gradient descent
    with momentum and kept in [0,1]. The image is mirrored in every other step. The summed masks are smoothed with
    σ = 0.09·max(H, W), with zeros around them.

    Written from the paper and from facts about the authors' TorchRay: its kernel, its areas and its padding. TorchRay
    is licensed for non-commercial use only and no part of it is here. Two things differ: the grid is centred on the
    image, and equal values are put in a random order of the image's own, where sorting leaves them as they come.
    The score and λ are on one scale, so the result depends on that of the logits. The lengths are in pixels and were
    tuned for images of 224×224: give smaller ones for smaller images, where a single kernel would cover everything.

    Args:
        areas: a, shares of the image.
        steps: Optimisation steps.
        cell: Side of a cell of the coarse grid in pixels.
        sigma: Width of the mask's kernel in pixels.
        score: s, "logit" as in the original, or "softmax".
    """

    areas: Sequence[float] = checked((0.025, 0.05, 0.1, 0.2), check_shares)
    steps: int = checked(800, check_count)
    cell: int = checked(7, check_count)
    sigma: float = checked(21.0, _check_width)
    score: Score = "logit"

    parts = 100
    version = 2  # kernel, areas and padding are those of the authors' code

    def __post_init__(self) -> None:
        """Refuse bad options; the masks of all areas go through the network together."""
        super().__post_init__()
        self.areas = tuple(self.areas)
        self.rows_per_image = len(self.areas)

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        masks = self._optimised(task)
        return blurred(masks.sum(1, keepdim=True), _MAP_SMOOTHING * max(masks.shape[2:]))[:, 0]

    def _optimised(self, task: Task) -> Tensor:
        """The masks (n, areas, H, W)."""
        count, (height, width) = len(self.areas), task.images.shape[2:]
        images = task.images.to(torch.promote_types(task.images.dtype, torch.float32))
        around = normalised_zero(images, task.model)
        levels = blur_levels(images - around) + around[:, None]
        smooth = SmoothMasks((height, width), self.cell, self.sigma, like=images)

        def inside(masks: Tensor) -> Tensor:
            top, left = smooth.margin
            return masks[:, top : top + height, left : left + width].reshape(-1, count, height, width)

        grids = images.new_ones((len(images) * count, 1, *smooth.grid)).requires_grad_()
        area_error = _AreaError(task, self.areas, whole=smooth(grids.detach()[:1]).numel())
        descent = torch.optim.SGD([grids], lr=_LEARNING_RATE, momentum=_MOMENTUM, dampening=_DAMPENING)
        for step in range(self.steps):
            masks = smooth(grids)
            perturbed = perturb(levels, inside(masks)).flatten(0, 1).to(task.images.dtype)
            perturbed = perturbed.flip(3) if step % 2 == 0 else perturbed
            score = task.phi(task.run(perturbed), copies=count)
            loss = _AREA_WEIGHT * _AREA_GROWTH**step * area_error(masks).sum() - score.sum()
            (grids.grad,) = torch.autograd.grad(loss, grids)
            descent.step()
            with torch.no_grad():
                grids.clamp_(0, 1)
            task.advance((step + 1) / self.steps)
        return inside(smooth(grids.detach()))


class SmoothMasks:
    """m(u) = smax_v k(u−v)·g(v): a kernel k at each cell v of a coarse grid g, joined by a smooth maximum.

    smax f = Σ f·exp(f/T) / Σ exp(f/T) with T = 1/20, over the cells that are no more than 1 + σ/cell rows and columns
    away. Where a sum of kernels would blur a mask, their maximum keeps it as steep as one of them. With the distance d
    in units of σ, k = exp(−2·max(0, d−½)²): 1 up to σ/2 from its centre, half as high at 1.09σ. With σ = 21 the mask
    of a single cell is above one half on 3.3 % of a 224×224 image.

    The mask reaches σ beyond the centres of the outermost cells, so that a cell at the edge costs about as much area as
    any other.

    Attributes:
        grid: Rows and columns of the coarse grid, which is centred on the image.
        margin: Rows and columns of a mask before the image.
    """

    def __init__(self, size: Sequence[int], cell: int, sigma: float, like: Tensor) -> None:
        self._cell = cell
        self._reach = 1 + math.ceil(sigma / cell)
        self.grid = [-(-side // cell) for side in size]
        self._blocks = [cells + 2 * self._reach for cells in self.grid]
        beyond = max(0, round(sigma) - (cell - 1) // 2)
        self._cut = self._reach * cell - beyond
        self.margin = [(cells * cell - side) // 2 + beyond for cells, side in zip(self.grid, size, strict=True)]
        pixels = torch.arange(cell, dtype=like.dtype, device=like.device) - (cell - 1) / 2
        centres = torch.arange(-self._reach, self._reach + 1, dtype=like.dtype, device=like.device) * cell
        apart = pixels[:, None] - centres
        distance = (apart[:, None, :, None] ** 2 + apart[None, :, None, :] ** 2).sqrt() / sigma
        self._kernel = torch.exp(-2 * (distance - 0.5).clamp(min=0) ** 2).reshape(cell**2, -1)

    def __call__(self, grids: Tensor) -> Tensor:
        """Masks of grids (b, 1, rows, columns) of values in [0, 1]: (b, H', W'), which is the image and its margin."""
        around = F.unfold(grids, 2 * self._reach + 1, padding=2 * self._reach)
        joined: Tensor = SmoothMaximum.apply(around, self._kernel)  # type: ignore[no-untyped-call]
        whole = F.pixel_shuffle(joined.view(len(grids), -1, *self._blocks), self._cell)[:, 0]
        return whole[:, self._cut : whole.shape[1] - self._cut, self._cut : whole.shape[2] - self._cut]


class SmoothMaximum(torch.autograd.Function):
    """smax over the cells i of f_i = kernel (pixels, cells) × around (b, cells, blocks): (b, pixels, blocks).

    ∂smax/∂f_i = exp(f_i/T)·(1 + (f_i − smax)/T) / Σ exp(f/T), worked out again cell by cell: what autograd would keep
    of a 224×224 image is hundreds of megabytes, and takes longer than a small network.
    """

    @staticmethod
    def forward(ctx: Any, around: Tensor, kernel: Tensor) -> Tensor:
        """The smooth maximum."""
        total = around.new_zeros(len(around), len(kernel), around.shape[2])
        weighted = torch.zeros_like(total)
        for cell in range(around.shape[1]):
            value = kernel[:, cell, None] * around[:, None, cell]
            share = torch.exp(value / _TEMPERATURE)  # values are at most 1, so nothing overflows
            total += share
            weighted.addcmul_(value, share)
        joined = weighted / total
        ctx.save_for_backward(around, kernel, total, joined)
        return joined

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The gradient with respect to `around`."""
        around, kernel, total, joined = ctx.saved_tensors
        scaled, offset = gradients[0] / total, 1 - joined / _TEMPERATURE
        result = torch.empty_like(around)
        for cell in range(around.shape[1]):
            value = kernel[:, cell, None] * around[:, None, cell] / _TEMPERATURE
            result[:, cell] = kernel[:, cell] @ ((value + offset) * value.exp() * scaled)
        return result, None


class _AreaError:
    """mean((sort(m) − r_a)²) of each mask over all its pixels.

    The margin around the image is counted as well: otherwise a cell at the edge would cost less area than others do,
    and the masks of small areas would gather in the corners. Equal values are put in an order of the image's own: in
    raster order the bottom of a flat mask would count as shown.
    """

    def __init__(self, task: Task, areas: Sequence[float], whole: int) -> None:
        orders = [torch.randperm(whole, generator=generator_for(task.seed, d, "extremal-ties")) for d in task.digests]
        self._order = torch.stack(orders).repeat_interleave(len(areas), 0).to(task.images.device)
        shown = torch.tensor([max(1, round(area * whole)) for area in areas])
        ranks = torch.arange(whole, 0, -1)  # 1 for the largest value, which comes last
        self._wanted = (ranks <= shown[:, None]).repeat(len(orders), 1).to(task.images.device)

    def __call__(self, masks: Tensor) -> Tensor:
        """Errors (b,) of masks with their margin (b, H', W')."""
        values = masks.flatten(1).gather(1, self._order).sort(dim=1, stable=True).values
        return (values - self._wanted.to(values)).square().mean(1)


def blur_levels(images: Tensor) -> Tensor:
    """Images (n, levels, C, H, W) from the most blurred to the image itself."""
    widths = [_MAX_BLUR * (1 - level / (_BLUR_LEVELS - 1)) for level in range(_BLUR_LEVELS - 1)]
    return torch.stack([*(blurred(images, width) for width in widths), images], 1)


def perturb(blurred: Tensor, masks: Tensor) -> Tensor:
    """m⊗x, (n, k, C, H, W): between the levels (n, levels, C, H, W) as the masks (n, k, H, W) say, linearly."""
    levels = torch.arange(blurred.shape[1], dtype=masks.dtype, device=masks.device).view(-1, 1, 1)
    shares = (1 - (masks[:, :, None] * (blurred.shape[1] - 1) - levels).abs()).relu()
    return (shares[:, :, :, None] * blurred[:, None]).sum(2)


def blurred(images: Tensor, sigma: float) -> Tensor:
    """Images (n, C, H, W) convolved with a Gaussian that is cut off at 4σ, with zeros around them."""
    single = images.flatten(0, 1)[:, None]
    return gaussian_blur(single, sigma, int(4 * sigma + 0.5), edges="constant").view_as(images)
