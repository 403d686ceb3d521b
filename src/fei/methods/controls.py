"""Maps that know nothing of the network: what chance, and the photograph alone, look like under a metric."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from fei.core.randomness import generator_for
from fei.methods._baseline import Baseline, Task
from fei.references import gaussian_blur, pixel_range, smooth_noise

_LUMA = (0.299, 0.587, 0.114)  # of red, green and blue (ITU-R BT.601)
_OFF_CENTRE = (1e-3, 0.618e-3)  # of the longer side: hardly two pixels are as far from there


class Random(Baseline):
    """A uniform random number for each pixel, from the seed and the image; ignores the network and the target."""

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        size = tuple(task.images.shape[2:])
        draws = [torch.rand(size, generator=generator_for(task.seed, digest, "random-map")) for digest in task.digests]
        return torch.stack(draws).to(task.images.device)


class Centre(Baseline):
    """How near a pixel is to the image's centre: exp(−d²/2), d being the distance in quarters of the longer side.

    The point that is meant lies a thousandth of that side off, so that opposite pixels do not tie. Ignores the network,
    the target and the photograph: what most photographs have is in the middle.
    """

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        height, width = task.images.shape[2:]
        side = max(height, width)
        y, x = (
            (torch.arange(length, dtype=torch.float64) - (length - 1) / 2) / side - off
            for length, off in zip((height, width), _OFF_CENTRE, strict=True)
        )
        near = torch.exp(-8 * (y[:, None] ** 2 + x**2))
        return near.to(task.images.device, _precision(task)).expand(len(task.images), -1, -1)


class SmoothNoise(Baseline):
    """Normal random numbers blurred by a Gaussian of σ = 16/224 of the longer side, from the seed and the image.

    As smooth as a class activation map; ignores the network and the target.
    """

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        generators = [generator_for(task.seed, digest, "smooth-noise") for digest in task.digests]
        draws = [smooth_noise(task.images.shape[2:], generator) for generator in generators]
        return torch.stack(draws).to(task.images.device, _precision(task))


class Brightness(Baseline):
    """The luma .299 R + .587 G + .114 B of each pixel; the mean of the channels where they may not be colours.

    Ignores the network and the target.
    """

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        return _luma(task)[:, 0]


class Edges(Baseline):
    """The size of the luma's gradient by Sobel's operator, blurred by a Gaussian of σ = 1 pixel.

    Ignores the network and the target. Some methods' maps are hardly more than this (Adebayo et al., "Sanity checks for
    saliency maps", NeurIPS 2018).
    """

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        luma = _luma(task)
        across = luma.new_tensor([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 8
        slopes = F.conv2d(F.pad(luma, (1, 1, 1, 1), mode="replicate"), torch.stack([across, across.T])[:, None])
        return gaussian_blur(torch.linalg.vector_norm(slopes, dim=1, keepdim=True), 1.0, 3)[:, 0]


def _luma(task: Task) -> Tensor:
    """(n, 1, H, W)."""
    images = task.images.to(_precision(task))
    if pixel_range(task.model) is None or images.shape[1] != len(_LUMA):
        return images.mean(1, keepdim=True)
    return (images * images.new_tensor(_LUMA).view(1, -1, 1, 1)).sum(1, keepdim=True)


def _precision(task: Task) -> torch.dtype:
    return torch.promote_types(task.images.dtype, torch.float32)
