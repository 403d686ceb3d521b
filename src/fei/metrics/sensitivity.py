"""How a map answers to small perturbations: does it foretell their effect, and does it stay the same itself?

Both numbers are captum's (`captum.metrics`), per image, in double precision on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fei.common.random_state import lent_random_state
from fei.core.checks import check_count, check_size, only
from fei.core.randomness import generator_for, image_digest, seed_of
from fei.core.scoring import Score, Target
from fei.metrics._class_scores import ClassScores
from fei.metrics.declaration import Metric, of_network
from fei.metrics.perturbation import check_maps

Perturb = Callable[[Tensor], tuple[Tensor, Tensor]]


def infidelity(
    model: nn.Module,
    inputs: Tensor,
    maps: Tensor,
    target: Target = None,
    *,
    perturbation: float | Perturb = 0.1,
    samples: int = 10,
    normalize: bool = True,
    score: Score = "softmax",
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
) -> Tensor:
    """How badly a map foretells what perturbations do: E[(Σ I·M − (φ(x) − φ(x − I)))²], lower is better.

    Yeh et al., "On the (in)fidelity and sensitivity of explanations", NeurIPS 2019, computed by captum. The map counts
    for each colour channel alike.

    Args:
        model: The classifier, in evaluation mode; only ever called.
        inputs: Images (N, C, H, W).
        maps: Their attribution maps (N, 1, H, W).
        target: As in `fei.FEI.explain`; ``None`` for the model's top class.
        perturbation: Standard deviation of Gaussian noise I, in the units of `inputs`; or captum's `perturb_func`, a
            callable that takes images in double precision and returns (I, x − I).
        samples: Perturbations of each image.
        normalize: Scale the map by the factor that suits it best, as the authors do. Without, the map must be in units
            of φ per unit of input, which only gradients are.
        score: As in `fei.FEI`.
        generator: Supplies the seed; 0 without. Each image has a sub-seed of its own, which also seeds torch's and
            numpy's global generators while a callable draws from them; they are restored.
        batch_size: Rows in one forward pass.

    Returns:
        (N,).

    Examples:
        >>> tuple(fei.metrics.infidelity(model, images, maps, samples=3).shape)
        (2,)
    """
    metrics = _captum_metrics()
    check_count("samples", samples)
    if not callable(perturbation):
        check_size("perturbation", perturbation)
    network = ClassScores(model, inputs, target, score, batch_size)
    x = network.inputs
    flat = check_maps(maps, x)
    found = []
    for number, image in enumerate(x):
        source = generator_for(seed_of(generator), image_digest(image), "infidelity")
        perturb = perturbation if callable(perturbation) else _gaussian(float(perturbation), source)
        single = image[None].cpu().double()  # captum subtracts large sums from each other: not in single precision
        with lent_random_state(source.initial_seed()):
            value = metrics.infidelity(
                _score_of(network, number),
                perturb,
                single,
                flat[number].cpu().double().expand_as(single),
                n_perturb_samples=samples,
                max_examples_per_batch=min(network.rows, samples),
                normalize=normalize,
            )
        found.append(value)
    return torch.cat(found).clamp(min=0)  # a mean of squares; round-off alone goes below


def max_sensitivity(
    model: nn.Module,
    method: Callable[..., Tensor],
    inputs: Tensor,
    target: Target = None,
    *,
    radius: float = 0.02,
    samples: int = 10,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
) -> Tensor:
    """How much a map changes when the image hardly does: max ‖M(x + δ) − M(x)‖ / ‖M(x)‖, lower is better.

    The maximum over `samples` draws of δ, uniform in [−r, r] for each value (Yeh et al., NeurIPS 2019; captum's
    `sensitivity_max`). The target stays that of the unperturbed image. A method that draws its own reference from the
    image draws another one for each x + δ: fix it with ``functools.partial(method, reference=…)`` to leave that out.

    Args:
        model: The classifier, in evaluation mode; left as it is if `method` leaves it so.
        method: Any method of `fei.methods`, or a callable on (model, inputs, target) that returns maps (N, 1, H, W).
        inputs: Images (N, C, H, W).
        target: As in `fei.FEI.explain`; ``None`` for the model's top class.
        radius: r, in the units of `inputs`.
        samples: Draws of δ for each image.
        generator: Supplies the seed; 0 without. Each image has a sub-seed of its own, which also seeds torch's and
            numpy's global generators while the method runs; they are restored.
        batch_size: How many perturbed images the method is given at a time.

    Returns:
        (N,). A map of zeros has norm 1 here, so that its sensitivity is the norm of the change.

    Examples:
        >>> found = fei.metrics.max_sensitivity(model, fei.methods.create("saliency"), images, samples=2)
        >>> bool((found >= 0).all())
        True
    """
    metrics = _captum_metrics()
    check_count("samples", samples)
    check_size("radius", radius)
    network = ClassScores(model, inputs, target, "logit", batch_size)
    found = []
    for number, image in enumerate(network.inputs):
        source = generator_for(seed_of(generator), image_digest(image), "max_sensitivity")
        fixed = target if callable(target) else network.chosen[number]
        with lent_random_state(source.initial_seed()):
            value = metrics.sensitivity_max(
                _maps_of(method, model, fixed),
                image[None],
                _uniform(radius, source),
                n_perturb_samples=samples,
                max_examples_per_batch=min(network.rows, samples),
            )
        found.append(value)
    return torch.cat(found)


# captum counts the parameters of what it is given: what a function needs besides is enclosed, never a default


def _score_of(network: ClassScores, number: int) -> Callable[[Tensor], Tensor]:
    return lambda images: network.of((number, image) for image in images)


def _maps_of(method: Callable[..., Tensor], model: nn.Module, target: Target) -> Callable[[Any], tuple[Tensor]]:
    def explain(images: Any) -> tuple[Tensor]:
        batch = only(images, "inputs")
        fixed = target.expand(len(batch)).to(batch.device) if isinstance(target, Tensor) else target
        with torch.enable_grad():  # captum calls under no_grad, and most methods need gradients
            maps = method(model, batch, fixed)
        return (check_maps(maps, batch).cpu().double().contiguous(),)  # a tuple, since captum passes one

    return explain


def _uniform(radius: float, source: torch.Generator) -> Callable[[Tensor], Tensor]:
    return lambda images: images + radius * (2 * _draws(torch.rand, images, source) - 1)


def _gaussian(deviation: float, source: torch.Generator) -> Perturb:
    def perturb(images: Tensor) -> tuple[Tensor, Tensor]:
        noise = deviation * _draws(torch.randn, images, source)
        return noise, images - noise

    return perturb


def _draws(draw: Callable[..., Tensor], images: Tensor, source: torch.Generator) -> Tensor:
    # one draw per image: how many are asked for at a time must not change what they are
    return torch.stack([draw(images.shape[1:], generator=source) for _ in images]).to(images)


def _captum_metrics() -> Any:
    from captum import metrics  # as slow to import as torch

    return metrics


METRICS = (
    Metric("infidelity", "infidelity", False, measure=of_network(infidelity), needs=("network",), format=".4g"),
    Metric("max_sensitivity", "maximal sensitivity", False, format=".4g"),
)
