"""Insertion, deletion and internal faithfulness from one set of forwards.

V_Ins and V_Del (paper, section 3.2) read the network's output along the two curves of perturbed images; internal
faithfulness (section 3.5) compares activations on the insertion curve with those on the original image. Every perturbed
image passes the network once, whatever is read from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fei.core.checks import check_batch_size, check_inputs, check_mode
from fei.core.dataflow import trace
from fei.core.pathway import Visitor, visit_sites
from fei.core.scoring import Score, Target, check_score, check_target, logits_of
from fei.core.scoring import evaluate as score_of
from fei.core.sites import Site, find_sites
from fei.errors import InputError, ModelError
from fei.metrics._perturbation import DEFAULT_ROWS, Job, Perturbations, check_maps, tie_fraction
from fei.metrics.curve import Curve
from fei.metrics.similarity import Similarity, similarity
from fei.models.layers import feature_layers
from fei.progress import Progress, reporter
from fei.protocols import Protocol, get
from fei.references import ReferenceSpec

HIGHER_IS_BETTER = {"insertion": True, "deletion": False, "mse": False, "cosine": True, "pearson": True}


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` measured.

    Attributes:
        insertion: The insertion curve.
        deletion: The deletion curve.
        internal: For each layer, similarity to the original's activations, (N,): the mean over the insertion curve.
        internal_curves: The same at each point of the insertion curve but its ends, (N, points).
        target: The scored class of each image.
        forwards: Rows that passed the network, per image.
    """

    insertion: Curve
    deletion: Curve
    internal: dict[str, Similarity]
    internal_curves: dict[str, Similarity]
    target: Tensor
    forwards: float


def insertion(
    model: nn.Module,
    inputs: Tensor,
    maps: Tensor,
    target: Target = None,
    *,
    protocol: str | Protocol = "fei-paper",
    reference: ReferenceSpec = None,
    score: Score | None = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
    progress: bool | Progress = False,
) -> Curve:
    """φ as the least important pixels are replaced: V_Ins, higher is better.

    Args:
        model: The classifier, in evaluation mode; only ever called.
        inputs: Images (N, C, H, W).
        maps: Their attribution maps (N, 1, H, W).
        target: As in `fei.FEI.explain`; ``None`` for the model's top class.
        protocol: Id or object, see `fei.protocols`.
        reference: R, where the protocol leaves it to the call; by default the random colour that FEI uses with the
            same seed.
        score: In place of the protocol's; the id then carries a note of it.
        generator: Supplies the seed of R and of the order of ties; 0 without.
        batch_size: Rows in one forward pass.
        progress: ``True`` for a progress bar, or a callable on (forwards done, in all).
    """
    run = _Run(model, inputs, maps, target, protocol, reference, score, generator, batch_size, ["insertion"], [])
    return run.measure(progress).curve("insertion")


def deletion(
    model: nn.Module,
    inputs: Tensor,
    maps: Tensor,
    target: Target = None,
    *,
    protocol: str | Protocol = "fei-paper",
    reference: ReferenceSpec = None,
    score: Score | None = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
    progress: bool | Progress = False,
) -> Curve:
    """φ as the most important pixels are replaced: V_Del, lower is better; arguments as for `insertion`."""
    run = _Run(model, inputs, maps, target, protocol, reference, score, generator, batch_size, ["deletion"], [])
    return run.measure(progress).curve("deletion")


def internal(
    model: nn.Module,
    inputs: Tensor,
    maps: Tensor,
    *,
    layers: Sequence[str] | None = None,
    protocol: str | Protocol = "fei-paper",
    reference: ReferenceSpec = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
    progress: bool | Progress = False,
) -> dict[str, Similarity]:
    """How far activations along the insertion curve are from the original's (paper, section 3.5).

    Args:
        model: The classifier.
        inputs: Images (N, C, H, W).
        maps: Their attribution maps (N, 1, H, W).
        layers: Module names (a unique ending will do; ``#n`` picks one call), by default the model's
            `feature_layers`, or those found in it.
        protocol: Whose insertion curve to follow; its end points are left out.
        reference: As for `insertion`.
        generator: As for `insertion`.
        batch_size: As for `insertion`.
        progress: As for `insertion`.

    Returns:
        For each layer MSE, cosine and Pearson, each (N,).
    """
    run = _Run(model, inputs, maps, None, protocol, reference, None, generator, batch_size, ["insertion"], layers)
    return run.measure(progress).internal()


def evaluate(
    model: nn.Module,
    inputs: Tensor,
    maps: Tensor,
    target: Target = None,
    *,
    layers: Sequence[str] | None = None,
    protocol: str | Protocol = "fei-paper",
    reference: ReferenceSpec = None,
    score: Score | None = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
    progress: bool | Progress = False,
) -> Evaluation:
    """Insertion, deletion and internal faithfulness; every perturbed image passes the network once.

    Arguments as for `insertion` and `internal`.
    """
    curves = ["insertion", "deletion"]
    run = _Run(model, inputs, maps, target, protocol, reference, score, generator, batch_size, curves, layers)
    run.measure(progress)
    return Evaluation(
        run.curve("insertion"),
        run.curve("deletion"),
        run.internal(),
        run.internal_curves(),
        run.chosen,
        run.forwards / len(run.x),
    )


class _Run:
    """One evaluation: what to read, and the forwards that read it."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor,
        maps: Tensor,
        target: Target,
        protocol: str | Protocol,
        reference: ReferenceSpec,
        score: Score | None,
        generator: torch.Generator | None,
        batch_size: int | None,
        curves: Sequence[str],
        layers: Sequence[str] | None,
    ) -> None:
        self.x = check_inputs(inputs)
        check_mode(model)
        self.model, self.target = model, target
        self.rows = check_batch_size(batch_size) or DEFAULT_ROWS
        self.protocol = get(protocol)
        self.score = self.protocol.score if score is None else score
        flat = check_maps(maps, self.x)
        self.ties = tie_fraction(flat)
        self.forwards = 0
        self.sites = self._layers(layers)
        self.chosen = self._targets()
        seed = 0 if generator is None else generator.initial_seed()
        self.perturbed = Perturbations(self.protocol, model, self.x, flat, reference, seed, curves)
        self._scores = {c: torch.zeros(len(self.x), len(n)) for c, n in self.perturbed.counts.items()}
        self._similar = [
            Similarity(*(torch.zeros(len(self.x), len(self.perturbed.counts.get("insertion", []))) for _ in range(3)))
            for _ in self.sites
        ]

    def _layers(self, layers: Sequence[str] | None) -> list[tuple[str, Site]]:
        if layers is not None and not layers:
            return []
        names = list(layers) if layers is not None else list(feature_layers(self.model, self.x))
        flow, _ = trace(self.model, self.x[:1])
        found = []
        for name in names:
            sites = find_sites(self.model, flow, [name])
            if len(sites) != 1:
                raise InputError(
                    f"layer {name!r} runs {len(sites)} times; name one call as {name}#0 to {name}#{len(sites) - 1}"
                )
            found.append((name, sites[0]))
        return found

    @torch.no_grad()
    def _targets(self) -> Tensor:
        if callable(self.target):
            return torch.full((len(self.x),), -1)
        top = []
        classes = 0
        for chunk in self.x.split(self.rows):
            logits = logits_of(self._forward(chunk), len(chunk))
            classes = logits.shape[1]
            top.append(logits.argmax(1))
        predicted = torch.cat(top)
        check_score(self.score, classes)
        given = check_target(self.target, len(self.x), classes)
        if given is None:
            return predicted
        if self.protocol.top_class_only and not torch.equal(given.to(predicted), predicted):
            raise InputError(f"protocol {self.protocol.id} scores the model's top class only; leave `target` out")
        return given.to(predicted)

    @torch.no_grad()
    def measure(self, progress: bool | Progress) -> _Run:
        """Run the forwards."""
        points = sum(len(counts) for counts in self.perturbed.counts.values())
        with reporter(progress, len(self.x) * points) as tick:
            # as many images at a time as fill a batch, so that the originals' activations kept are few
            step = max(1, self.rows // points)
            for first in range(0, len(self.x), step):
                images = range(first, min(first + step, len(self.x)))
                originals = self._originals(images)
                for jobs, batch in self.perturbed.batches(self.rows, images):
                    self._read(jobs, batch, originals, first)
                    for _ in jobs:
                        tick()
        if not all(scores.isfinite().all() for scores in self._scores.values()):
            raise ModelError("the score on a perturbed image is NaN or infinite; check the network's precision")
        return self

    def _originals(self, images: range) -> list[Tensor]:
        if not self.sites:
            return []
        kept: dict[int, Tensor] = {}
        batch = self.x[images.start : images.stop]
        self._forward(batch, lambda i, value: kept.__setitem__(i, value.clone()))
        return [kept[i] for i in range(len(self.sites))]

    def _forward(self, batch: Tensor, visit: Visitor | None = None) -> Any:
        self.forwards += len(batch)
        return visit_sites(self.model, [site for _, site in self.sites] if visit else [], batch, visit or _ignore)

    def _read(self, jobs: list[Job], batch: Tensor, originals: list[Tensor], first: int) -> None:
        inserted = [row for row, job in enumerate(jobs) if job.curve == "insertion"]

        def compare(i: int, value: Tensor) -> None:
            if not inserted:
                return
            values = value if len(inserted) == len(jobs) else value[inserted]
            original = originals[i][[jobs[row].image - first for row in inserted]]
            result = similarity(original, values)
            for name, numbers in vars(result).items():
                table = getattr(self._similar[i], name)
                for row, number in zip(inserted, numbers.tolist(), strict=True):
                    table[jobs[row].image, jobs[row].point] = number

        output = self._forward(batch, compare)
        chosen = self.chosen[[job.image for job in jobs]].to(batch.device)
        for job, phi in zip(jobs, score_of(output, self.target, chosen, self.score).tolist(), strict=True):
            self._scores[job.curve][job.image, job.point] = phi

    def curve(self, name: str) -> Curve:
        """One of the measured curves."""
        scores, fractions = self._scores[name], self.perturbed.fractions(name)
        note = "" if self.score == self.protocol.score else f"+score={getattr(self.score, '__name__', self.score)}"
        return Curve(
            fractions,
            scores,
            self.protocol.area(scores, fractions),
            self.protocol.id + note,
            self.ties,
            HIGHER_IS_BETTER[name],
        )

    def internal_curves(self) -> dict[str, Similarity]:
        """Similarities at each interior point of the insertion curve."""
        fractions = self.perturbed.fractions("insertion")
        inside = (fractions > 0) & (fractions < 1)
        return {
            name: Similarity(**{metric: values[:, inside] for metric, values in vars(table).items()})
            for (name, _), table in zip(self.sites, self._similar, strict=True)
        }

    def internal(self) -> dict[str, Similarity]:
        """Their means over the curve."""
        return {
            name: Similarity(**{metric: values.mean(1) for metric, values in vars(curve).items()})
            for name, curve in self.internal_curves().items()
        }


def _ignore(site: int, value: Tensor) -> None:
    pass
