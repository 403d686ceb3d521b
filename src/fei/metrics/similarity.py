"""How alike activations are: mean squared error, cosine, Pearson."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fei.core.checks import layout_of
from fei.core.tokens import Grid


@dataclass(frozen=True)
class Similarity:
    """Activations on perturbed images against those on the original.

    Attributes:
        mse: Mean over elements of the squared difference.
        cosine: Cosine of the flattened activations; 0 where one of them is all zero.
        pearson: Their correlation; 0 where one of them is constant.
        relevant_mse: The squared difference again, each element with the weight that it has for the class; ``None``
            where no weights were asked for.
        relevant_cosine: The cosine likewise.
        cls_mse: Of the class token alone; ``None`` where the layer holds no tokens, or no class token among them.
        cls_cosine: The cosine likewise.
        patch_mse: Of the patches' tokens alone; ``None`` where the layer holds no tokens.
        patch_cosine: The cosine likewise.

    Examples:
        >>> inside = fei.metrics.internal(model, images, maps)["network.5"]
        >>> bool((inside.mse > 0).all()), bool((inside.cosine <= 1).all())
        (True, True)
    """

    mse: Tensor
    cosine: Tensor
    pearson: Tensor
    relevant_mse: Tensor | None = None
    relevant_cosine: Tensor | None = None
    cls_mse: Tensor | None = None
    cls_cosine: Tensor | None = None
    patch_mse: Tensor | None = None
    patch_cosine: Tensor | None = None

    @property
    def numbers(self) -> dict[str, Tensor]:
        """Those that were measured, by their names."""
        return {name: values for name, values in vars(self).items() if values is not None}


def measures(relevance: bool, grid: Grid | None) -> list[str]:
    """The names of what is measured at a layer: with weights or without, and of tokens also apart."""
    weighted = ["relevant_mse", "relevant_cosine"] if relevance else []
    kinds = [] if grid is None else ["patch"] if grid.class_token is None else ["cls", "patch"]
    return ["mse", "cosine", "pearson", *weighted, *(f"{kind}_{name}" for kind in kinds for name in ("mse", "cosine"))]


def tokens_apart(original: Tensor, perturbed: Tensor, grid: Grid) -> dict[str, Tensor]:
    """MSE and cosine of the class token, if there is one, and of the patches.

    Args:
        original: Tokens (T, C).
        perturbed: Those of R perturbed images, (R, T, C).
        grid: Which of them are patches.
    """
    parts = {"patch": similarity(original[grid.patches], perturbed[:, grid.patches])}
    if grid.class_token is not None:
        parts["cls"] = similarity(original[grid.class_token], perturbed[:, grid.class_token])
    return {f"{kind}_{name}": part.numbers[name] for kind, part in parts.items() for name in ("mse", "cosine")}


def relevance_weighted(original: Tensor, perturbed: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared error and cosine of activations (R, ...) and their original (...), each element with its weight.

    With weights w that sum to 1, Σ w·(h − h̃)², and Σ w·h·h̃ / √(Σ w·h² · Σ w·h̃²), 0 where a norm is. In double
    precision: weights differ by orders of magnitude.
    """
    w, h = weights.reshape(-1).double(), original.reshape(-1).double()
    total = w.sum()
    w = w / total if bool(total > 0) else torch.full_like(w, 1 / len(w))  # nothing matters: all alike
    rows = perturbed.reshape(len(perturbed), -1).double()
    mse = (rows - h).square() @ w
    return mse, _ratio(rows @ (w * h), ((rows.square() @ w) * (h.square() @ w)).sqrt())


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
