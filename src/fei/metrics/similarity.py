"""How alike activations are: mean squared error, cosine, Pearson."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fei.core.checks import layout_of


@dataclass(frozen=True)
class Similarity:
    """Activations on perturbed images against those on the original.

    Attributes:
        mse: Mean over elements of the squared difference.
        cosine: Cosine of the flattened activations; 0 where one of them is all zero.
        pearson: Their correlation; 0 where one of them is constant.
    """

    mse: Tensor
    cosine: Tensor
    pearson: Tensor


def similarity(original: Tensor, perturbed: Tensor) -> Similarity:
    """Compare activations (R, ...) on R perturbed images with those (...) on their original.

    Memory is passed over as few times as possible, since shallow layers are large: products by matrix-vector
    multiplication, everything else from sums. Values whose squares single precision does not hold are compared in
    double precision.
    """
    if perturbed.ndim == 4 and layout_of(perturbed) is torch.channels_last:  # in the order of memory: nothing is copied
        original, perturbed = original.permute(1, 2, 0), perturbed.permute(0, 2, 3, 1)
    dtype = torch.promote_types(original.dtype, torch.float32)
    a, b = original.reshape(-1).to(dtype), perturbed.reshape(len(perturbed), -1).to(dtype)
    count = a.numel()
    norm_a, norms_b = torch.linalg.vector_norm(a), torch.linalg.vector_norm(b, dim=1)
    if dtype == torch.float32 and not all(_squares_fit(norms) for norms in (norm_a, norms_b)):
        return similarity(original.double(), perturbed.double())
    mse = torch.linalg.vector_norm(b - a, dim=1).square() / count
    product = b @ a
    mean_a, means_b = a.mean(), b.mean(1)
    covariance = product - count * mean_a * means_b
    spread = _spread(norm_a, mean_a, count) * _spread(norms_b, means_b, count)
    return Similarity(mse, _ratio(product, norm_a * norms_b), _ratio(covariance, spread))


def _squares_fit(norms: Tensor) -> bool:
    """Whether squares of single precision neither overflow nor vanish; a norm of 0 may be of values that did."""
    return bool(((norms > 1e-15) & (norms < 1e15)).all())


def _spread(norm: Tensor, mean: Tensor, count: int) -> Tensor:
    """The norm after the mean is taken off; what rounding leaves of a constant counts as nothing."""
    total = norm.square()
    rest = total - count * mean.square()
    return torch.where(rest > 1e-6 * total, rest, 0.0).sqrt()


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    tiny = torch.finfo(denominator.dtype).tiny
    return torch.where(denominator > 0, numerator / denominator.clamp(min=tiny), 0.0)
