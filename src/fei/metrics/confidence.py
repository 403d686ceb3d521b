"""What the network's confidence says of a map: the image masked by it, and removal without a trace (ROAD).

All numbers are per image, in double precision on the CPU. φ is the softmax probability of the target class unless
`score` says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from fei.common.packages import need
from fei.core.checks import check_size
from fei.core.randomness import generator_for, image_digest, seed_of
from fei.core.scoring import Score, Target
from fei.errors import InputError
from fei.metrics._class_scores import ClassScores
from fei.metrics._maps import unit_scale
from fei.metrics.curve import Curve
from fei.metrics.declaration import Metric, of_network
from fei.metrics.perturbation import check_maps, tie_fraction
from fei.protocols import jittered
from fei.references import References, ReferenceSpec

if TYPE_CHECKING:
    from scipy import sparse

ROAD_PERCENTILES = (10.0, 20.0, 30.0, 40.0, 50.0, 70.0, 90.0)
_ROAD_NOISE = 0.01


class MaskOptions(TypedDict, total=False):
    """What `average_drop` and `average_increase` take by name.

    Attributes:
        reference: R, see `fei.references`; 0 by default, ``None`` for a random colour.
        score: As in `fei.FEI`, "softmax" by default; the average drop is a share of it, so it must not be negative.
        generator: Supplies the seed of a random R; 0 without.
        batch_size: Rows in one forward pass.

    Examples:
        >>> tuple(fei.metrics.average_drop(model, images, maps, reference="blur", batch_size=2).shape)
        (2,)
    """

    reference: ReferenceSpec
    score: Score
    generator: torch.Generator | None
    batch_size: int | None


def average_drop(
    model: nn.Module, inputs: Tensor, maps: Tensor, target: Target = None, **options: Unpack[MaskOptions]
) -> Tensor:
    """The share of φ that is lost when the image is masked by its map: max(0, Y − O) / Y, lower is better.

    Y is φ on the image x, O on the "explanation map" m⊙x + (1 − m)⊙R, with m the map scaled to [0, 1] by its own
    minimum and maximum (Chattopadhay et al., "Grad-CAM++", WACV 2018, section 4.1). They multiply, m⊙x: R = 0 in the
    space of `inputs`, the default, which is black for a `fei.models.Classifier` and usually the mean colour for a bare
    network on normalised images. A constant map singles nothing out: m = 0, the whole image is replaced. The mean over
    images, times 100, is the published average drop in per cent. Where Y is 0 there is nothing to lose: 0.

    Args:
        model: The classifier, in evaluation mode; only ever called.
        inputs: Images (N, C, H, W).
        maps: Their attribution maps (N, 1, H, W).
        target: As in `fei.FEI.explain`; ``None`` for the model's top class.
        options: See `MaskOptions`.

    Returns:
        (N,), from 0 to 1.

    Examples:
        >>> drop = fei.metrics.average_drop(model, images, maps)
        >>> bool((drop >= 0).all() and (drop <= 1).all())
        True
    """
    full, masked = _masked_confidence(model, inputs, maps, target, **options)
    if (full < 0).any() or (masked < 0).any():
        raise InputError(
            "The average drop is a share of the score, which is negative here; pass score='softmax' or 'sigmoid'."
        )
    return torch.where(full > 0, (full - masked).clamp(min=0) / full, 0.0)


def average_increase(
    model: nn.Module, inputs: Tensor, maps: Tensor, target: Target = None, **options: Unpack[MaskOptions]
) -> Tensor:
    """1 where φ rises when the image is masked by its map, Y < O, else 0; higher is better.

    Arguments, masks and paper as for `average_drop`; the mean over images, times 100, is the published "increase in
    confidence" in per cent. An undecided image, Y = O, counts as no increase.

    Examples:
        >>> increase = fei.metrics.average_increase(model, images, maps)  # 0 or 1 per image
        >>> set(increase.tolist()) <= {0.0, 1.0}
        True
    """
    full, masked = _masked_confidence(model, inputs, maps, target, **options)
    return (full < masked).double()


def road(
    model: nn.Module,
    inputs: Tensor,
    maps: Tensor,
    target: Target = None,
    *,
    percentiles: Sequence[float] = ROAD_PERCENTILES,
    order: str = "morf",
    noise: float = _ROAD_NOISE,
    score: Score = "softmax",
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
) -> Curve:
    """Remove and Debias: φ after removed pixels have been made up from their neighbours.

    A pixel that is painted over leaves its shape behind, from which a network may guess the class. ROAD replaces
    removed pixels by noisy linear imputation instead: each is the weighted mean of its neighbours (direct 1/6, diagonal
    1/12), removed ones included, plus Gaussian noise (Rong et al., "A consistent and efficient evaluation strategy for
    attribution methods", ICML 2022). n = round(p · HW / 100) pixels are removed. The order of equal map values and the
    noise are random, and depend on the image and the seed alone.

    Args:
        model: The classifier, in evaluation mode; only ever called.
        inputs: Images (N, C, H, W).
        maps: Their attribution maps (N, 1, H, W).
        target: As in `fei.FEI.explain`; ``None`` for the model's top class.
        percentiles: How many per cent of the pixels are removed at each point, in both orders; by default those of the
            authors. At 100 the image's mean colour and the noise remain.
        order: "morf", the most relevant pixels first: lower is better; "lerf", the least relevant first: higher is
            better.
        noise: Standard deviation of the noise, in the units of `inputs`; the authors' images are in [0, 1].
        score: As in `fei.FEI`.
        generator: Supplies the seed of the noise and of the order of ties; 0 without.
        batch_size: Rows in one forward pass.

    Returns:
        A `Curve`: `scores` (N, P) at each percentile, `auc` (N,) their plain mean.

    Examples:
        >>> curve = fei.metrics.road(model, images, maps, percentiles=(20, 50))
        >>> tuple(curve.scores.shape), curve.higher_is_better
        ((2, 2), False)
    """
    if order not in ("morf", "lerf"):
        raise InputError(
            f"Unknown order {order!r}; choose 'morf' (most relevant first) or 'lerf' (least relevant first)."
        )
    shares = _checked_percentiles(percentiles)
    check_size("noise", noise)
    network = ClassScores(model, inputs, target, score, batch_size)
    x = network.inputs
    flat = check_maps(maps, x)
    pixels = flat[0].numel()
    counts = [round(p * pixels / 100) for p in shares]
    seed = seed_of(generator)

    def imputed() -> Iterator[tuple[int, Tensor]]:
        weights = neighbour_weights(*flat.shape[1:])
        for number, (image, values) in enumerate(zip(x, flat, strict=True)):
            digest = image_digest(image)
            first = jittered(values.flatten(), digest, seed, len(image)).cpu()
            first = first if order == "morf" else first.flip(0)
            for percentile, count in zip(shares, counts, strict=True):
                missing = torch.zeros(pixels, dtype=torch.bool)
                missing[first[:count]] = True
                missing = missing.view_as(values)
                drawn = torch.randn(image.shape, generator=generator_for(seed, digest, f"road/{percentile:g}"))
                yield number, impute(image, missing, weights) + (noise * drawn * missing).to(image)

    scores = network.of(imputed()).view(len(x), len(counts))
    notes = "" if noise == _ROAD_NOISE else f"+noise={noise:g}"
    notes += "" if score == "softmax" else f"+score={getattr(score, '__name__', score)}"
    return Curve(
        torch.tensor(counts, dtype=torch.float64) / pixels,
        scores,
        scores.mean(1),
        f"road-{order}/1{notes}",
        tie_fraction(flat),
        order == "lerf",
    )


def _checked_percentiles(percentiles: Sequence[float]) -> list[float]:
    try:
        shares = [float(percentile) for percentile in percentiles]
    except (TypeError, ValueError, OverflowError):
        shares = []
    if not shares or not all(0 <= share <= 100 for share in shares):
        raise InputError(f"`percentiles` must be numbers from 0 to 100, at least one; got {percentiles!r}.")
    return shares


def _masked_confidence(
    model: nn.Module,
    inputs: Tensor,
    maps: Tensor,
    target: Target,
    reference: ReferenceSpec = 0.0,
    score: Score = "softmax",
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    network = ClassScores(model, inputs, target, score, batch_size)
    x = network.inputs
    flat = check_maps(maps, x).cpu().double()
    mask = unit_scale(flat)[:, None].to(x)
    r = References(reference, x, [image_digest(image) for image in x], model, seed_of(generator)).values
    return network.original, network.of(enumerate(mask * x + (1 - mask) * r))


# Scipy takes long to import and only ROAD needs it, so it is imported where it is used.


def neighbour_weights(height: int, width: int) -> sparse.csr_matrix:
    """The symmetric matrix (HW, HW) of weights between pixels: 1/6 to direct, 1/12 to diagonal neighbours."""
    need("ROAD", "bench", "scipy")
    from scipy import sparse

    down, across = (sparse.diags([1.0, 1.0], [-1, 1], shape=(size, size)) for size in (height, width))
    direct = sparse.kron(down, sparse.eye(width)) + sparse.kron(sparse.eye(height), across)
    return sparse.csr_matrix(direct / 6 + sparse.kron(down, across) / 12)


def impute(image: Tensor, missing: Tensor, weights: sparse.csr_matrix) -> Tensor:
    """Replace missing pixels so that each is the weighted mean of its neighbours (Rong et al. 2022, section 4.2).

    For each missing pixel i, Σ_j w_ij (v_i − v_j) = 0 over its neighbours j in the image; known pixels keep their
    value. Neighbours beyond the edge of the image are left out, and the weights of the others thereby raised. As soon
    as one pixel is known the system has one solution. If all are missing, every constant solves it: the image's mean
    colour is taken, the constant closest to the image.

    Args:
        image: (C, H, W).
        missing: Which pixels to replace, boolean (H, W).
        weights: `neighbour_weights` of this size.

    Returns:
        (C, H, W), on the image's device and in its precision.
    """
    from scipy import sparse
    from scipy.sparse.linalg import splu

    gone = missing.flatten().cpu().numpy()
    if not gone.any():
        return image.clone()
    values = image.detach().cpu().double().flatten(1).numpy().T.copy()
    if gone.all():
        values[:] = values.mean(0)
    else:
        rows = weights[gone]
        inner = sparse.diags(np.asarray(rows.sum(1)).ravel()) - rows[:, gone]
        # symmetric and diagonally dominant: no pivoting is needed, which keeps the factors thin
        factors = splu(
            inner.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
        values[gone] = factors.solve(rows[:, ~gone] @ values[~gone])
    return torch.from_numpy(values.T.copy()).view(image.shape).to(image)


METRICS = (
    Metric("average_drop", "drop", False, "confidence", of_network(average_drop), ("network",), "drop"),
    Metric("average_increase", "increase", True, "confidence", of_network(average_increase), ("network",), "increase"),
    Metric("road-morf", "ROAD", False, "confidence", of_network(road, order="morf"), ("network",), "road"),
    Metric("road-lerf", "ROAD", True, "confidence", of_network(road, order="lerf"), ("network",), "road"),
)
