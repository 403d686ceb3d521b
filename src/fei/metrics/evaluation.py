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

from fei.common.layout import Layout
from fei.core.checks import check_batch_size, check_inputs, check_mode, default_rows, explained_failure
from fei.core.dataflow import trace
from fei.core.pathway import Visitor, visit_sites
from fei.core.randomness import seed_of
from fei.core.scoring import Score, Target, check_score, check_target, logits_of
from fei.core.scoring import evaluate as score_of
from fei.core.sites import Site, find_layer
from fei.errors import InputError, ModelError
from fei.metrics.curve import Curve
from fei.metrics.perturbation import Job, Perturbations, check_maps, tie_fraction
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
        forwards: Rows that passed the network for these numbers, per image.
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
        self.rows = check_batch_size(batch_size) or default_rows(self.x)
        self.protocol = get(protocol)
        self.score = self.protocol.score if score is None else score
        check_score(self.score)
        flat = check_maps(maps, self.x)
        self.ties = tie_fraction(flat)
        self.names, self.sites = self._layers(layers)
        self.perturbed = Perturbations(self.protocol, model, self.x, flat, reference, seed_of(generator), curves)
        if self.sites and not any(0 < n < self.perturbed.total for n in self.perturbed.counts["insertion"]):
            raise InputError(
                f"protocol {self.protocol.id} replaces none or all of the {self.perturbed.total} value(s) of these "
                "images, which leaves no point at which to compare activations; use larger images, another protocol, "
                "or layers=[]"
            )
        self.forwards, self._layout = 0, Layout()
        self.chosen = torch.full((len(self.x),), -1, device=self.x.device)
        shapes = {curve: (len(self.x), len(counts)) for curve, counts in self.perturbed.counts.items()}
        self._scores = {curve: torch.zeros(shape) for curve, shape in shapes.items()}
        inside = shapes.get("insertion", (0, 0))
        self._similar = [Similarity(*(torch.zeros(inside) for _ in range(3))) for _ in self.sites]

    def _layers(self, layers: Sequence[str] | None) -> tuple[list[str], list[Site]]:
        if layers is not None and not layers:
            return [], []
        if layers is not None and (isinstance(layers, str) or not isinstance(layers, Sequence)):
            raise InputError(f"`layers` must be a list of module names, or None; got {layers!r}")
        names = list(layers if layers is not None else feature_layers(self.model, self.x))
        with explained_failure(self.x):
            flow, _ = trace(self.model, self.x[:1])
        return names, [find_layer(self.model, flow, name) for name in names]

    @torch.no_grad()
    def measure(self, progress: bool | Progress) -> _Run:
        """Run the forwards."""
        jobs = {i: self.perturbed.jobs(i) for i in range(len(self.x))}
        with reporter(progress, sum(map(len, jobs.values()))) as tick:
            # as many images at a time as fill a batch, so that few originals' activations are kept
            step = max(1, self.rows // max(1, len(jobs[0])))
            for first in range(0, len(self.x), step):
                images = range(first, min(first + step, len(self.x)))
                originals = self._read_originals(images)
                pending = [job for i in images for job in jobs[i]]
                for start in range(0, len(pending), self.rows):
                    self._read(pending[start : start + self.rows], originals, first)
                    for _ in pending[start : start + self.rows]:
                        tick()
        self._share_ends()
        if not all(scores.isfinite().all() for scores in self._scores.values()):
            raise ModelError("the score on a perturbed image is NaN or infinite; check the network's precision")
        for name, table in zip(self.names, self._similar, strict=True):
            if not all(values.isfinite().all() for values in vars(table).values()):
                raise ModelError(f"activations of {name!r} are NaN, infinite or too large to be compared")
        return self

    def _forward(self, batch: Tensor, visit: Visitor) -> Any:
        self.forwards += len(batch)
        return self._layout.run(lambda rows: visit_sites(self.model, self.sites, rows, visit), batch)

    def _read_originals(self, images: range) -> list[Tensor]:
        """The activations of the originals; their output gives the top class and every point that replaces nothing."""
        kept: dict[int, Tensor] = {}
        batch = self.x[images.start : images.stop]
        with explained_failure(batch):
            output = self._forward(batch, lambda i, value: kept.__setitem__(i, value.clone()))
        if not callable(self.target):
            self._choose(logits_of(output, len(batch)), images)
        phi = score_of(output, self.target, self.chosen[images.start : images.stop], self.score).cpu()
        for curve, counts in self.perturbed.counts.items():
            for point in (p for p, n in enumerate(counts) if n == 0):
                self._scores[curve][images.start : images.stop, point] = phi.to(self._scores[curve])
        return [kept[i] for i in range(len(self.sites))]

    def _choose(self, logits: Tensor, images: range) -> None:
        predicted = logits.argmax(1)
        check_score(self.score, logits.shape[1])
        given = check_target(self.target, len(self.x), logits.shape[1])
        chosen = predicted if given is None else given.to(predicted)[images.start : images.stop]
        if self.protocol.top_class_only and not torch.equal(chosen, predicted):
            raise InputError(f"protocol {self.protocol.id} scores the model's top class only; leave `target` out")
        self.chosen[images.start : images.stop] = chosen

    def _read(self, jobs: list[Job], originals: list[Tensor], first: int) -> None:
        by_image: dict[int, list[int]] = {}
        for row, job in enumerate(jobs):
            if job.curve == "insertion":
                by_image.setdefault(job.image, []).append(row)

        def compare(i: int, value: Tensor) -> None:
            for image, rows in by_image.items():
                # an image's jobs stand together, so a slice will do and nothing is copied
                result = similarity(originals[i][image - first], value[rows[0] : rows[-1] + 1])
                points = [jobs[row].point for row in rows]
                for name, numbers in vars(result).items():
                    table = getattr(self._similar[i], name)
                    table[image, points] = numbers.to(table)

        output = self._forward(self.perturbed.make(jobs), compare)
        phi = score_of(output, self.target, self.chosen[[job.image for job in jobs]], self.score).tolist()
        for job, value in zip(jobs, phi, strict=True):
            self._scores[job.curve][job.image, job.point] = value

    def _share_ends(self) -> None:
        """Where everything is replaced by the same, both curves end in one image, which passed for insertion."""
        if self.perturbed.shares_end:
            ends = {curve: torch.tensor(n) == self.perturbed.total for curve, n in self.perturbed.counts.items()}
            # of a small image several points may replace everything
            passed = self._scores["insertion"][:, ends["insertion"]][:, :1]
            self._scores["deletion"][:, ends["deletion"]] = passed

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
            for name, table in zip(self.names, self._similar, strict=True)
        }

    def internal(self) -> dict[str, Similarity]:
        """Their means over the curve."""
        return {
            name: Similarity(**{metric: values.mean(1) for metric, values in vars(curve).items()})
            for name, curve in self.internal_curves().items()
        }
