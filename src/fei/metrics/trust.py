"""Can a method's maps be trusted? Whether they change with the class and the weights, and stay with another seed.

Each test takes any method: a name, a `fei.methods.Method`, or a callable on (model, inputs, target). What is asked
of each number stands in `fei.metrics.criteria`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from fei.core.checks import check_call, check_count, default_rows
from fei.core.randomness import generator_for, image_digest, seed_of
from fei.core.scoring import Target, top_classes
from fei.errors import InputError
from fei.metrics._attribution import UNITS, AnyMethod, attribution, chosen_classes, class_logits
from fei.metrics._weights import Layer
from fei.metrics.agreement import agreement_matrix, rank_correlation
from fei.metrics.complexity import histogram_entropy
from fei.metrics.declaration import Metric, Need, Subject
from fei.metrics.perturbation import check_maps, tie_fraction
from fei.metrics.randomization import StageOptions, maps_by_stage
from fei.progress import Progress, part, reporter
from fei.references import ReferenceSpec

_FAINT = 1e-3  # the probability below which a class is not in the picture
_MOST_TIES = 0.5


@dataclass(frozen=True)
class Likeness:
    """How alike two maps of each image are, where they should not be.

    Attributes:
        correlation: Spearman's ρ over the pixels, (N,); 1 where a map is flat.
        flat: Whether more than half of one of the maps is tied, (N,). A map that ranks little is like no other, which
            is no sign of sensitivity.

    Examples:
        >>> alike = fei.metrics.class_sensitivity(model, "saliency", images).runner_up
        >>> tuple(alike.correlation.shape), alike.flat.tolist()
        ((2,), [False, False])
    """

    correlation: Tensor
    flat: Tensor


@dataclass(frozen=True)
class ClassSensitivity:
    """How alike the map of a class is to those of others; lower is better.

    Attributes:
        random: Against a class drawn at random from those that are not in the picture.
        runner_up: Against the most probable other class.
        targets: The explained class of each image, (N,).
        random_class: The class drawn for each image.
        runner_up_class: The most probable class of each but the explained one.

    Examples:
        >>> found = fei.metrics.class_sensitivity(model, "saliency", images)
        >>> bool((found.runner_up_class != found.targets).all())
        True
    """

    random: Likeness
    runner_up: Likeness
    targets: Tensor
    random_class: Tensor
    runner_up_class: Tensor


@dataclass(frozen=True)
class Stability:
    """How alike the maps are that a method makes of one image under several seeds or references; higher is better.

    Attributes:
        correlation: Mean of Spearman's ρ over all pairs of variants, (N,); a constant map has 0 with any other.
        agreement: ρ of each pair, (N, K, K).
        variants: The K seeds and references.

    Examples:
        >>> found = fei.metrics.stability(model, "random", images, seeds=3)
        >>> tuple(found.agreement.shape), bool((found.correlation < 0.5).all())
        ((2, 3, 3), True)
    """

    correlation: Tensor
    agreement: Tensor
    variants: list[tuple[int, ReferenceSpec]]


@dataclass(frozen=True)
class ComplexityRise:
    """How much more complex maps are once all weights are random; higher is better.

    Attributes:
        rise: (H_after − H_before) / H_before, (N,); 0 where the original map is constant.
        before: Entropy of the histogram of the original map.
        after: Entropy of that of the map for the randomised network.
        flat: Whether more than half of one of the two maps is tied: random weights may leave a deep network without
            normalisation so little signal that there is no map to speak of.

    Examples:
        >>> found = fei.metrics.emprt(model, "saliency", images)
        >>> torch.allclose(found.rise, (found.after - found.before) / found.before)
        True
    """

    rise: Tensor
    before: Tensor
    after: Tensor
    flat: Tensor


@dataclass(frozen=True)
class WeightSensitivity:
    """How maps change as the network loses its weights, from the logits down.

    Attributes:
        classifier: After the classifier alone, see `classifier_randomization`; lower is better.
        cascade: The mean over all stages; lower is better. A map counts as flat where one of the stages does.
        complexity: After all layers, see `emprt`.
        layers: The names of the layers that each stage took the weights of, beside those before it.

    Examples:
        >>> fei.metrics.weight_sensitivity(model, "saliency", images, stages=2).layers
        [['network.8'], ['network.4', 'network.0']]
    """

    classifier: Likeness
    cascade: Likeness
    complexity: ComplexityRise
    layers: list[list[str]]


def class_sensitivity(
    model: nn.Module,
    method: AnyMethod,
    inputs: Tensor,
    *,
    target: Target = None,
    maps: Tensor | None = None,
    reference: ReferenceSpec = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
    progress: bool | Progress = False,
) -> ClassSensitivity:
    """Compare the map of a class with the map of a class that is not in the picture, and with the runner-up's.

    The first is drawn, with a seed of the image's own, from the classes of a probability below .001, or from the less
    probable half of the others where there is none. A method that answers the same whatever it is asked has 1 in both
    (Sixt et al., "When explanations lie", ICML 2020, show why some do).

    Args:
        model: The classifier, in evaluation mode; left as it is if `method` leaves it so.
        method: A name, a method, or any callable on (model, inputs, target) that returns maps (N, 1, H, W).
        inputs: Images (N, C, H, W).
        target: A class, or one per image; ``None`` for the model's top class.
        maps: The method's maps of the target, if they are there already.
        reference: R, for methods that replace pixels; the same for all classes.
        generator: Supplies the seed of the draw (0 without) and of the method.
        batch_size: Rows in one forward pass.
        progress: ``True`` for a progress bar, or a callable on (done, in all).

    Examples:
        >>> found = fei.metrics.class_sensitivity(model, "edges", images)  # the same map for every class
        >>> found.runner_up.correlation.round().tolist()
        [1.0, 1.0]
    """
    x, rows = check_call(model, inputs, batch_size)
    attribute = attribution(method, reference, generator, rows)
    if callable(target):
        raise InputError("A callable target is no class that others can be compared with; give class indices.")
    logits = class_logits(model, x, rows or default_rows(x))
    if logits.shape[1] < 2:
        raise InputError("This network has a single logit and thus no other class; give one with two or more.")
    chosen, probabilities = chosen_classes(model, logits, target), logits.double().softmax(1)
    others = probabilities.scatter(1, chosen[:, None], -1)
    runner_up = top_classes(others, 1)[1][:, 0]
    drawn = torch.stack([_absent(row, image, seed_of(generator)) for row, image in zip(others, x, strict=True)])
    classes = [chosen, drawn, runner_up]
    found = [] if maps is None else [check_maps(maps, x)[:, None]]
    with reporter(progress, (len(classes) - len(found)) * UNITS) as tick:
        for explained in classes[len(found) :]:
            with part(tick, UNITS) as report:
                found.append(attribute(model, x, explained, report))
    original, random, second = found
    return ClassSensitivity(
        _likeness(original, random), _likeness(original, second), chosen.cpu(), drawn.cpu(), runner_up.cpu()
    )


def stability(
    model: nn.Module,
    method: AnyMethod,
    inputs: Tensor,
    *,
    target: Target = None,
    seeds: int = 2,
    references: Sequence[ReferenceSpec] = (None,),
    maps: Tensor | None = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
    progress: bool | Progress = False,
) -> Stability:
    """Compare the maps of one image under several seeds, references, or both.

    Where a method draws its reference, another seed is another reference. A method that draws nothing has 1.

    Args:
        model: The classifier, in evaluation mode; left as it is if `method` leaves it so.
        method: A name, a method, or any callable on (model, inputs, target) that returns maps (N, 1, H, W).
        inputs: Images (N, C, H, W).
        target: As in `fei.FEI.explain`; ``None`` for the model's top class.
        seeds: How many seeds: that of the generator and those that follow it.
        references: What R to take under each seed; ``seeds=1, references=("mean", "color")`` compares these two.
        maps: The method's maps under the first seed and reference, if they are there already.
        generator: Supplies the first seed; 0 without.
        batch_size: Rows in one forward pass.
        progress: ``True`` for a progress bar, or a callable on (done, in all).

    Examples:
        >>> fei.metrics.stability(model, "saliency", images).correlation.round().tolist()  # nothing is drawn at random
        [1.0, 1.0]
    """
    x, rows = check_call(model, inputs, batch_size)
    check_count("seeds", seeds)
    if isinstance(references, str) or not isinstance(references, Sequence):
        raise InputError(f"`references` must be a list of references; got {references!r}.")
    first = seed_of(generator)
    variants = [(first + number, reference) for reference in references for number in range(seeds)]
    if len(variants) < 2:
        raise InputError("There is nothing to compare; give at least two seeds or two references.")
    attributes = [attribution(method, given, torch.Generator().manual_seed(seed), rows) for seed, given in variants]
    explained = target
    if not callable(target):
        explained = chosen_classes(model, class_logits(model, x, rows or default_rows(x)), target)
    found = [] if maps is None else [check_maps(maps, x)[:, None]]
    with reporter(progress, (len(variants) - len(found)) * UNITS) as tick:
        for attribute in attributes[len(found) :]:
            with part(tick, UNITS) as report:
                found.append(attribute(model, x, explained, report))
    agreement = agreement_matrix({str(number): each for number, each in enumerate(found)})
    pairs = [agreement[:, a, b] for a, b in combinations(range(len(found)), 2)]
    return Stability(torch.stack(pairs).mean(0), agreement, variants)


def classifier_randomization(
    model: nn.Module, method: AnyMethod, inputs: Tensor, **options: Unpack[StageOptions]
) -> Likeness:
    """Compare maps before and after the classifier, the last layer with weights, is re-initialised on a copy.

    It is the first stage of `cascading_randomization` (Adebayo et al., NeurIPS 2018) and the one that methods fail
    which depend on the image and on early layers alone. Lower is better.

    Args:
        model: The classifier, in evaluation mode; never changed.
        method: A name, a method, or any callable on (model, inputs, target) that returns maps (N, 1, H, W).
        inputs: Images (N, C, H, W).
        options: See `fei.metrics.randomization.StageOptions`.

    Examples:
        >>> fei.metrics.classifier_randomization(model, "edges", images).correlation.round().tolist()
        [1.0, 1.0]
    """
    staged = maps_by_stage(model, method, inputs, lambda layers: [layers[:1]], **options)
    return _likeness(staged.maps[0], staged.maps[1])


def emprt(model: nn.Module, method: AnyMethod, inputs: Tensor, **options: Unpack[StageOptions]) -> ComplexityRise:
    """The relative rise of a map's complexity when all weights become random: (H_after − H_before) / H_before.

    The efficient model parameter randomisation test (Hedström et al., "A fresh look at sanity checks for saliency
    maps", xAI 2024). H is the entropy of the histogram of a map's values in 100 bins between its extremes, as in the
    authors' Quantus. A map that reflects what was learned is simpler than what noise gives: higher is better, and 0
    means that nothing changed. Every layer with weights is re-initialised, on a copy.

    Args:
        model: The classifier, in evaluation mode; never changed.
        method: A name, a method, or any callable on (model, inputs, target) that returns maps (N, 1, H, W).
        inputs: Images (N, C, H, W).
        options: See `fei.metrics.randomization.StageOptions`.

    Examples:
        >>> fei.metrics.emprt(model, "edges", images).rise.tolist()
        [0.0, 0.0]
    """
    staged = maps_by_stage(model, method, inputs, lambda layers: [layers], **options)
    return _complexity_rise(*staged.maps)


def weight_sensitivity(
    model: nn.Module, method: AnyMethod, inputs: Tensor, *, stages: int = 4, **options: Unpack[StageOptions]
) -> WeightSensitivity:
    """Cascading randomisation in a few stages, with `classifier_randomization` and `emprt` read off the same maps.

    The first stage re-initialises the classifier and the last all layers; those between divide the layers evenly. Every
    stage keeps what the stages before it did (Adebayo et al., NeurIPS 2018).

    Args:
        model: The classifier, in evaluation mode; never changed.
        method: A name, a method, or any callable on (model, inputs, target) that returns maps (N, 1, H, W).
        inputs: Images (N, C, H, W).
        stages: How many, at least two; fewer where there are fewer layers.
        options: See `fei.metrics.randomization.StageOptions`.

    Examples:
        >>> found = fei.metrics.weight_sensitivity(model, "edges", images, stages=2)
        >>> found.cascade.correlation.round().tolist()  # it never looks at the weights
        [1.0, 1.0]
    """
    check_count("stages", stages, 2)

    def divided(layers: Sequence[Layer]) -> list[Sequence[Layer]]:
        ends = sorted({1 + (len(layers) - 1) * number // (stages - 1) for number in range(stages)})
        return [layers[start:end] for start, end in pairwise([0, *ends])]

    staged = maps_by_stage(model, method, inputs, divided, **options)
    original, *later = staged.maps
    alike = [_likeness(original, each) for each in later]
    cascade = Likeness(
        torch.stack([each.correlation for each in alike]).mean(0), torch.stack([each.flat for each in alike]).any(0)
    )
    return WeightSensitivity(alike[0], cascade, _complexity_rise(original, later[-1]), staged.layers)


def _asked(test: Callable[..., Any]) -> Callable[[Subject], Any]:
    """A test of trust of the method that made a map; other maps are asked for, this one is there already."""

    def ask(subject: Subject) -> Any:
        if subject.method is None:
            raise InputError("This metric asks the method for other maps; give the method, not its map alone.")
        return test(
            subject.model, subject.method, subject.inputs, target=subject.target, maps=subject.maps, **subject.options
        )

    return ask


_classes, _weights = _asked(class_sensitivity), _asked(weight_sensitivity)
_stable, _redrawn = _asked(stability), _asked(classifier_randomization)
_NEEDS: tuple[Need, ...] = ("network", "method")
METRICS = (
    Metric(
        "random_class",
        "ρ with another class",
        False,
        "class_sensitivity",
        lambda subject: subject.once(_classes).random.correlation,
        _NEEDS,
    ),
    Metric(
        "runner_up",
        "ρ with the runner-up",
        False,
        "class_sensitivity",
        lambda subject: subject.once(_classes).runner_up.correlation,
        _NEEDS,
    ),
    Metric("stability", "ρ between seeds", True, measure=lambda subject: _stable(subject).correlation, needs=_NEEDS),
    Metric(
        "classifier_randomization",
        "ρ, classifier redrawn",
        False,
        measure=lambda subject: _redrawn(subject).correlation,
        needs=_NEEDS,
    ),
    Metric(
        "cascade",
        "ρ, layers redrawn in turn",
        False,
        "weight_sensitivity",
        lambda subject: subject.once(_weights).cascade.correlation,
        _NEEDS,
    ),
    Metric(
        "emprt",
        "rise of complexity",
        True,
        "weight_sensitivity",
        lambda subject: subject.once(_weights).complexity.rise,
        _NEEDS,
    ),
)


def _absent(others: Tensor, image: Tensor, seed: int) -> Tensor:
    """A class that is not in the picture; `others` has the probability of each class, below 0 for the explained one."""
    order = others.argsort(stable=True)[1:]
    faint = int((others[order] < _FAINT).sum())
    pool = order[: faint or max(1, len(order) // 2)].sort().values
    draw = torch.randint(len(pool), (), generator=generator_for(seed, image_digest(image), "absent class"))
    return pool[draw]


def _complexity_rise(maps: Tensor, others: Tensor) -> ComplexityRise:
    before, after = histogram_entropy(maps), histogram_entropy(others)
    rise = torch.where(before > 0, (after - before) / before, 0.0)
    return ComplexityRise(rise, before, after, _flat(maps, others))


def _likeness(maps: Tensor, others: Tensor) -> Likeness:
    flat = _flat(maps, others)
    return Likeness(torch.where(flat, 1.0, rank_correlation(maps, others)), flat)


def _flat(*maps: Tensor) -> Tensor:
    return torch.stack([tie_fraction(each[:, 0]) > _MOST_TIES for each in maps]).any(0).cpu()
