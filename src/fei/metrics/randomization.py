"""Randomisation of a network's weights (paper, section "Sanity Check"; Adebayo et al., NeurIPS 2018).

A map that explains what a network learned changes when what it learned is destroyed. Layers are re-initialised from the
logits down, all so far ("cascading") or each alone ("independent"), and the map of each stage is compared with the
original one; the explained class stays the original network's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fei.common.packages import need
from fei.core.checks import check_call, check_inputs, default_rows
from fei.core.randomness import seed_of
from fei.core.scoring import Target
from fei.errors import InputError, ModelError
from fei.metrics._attribution import UNITS, AnyMethod, attribution, chosen_classes, class_logits
from fei.metrics._maps import check_map_pair, unit_scale
from fei.metrics._weights import Layer, select_layers, weight_layers
from fei.metrics.agreement import rank_correlation
from fei.metrics.declaration import Metric
from fei.metrics.perturbation import check_maps
from fei.progress import Progress, part, reporter
from fei.references import ReferenceSpec

MODES = ("cascading", "independent")
METRICS = (
    Metric("ssim", "SSIM", None, "sanity"),
    Metric("spearman", "Spearman", None, "sanity"),
    Metric("spearman_abs", "Spearman of |map|", None, "sanity"),
    Metric("hog", "HOG", None, "sanity"),
)
SIMILARITIES = tuple(metric.name for metric in METRICS)
_SMALLEST = 7  # the side of SSIM's window


@dataclass(frozen=True)
class Randomization:
    """Maps as a network loses its weights. A method that depends on them ends with low similarities.

    Attributes:
        layers: The L layers in the order in which they were re-initialised.
        maps: The original maps, then those after each stage, (L + 1, N, 1, H, W).
        similarity: Of the maps of each stage to the original ones, (L, N): "ssim" of maps scaled to [0,1] each,
            "spearman", "spearman_abs" (of absolute values) and "hog" (Spearman of HOG features). 1 for equal maps, also
            for constant ones; a constant map and another have rank correlation 0, and the constant one is scaled to 0.
        targets: The explained class of each image, −1 where `target` was a callable.
        mode: "cascading" or "independent".

    Examples:
        >>> found = fei.metrics.cascading_randomization(model, "edges", images)  # which never looks at the network
        >>> found.similarity["spearman"].round().tolist()
        [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """

    layers: list[str]
    maps: Tensor
    similarity: dict[str, Tensor]
    targets: Tensor
    mode: str


def cascading_randomization(
    model: nn.Module,
    method: AnyMethod,
    inputs: Tensor,
    *,
    target: Target = None,
    layers: int | Sequence[str] | None = None,
    mode: str = "cascading",
    reference: ReferenceSpec = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
    progress: bool | Progress = False,
) -> Randomization:
    """Compare a method's maps before and after layers are re-initialised, on a copy of the network.

    Args:
        model: The classifier, in evaluation mode; never changed.
        method: A name, a method, or any callable on (model, inputs, target) that returns maps (N, 1, H, W).
        inputs: Images (N, C, H, W), at least 7×7.
        target: As in `fei.FEI.explain`; ``None`` for the original network's top class.
        layers: How many layers from the top, or names (a unique ending will do); all if not given.
        mode: "cascading": each stage adds a layer, from the logits down; "independent": one layer per stage.
        reference: R, for methods that replace pixels; the same at all stages.
        generator: Supplies the seed of the new weights (0 without) and of the method.
        batch_size: Rows in one forward pass.
        progress: ``True`` for a progress bar, or a callable on (done, in all).

    Examples:
        >>> found = fei.metrics.cascading_randomization(model, "saliency", images)
        >>> found.layers
        ['network.8', 'network.4', 'network.0']
    """
    if mode not in MODES:
        raise InputError(f"Unknown mode {mode!r}; choose one of {', '.join(MODES)}.")
    x = check_inputs(inputs)
    if min(x.shape[2:]) < _SMALLEST:
        raise InputError(f"`inputs` must have at least {_SMALLEST} pixels per side; got {tuple(x.shape)}.")
    staged = maps_by_stage(
        model,
        method,
        x,
        lambda found: [[layer] for layer in select_layers(found, layers)],
        target=target,
        restore=mode == "independent",
        reference=reference,
        generator=generator,
        batch_size=batch_size,
        progress=progress,
    )
    similarities = [map_similarity(staged.maps[0], stage) for stage in staged.maps[1:]]
    return Randomization(
        layers=[layer for stage in staged.layers for layer in stage],
        maps=staged.maps,
        similarity={name: torch.stack([similar[name] for similar in similarities]) for name in SIMILARITIES},
        targets=staged.targets,
        mode=mode,
    )


@dataclass(frozen=True)
class Staged:
    """Maps as a network loses its weights.

    Attributes:
        layers: Names of the layers that each of the S stages re-initialised.
        maps: The original maps, then those after each stage, (S + 1, N, 1, H, W).
        targets: The explained class of each image, −1 where the target was a callable.
    """

    layers: list[list[str]]
    maps: Tensor
    targets: Tensor


class StageOptions(TypedDict, total=False):
    """What tests of randomised weights take by name.

    Attributes:
        target: As in `fei.FEI.explain`; ``None`` for the original network's top class.
        maps: The method's maps for the original network, if they are there already.
        reference: R, for methods that replace pixels; the same before and after.
        generator: Supplies the seed of the new weights (0 without) and of the method.
        batch_size: Rows in one forward pass.
        progress: ``True`` for a progress bar, or a callable on (done, in all).

    Examples:
        >>> made = fei.methods.create("saliency")(model, images, 1)
        >>> alike = fei.metrics.classifier_randomization(model, "saliency", images, target=1, maps=made)
        >>> tuple(alike.correlation.shape)
        (2,)
    """

    target: Target
    maps: Tensor | None
    reference: ReferenceSpec
    generator: torch.Generator | None
    batch_size: int | None
    progress: bool | Progress


def maps_by_stage(
    model: nn.Module,
    method: AnyMethod,
    inputs: Tensor,
    stages: Callable[[Sequence[Layer]], Sequence[Sequence[Layer]]],
    *,
    restore: bool = False,
    target: Target = None,
    maps: Tensor | None = None,
    reference: ReferenceSpec = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
    progress: bool | Progress = False,
) -> Staged:
    """Explain a copy of the network as it is, and again after each stage.

    Args:
        model: As for `cascading_randomization`, like all that is not named here.
        method: The method.
        inputs: The images.
        stages: Chooses, from the layers with weights, the logits' first, which are re-initialised together.
        restore: Whether layers get their weights back before the next stage.
        target: This and what follows as in `StageOptions`.
        maps: The original maps.
        reference: R.
        generator: Supplies the seeds.
        batch_size: Rows in one forward pass.
        progress: As there.
    """
    x, rows = check_call(model, inputs, batch_size)
    attribute = attribution(method, reference, generator, rows)
    seed = seed_of(generator)
    # a copy made under the caller's inference mode could not take part in back-propagation
    with torch.inference_mode(False), torch.enable_grad():
        twin = _copy(model)
        chosen_layers = stages(weight_layers(twin, x))
        if callable(target):
            chosen = torch.full((len(x),), -1)
        else:
            chosen = chosen_classes(twin, class_logits(twin, x, rows or default_rows(x)), target)
        explained = target if callable(target) else chosen
        made = [] if maps is None else [check_maps(maps, x)[:, None]]
        with reporter(progress, (len(chosen_layers) + 1 - len(made)) * UNITS) as tick:

            def explain() -> None:
                with part(tick, UNITS) as report:
                    made.append(attribute(twin, x, explained, report))

            if not made:
                explain()
            for stage in chosen_layers:
                before = [layer.values() for layer in stage]
                for layer in stage:
                    layer.assign(layer.fresh_values(seed))
                explain()
                if restore:
                    for layer, values in zip(stage, before, strict=True):
                        layer.assign(values)
    names = [[layer.name for layer in stage] for stage in chosen_layers]
    return Staged(names, torch.stack(made), chosen.cpu())


def map_similarity(originals: Tensor, others: Tensor) -> dict[str, Tensor]:
    """How alike maps look, by the four measures of `Randomization.similarity`, each (N,).

    SSIM is scikit-image's with its window of 7×7 pixels; HOG features are its too, with 9 orientations, blocks of 3×3
    cells and cells of 16×16 pixels, smaller where the map has no three of them per side.

    Args:
        originals: Maps (N, 1, H, W), at least 7×7.
        others: As many maps of the same size.

    Examples:
        >>> {name: values.round().tolist() for name, values in fei.metrics.map_similarity(maps, maps).items()}
        {'ssim': [1.0, 1.0], 'spearman': [1.0, 1.0], 'spearman_abs': [1.0, 1.0], 'hog': [1.0, 1.0]}
    """
    need("The similarity of maps", "bench", "skimage")
    from skimage.feature import hog
    from skimage.metrics import structural_similarity

    originals, others = check_map_pair(originals, others)
    if min(originals.shape[1:]) < _SMALLEST:
        raise InputError(f"Maps must be at least {_SMALLEST} pixels per side; got {tuple(originals.shape)}.")
    first, second = unit_scale(originals).numpy(), unit_scale(others).numpy()
    cell = min(16, min(first.shape[1:]) // 3)

    def features(maps: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(np.stack([hog(m, pixels_per_cell=(cell, cell)) for m in maps]))

    compare: Any = structural_similarity  # typed in some versions only
    ssim = [compare(a, b, data_range=1.0) for a, b in zip(first, second, strict=True)]
    return {
        "ssim": torch.tensor(ssim, dtype=torch.float64),
        "spearman": _rank_similarity(originals, others),
        "spearman_abs": _rank_similarity(originals.abs(), others.abs()),
        "hog": _rank_similarity(features(first), features(second)),
    }


def _rank_similarity(a: Tensor, b: Tensor) -> Tensor:
    """Spearman's ρ of rows; 1 where both are constant, since a map that stays what it was is no sign of sensitivity."""
    rows, others = a.flatten(1), b.flatten(1)
    constant = (rows.amin(1) == rows.amax(1)) & (others.amin(1) == others.amax(1))
    return torch.where(constant, 1.0, rank_correlation(rows[:, None], others[:, None]))


def _copy(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"The network cannot be copied, and its own weights are not to be touched: {reason}; make "
            "copy.deepcopy(model) work."
        ) from error
