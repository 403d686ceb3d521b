"""The forwards of one evaluation: perturbed images through the network, and what is read from each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fei.common.layout import Layout
from fei.core.checks import check_batch_size, check_inputs, check_mode, default_rows, explained_failure
from fei.core.dataflow import trace
from fei.core.folding import Folding
from fei.core.pathway import Visitor, visit_sites
from fei.core.randomness import seed_of
from fei.core.relevance import relevance as relevance_of
from fei.core.scoring import Score, Target, check_score, check_target, logits_of, named_target, relative_score
from fei.core.scoring import evaluate as score_of
from fei.core.sites import Site, find_layer
from fei.core.tokens import Grid, token_grid
from fei.errors import InputError, ModelError
from fei.metrics.curve import Curve
from fei.metrics.perturbation import Perturbations, PerturbedRow, check_maps, tie_fraction
from fei.metrics.similarity import Similarity, measures, relevance_weighted, similarity, tokens_apart
from fei.models.layers import feature_layers
from fei.progress import Progress, reporter
from fei.protocols import Protocol, default_protocol, get
from fei.references import ReferenceSpec


class Passes:
    """One evaluation: what to read, and the forwards that read it."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor,
        maps: Tensor,
        target: Target,
        curves: Sequence[str],
        layers: Sequence[str] | None,
        *,
        protocol: str | Protocol | None = None,
        reference: ReferenceSpec = None,
        score: Score | None = None,
        generator: torch.Generator | None = None,
        batch_size: int | None = None,
        progress: bool | Progress = False,
        relevance: bool = False,
        on_output: Callable[[Any], None] | None = None,
    ) -> None:
        self.x = check_inputs(inputs)
        check_mode(model)
        self.model, self.target, self.progress, self._on_output = model, target, progress, on_output
        self.rows = check_batch_size(batch_size) or default_rows(self.x)
        self.protocol = get(protocol or default_protocol(reference))
        self.score = self.protocol.score if score is None else score
        check_score(self.score)
        flat = check_maps(maps, self.x)
        self.ties = tie_fraction(flat)
        self.names, self.sites, self._grids = self._layers(layers)
        self.perturbed = Perturbations(self.protocol, model, self.x, flat, reference, seed_of(generator), curves)
        if self.sites and not any(0 < n < self.perturbed.total for n in self.perturbed.counts["insertion"]):
            raise InputError(
                f"Protocol {self.protocol.id} replaces none or all of the {self.perturbed.total} value(s) of these "
                "images, which leaves no point at which to compare activations; use larger images, another protocol, "
                "or layers=[]."
            )
        self.forwards, self._layout = 0, Layout()
        self.chosen = torch.full((len(self.x),), -1, device=self.x.device)
        # one number for each image, point and replacement, over which the mean is taken in the end
        fills = self.perturbed.fills
        shapes = {curve: (len(self.x), len(counts), fills) for curve, counts in self.perturbed.counts.items()}
        self._scores = {curve: torch.zeros(shape) for curve, shape in shapes.items()}
        inside = shapes.get("insertion", (0, 0, fills))
        self._relevance = relevance
        self._similar = [
            Similarity(**{name: torch.zeros(inside) for name in measures(relevance, grid)}) for grid in self._grids
        ]

    def _layers(self, layers: Sequence[str] | None) -> tuple[list[str], list[Site], list[Grid | None]]:
        if (layers is not None and not layers) or (layers is None and self.protocol.drops_tokens):
            return [], [], []
        if self.protocol.drops_tokens:
            raise InputError(
                f"Protocol {self.protocol.id} leaves patches out, so that activations have nothing to be compared "
                "with; leave `layers` out, or look inside under another protocol."
            )
        if layers is not None and (isinstance(layers, str) or not isinstance(layers, Sequence)):
            raise InputError(f"`layers` is {layers!r}; give a list of module names, or None.")
        names = list(layers if layers is not None else feature_layers(self.model, self.x))
        with explained_failure(self.x):
            flow, _ = trace(self.model, self.x[:1])
        sites = [find_layer(self.model, flow, name) for name in names]
        calls = {call.key: call for call in flow.calls}
        return names, sites, [token_grid(flow, calls[site.key]) for site in sites]

    @torch.no_grad()
    def measure(self) -> Passes:
        """Run the forwards."""
        altered = [self.perturbed.rows(i) for i in range(len(self.x))]
        with reporter(self.progress, sum(map(len, altered))) as tick:
            # as many images at a time as fill a batch, so that few originals' activations are kept
            step = max(1, self.rows // max(1, len(altered[0])))
            for first in range(0, len(self.x), step):
                images = range(first, min(first + step, len(self.x)))
                originals = self._read_originals(images)
                weights = self._weights(images) if self._relevance and self.sites else []
                pending = [row for i in images for row in altered[i]]
                for batch in self.perturbed.batches(pending, self.rows):
                    self._read(batch, originals, weights, first)
                    for _ in batch:
                        tick()
        self._share_ends()
        if not all(scores.isfinite().all() for scores in self._scores.values()):
            raise ModelError("The score on a perturbed image is NaN or infinite; check the network's precision.")
        for name, table in zip(self.names, self._similar, strict=True):
            if not all(values.isfinite().all() for values in table.numbers.values()):
                raise ModelError(
                    f"Activations of {name!r} are NaN, infinite or too large to compare; check the network's precision."
                )
        return self

    def _forward(self, batch: Tensor, visit: Visitor, folding: Folding | None = None) -> Any:
        self.forwards += len(batch)
        output = self._layout.run(lambda rows: visit_sites(self.model, self.sites, rows, visit, folding), batch)
        if self._on_output is not None:
            self._on_output(output)
        return output

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
                self._scores[curve][images.start : images.stop, point] = phi.to(self._scores[curve])[:, None]
        return [kept[i] for i in range(len(self.sites))]

    def _weights(self, images: range) -> list[Tensor]:
        """How much each unit has to say about the class on the originals: |h·∂φ/∂h|."""
        rows, chosen = slice(images.start, images.stop), self.chosen[images.start : images.stop]

        def score(output: Any) -> Tensor:
            return relative_score(output, self.target, chosen, self.score)

        self.forwards += len(chosen)
        found = self._layout.run(lambda batch: relevance_of(self.model, self.sites, batch, score), self.x[rows])
        return [each.abs() for each in found]

    def _choose(self, logits: Tensor, images: range) -> None:
        predicted = logits.argmax(1)
        check_score(self.score, logits.shape[1])
        given = check_target(named_target(self.model, self.target), len(self.x), logits.shape[1])
        chosen = predicted if given is None else given.to(predicted)[images.start : images.stop]
        if self.protocol.top_class_only and not torch.equal(chosen, predicted):
            raise InputError(f"Protocol {self.protocol.id} scores the model's top class only; leave `target` out.")
        self.chosen[images.start : images.stop] = chosen

    def _read(self, batch: list[PerturbedRow], originals: list[Tensor], weights: list[Tensor], first: int) -> None:
        by_image: dict[int, list[int]] = {}
        for place, row in enumerate(batch):
            if row.curve == "insertion":
                by_image.setdefault(row.image, []).append(place)

        def compare(i: int, value: Tensor) -> None:
            for image, places in by_image.items():
                # an image's rows stand together, so a slice will do and nothing is copied
                original, rows = originals[i][image - first], value[places[0] : places[-1] + 1]
                result = similarity(original, rows)
                grid = self._grids[i]
                if grid is not None:
                    result = replace(result, **tokens_apart(original, rows, grid))
                if weights:
                    mse, cosine = relevance_weighted(original, rows, weights[i][image - first])
                    result = replace(result, relevant_mse=mse, relevant_cosine=cosine)
                points, fills = zip(*((batch[place].point, batch[place].fill) for place in places), strict=True)
                for name, numbers in result.numbers.items():
                    table = getattr(self._similar[i], name)
                    table[image, points, fills] = numbers.to(table)

        output = self._forward(self.perturbed.make(batch), compare, self.perturbed.folding(batch))
        phi = score_of(output, self.target, self.chosen[[row.image for row in batch]], self.score).tolist()
        for row, value in zip(batch, phi, strict=True):
            self._scores[row.curve][row.image, row.point, row.fill] = value

    def _share_ends(self) -> None:
        """Where everything is replaced by the same, both curves end in one image, which passed for insertion."""
        if self.perturbed.shares_end:
            ends = {curve: torch.tensor(n) == self.perturbed.total for curve, n in self.perturbed.counts.items()}
            # of a small image several points may replace everything
            passed = self._scores["insertion"][:, ends["insertion"]][:, :1]
            self._scores["deletion"][:, ends["deletion"]] = passed

    def curve(self, name: str) -> Curve:
        """One of the measured curves."""
        scores, fractions = self._scores[name].mean(-1), self.perturbed.fractions(name)
        note = "" if self.score == self.protocol.score else f"+score={getattr(self.score, '__name__', self.score)}"
        return Curve(
            fractions,
            scores,
            self.protocol.area(scores, fractions),
            self.protocol.id + note,
            self.ties,
            name == "insertion",
        )

    def internal_curves(self) -> dict[str, Similarity]:
        """Similarities at each interior point of the insertion curve."""
        fractions = self.perturbed.fractions("insertion")
        inside = (fractions > 0) & (fractions < 1)
        return {
            name: Similarity(**{metric: values[:, inside].mean(-1) for metric, values in table.numbers.items()})
            for name, table in zip(self.names, self._similar, strict=True)
        }

    def internal(self) -> dict[str, Similarity]:
        """Their means over the curve."""
        return {
            name: Similarity(**{metric: values.mean(1) for metric, values in curve.numbers.items()})
            for name, curve in self.internal_curves().items()
        }
