"""How alike activations are: mean squared error, cosine, Pearson."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
    """Compare rows: both (R, ...), flattened from the second dimension on, in at least float32."""
    dtype = torch.promote_types(original.dtype, torch.float32)
    a, b = original.flatten(1).to(dtype), perturbed.flatten(1).to(dtype)
    mse = (a - b).square().mean(1)
    return Similarity(mse, _cosine(a, b), _cosine(a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)))


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    norms = a.norm(dim=1) * b.norm(dim=1)
    return torch.where(norms > 0, (a * b).sum(1) / norms.clamp(min=torch.finfo(a.dtype).tiny), 0.0)
