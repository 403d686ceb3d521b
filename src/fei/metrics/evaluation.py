"""Insertion, deletion and internal faithfulness from one set of forwards.

V_Ins and V_Del (paper, section 3.2) read the network's output along the two curves of perturbed images; internal
faithfulness (section 3.5) compares activations on the insertion curve with those on the original image. Every perturbed
image passes the network once, whatever is read from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor, nn

from fei.core.scoring import Score, Target
from fei.metrics._passes import Passes
from fei.metrics.curve import Curve
from fei.metrics.declaration import Metric, Need, Subject
from fei.metrics.similarity import Similarity
from fei.progress import Progress
from fei.protocols import Protocol
from fei.references import ReferenceSpec


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` measured.

    Attributes:
        insertion: The insertion curve.
        deletion: The deletion curve.
        internal: For each layer, similarity to the original's activations, (N,): the mean over the insertion curve.
        internal_curves: The same at each point of the insertion curve but its ends, (N, points).
        target: The scored class of each image.
        forwards: Rows that passed the network for these numbers, per image.

    Examples:
        >>> found = fei.metrics.evaluate(model, images, maps)
        >>> found.insertion.protocol, found.target.tolist()
        ('held-out/1', [2, 2])
    """

    insertion: Curve
    deletion: Curve
    internal: dict[str, Similarity]
    internal_curves: dict[str, Similarity]
    target: Tensor
    forwards: float

    def __repr__(self) -> str:
        layers = f", {len(self.internal)} layer(s)" if self.internal else ""
        return f"Evaluation({self.insertion!r}, {self.deletion!r}{layers})"


class PassOptions(TypedDict, total=False):
    """What `internal` takes by name, and the others too.

    Attributes:
        protocol: Id or object, see `fei.protocols`; by default "held-out", whose references no default of FEI
            optimises with, or where a reference is given "fei-paper".
        reference: R, where the protocol leaves it to the call; by default the random colour that FEI uses with the
            same seed.
        generator: Supplies the seed of R and of the order of ties; 0 without.
        batch_size: Rows in one forward pass.
        progress: ``True`` for a progress bar, or a callable on (forwards done, in all).
        relevance: Whether to measure the inside also with each unit weighted by what it has to say about the class,
            |h·∂φ/∂h| on the image itself. It takes one pass forwards and backwards more.
        on_output: Called with the network's output on each batch: originals, then their perturbed rows in order.

    Examples:
        >>> inside = fei.metrics.internal(model, images, maps, protocol="fei-fine", relevance=True)
        >>> tuple(inside["network.5"].relevant_cosine.shape)
        (2,)
    """

    protocol: str | Protocol | None
    reference: ReferenceSpec
    generator: torch.Generator | None
    batch_size: int | None
    progress: bool | Progress
    relevance: bool
    on_output: Callable[[Any], None] | None


class CurveOptions(PassOptions, total=False):
    """What `insertion`, `deletion` and `evaluate` take by name: besides, a score in place of the protocol's.

    The id of the protocol then carries a note of it.

    Examples:
        >>> fei.metrics.insertion(model, images, maps, protocol="fei-paper", reference="blur", score="logit").protocol
        'fei-paper/1+score=logit'
    """

    score: Score | None


def insertion(
    model: nn.Module, inputs: Tensor, maps: Tensor, target: Target = None, **options: Unpack[CurveOptions]
) -> Curve:
    """φ as the least important pixels are replaced: V_Ins, higher is better.

    Args:
        model: The classifier, in evaluation mode; only ever called.
        inputs: Images (N, C, H, W).
        maps: Their attribution maps (N, 1, H, W).
        target: As in `fei.FEI.explain`; ``None`` for the model's top class.
        options: See `CurveOptions`.

    Examples:
        >>> curve = fei.metrics.insertion(model, images, maps, protocol="fei-paper")
        >>> curve.protocol, tuple(curve.scores.shape)
        ('fei-paper/1', (2, 5))
    """
    return Passes(model, inputs, maps, target, ["insertion"], [], **options).measure().curve("insertion")


def deletion(
    model: nn.Module, inputs: Tensor, maps: Tensor, target: Target = None, **options: Unpack[CurveOptions]
) -> Curve:
    """φ as the most important pixels are replaced: V_Del, lower is better; arguments as for `insertion`.

    Examples:
        >>> up = fei.metrics.deletion(model, images, maps, protocol="fei-paper").auc
        >>> torch.allclose(up, fei.metrics.insertion(model, images, -maps, protocol="fei-paper").auc)
        True
    """
    return Passes(model, inputs, maps, target, ["deletion"], [], **options).measure().curve("deletion")


def internal(
    model: nn.Module,
    inputs: Tensor,
    maps: Tensor,
    target: Target = None,
    *,
    layers: Sequence[str] | None = None,
    **options: Unpack[PassOptions],
) -> dict[str, Similarity]:
    """How far activations along the insertion curve are from the original's (paper, section 3.5).

    Args:
        model: The classifier.
        inputs: Images (N, C, H, W).
        maps: Their attribution maps (N, 1, H, W).
        target: The class that relevance is about, as in `fei.FEI.explain`.
        layers: Module names (a unique ending will do; ``#n`` picks one call), by default the model's
            `feature_layers`, or those found in it.
        options: See `PassOptions`; the end points of the protocol's insertion curve are left out.

    Returns:
        For each layer MSE, cosine and Pearson, with `relevance` the weighted two, and where a layer holds tokens MSE
        and cosine of the class token and of the patches, each (N,).

    Examples:
        >>> inside = fei.metrics.internal(model, images, maps)
        >>> {layer: tuple(found.cosine.shape) for layer, found in inside.items()}
        {'network.2': (2,), 'network.5': (2,)}
    """
    return Passes(model, inputs, maps, target, ["insertion"], layers, **options).measure().internal()


def evaluate(
    model: nn.Module,
    inputs: Tensor,
    maps: Tensor,
    target: Target = None,
    *,
    layers: Sequence[str] | None = None,
    **options: Unpack[CurveOptions],
) -> Evaluation:
    """Insertion, deletion and internal faithfulness; every perturbed image passes the network once.

    Arguments as for `insertion` and `internal`.

    Examples:
        >>> found = fei.metrics.evaluate(model, images, maps, target=1)
        >>> found.insertion.auc.shape == found.deletion.auc.shape == (2,)
        True
        >>> list(found.internal)
        ['network.2', 'network.5']
    """
    run = Passes(model, inputs, maps, target, ["insertion", "deletion"], layers, **options).measure()
    return Evaluation(
        run.curve("insertion"),
        run.curve("deletion"),
        run.internal(),
        run.internal_curves(),
        run.chosen,
        run.forwards / len(run.x),
    )


def _evaluated(subject: Subject) -> Evaluation:
    """All metrics of a map under one protocol.

    Both curves pass the network even where only the inside is asked for: with other batches the last digits would
    depend on what was asked for together.
    """
    return evaluate(*subject.given, layers=subject.layers, protocol=subject.protocol, **subject.options)


def _weighed(subject: Subject) -> dict[str, Similarity]:
    """The inside with weights, in passes of its own: a network without gradients still has the plain numbers."""
    options = subject.options | {"protocol": subject.protocol, "relevance": True}
    return internal(*subject.given, layers=subject.layers, **options)


def _relevant(name: str) -> Callable[[Subject], dict[str, Tensor]]:
    return lambda subject: {layer: one.numbers[name] for layer, one in subject.once(_weighed).items()}


def _ties(subject: Subject) -> Tensor:
    return subject.once(_evaluated).insertion.ties


def _inside(name: str) -> Callable[[Subject], dict[str, Tensor]]:
    def measure(subject: Subject) -> dict[str, Tensor]:
        found = {layer: one.numbers for layer, one in subject.once(_evaluated).internal.items()}
        return {layer: numbers[name] for layer, numbers in found.items() if name in numbers}

    return measure


_OUTSIDE: tuple[Need, ...] = ("network", "protocol")
_LAYERS: tuple[Need, ...] = ("network", "protocol", "layers")
METRICS = (
    Metric("insertion", "insertion", True, "external", lambda subject: subject.once(_evaluated).insertion, _OUTSIDE),
    Metric("deletion", "deletion", False, "external", lambda subject: subject.once(_evaluated).deletion, _OUTSIDE),
    Metric("ties", "ties", None, "external", _ties, _OUTSIDE, format=".0%", detail=True),
    Metric("mse", "MSE", False, "internal", _inside("mse"), _LAYERS, format=".4g", logarithmic=True),
    Metric("cosine", "cosine", True, "internal", _inside("cosine"), _LAYERS),
    Metric("pearson", "Pearson", True, "internal", _inside("pearson"), _LAYERS),
    Metric("cls_mse", "class MSE", False, "internal", _inside("cls_mse"), _LAYERS, format=".4g", logarithmic=True),
    Metric("cls_cosine", "class cosine", True, "internal", _inside("cls_cosine"), _LAYERS),
    Metric("patch_mse", "patch MSE", False, "internal", _inside("patch_mse"), _LAYERS, format=".4g", logarithmic=True),
    Metric("patch_cosine", "patch cosine", True, "internal", _inside("patch_cosine"), _LAYERS),
    Metric(
        "relevant_mse",
        "relevant MSE",
        False,
        "relevance",
        _relevant("relevant_mse"),
        _LAYERS,
        format=".4g",
        logarithmic=True,
    ),
    Metric("relevant_cosine", "relevant cosine", True, "relevance", _relevant("relevant_cosine"), _LAYERS),
)
