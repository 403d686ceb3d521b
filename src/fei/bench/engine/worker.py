"""A worker: it loads a network once and computes units with it, in this process or another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fei import metrics, models
from fei.bench.context import PlannedNetwork, WorkerContext, sentence
from fei.bench.engine._measure import Findings, Subject, measure
from fei.bench.engine._memory import Rows, out_of_memory
from fei.bench.plan.keys import model_fingerprint
from fei.bench.store.disk import read_map
from fei.bench.units import BATCH_ROWS, BLACK_IMAGE, DONE, FAILED, KEPT, MAP, SANITY, Outcome, Unit, storable
from fei.data import Box
from fei.errors import InputError, ModelError
from fei.metrics.perturbation import check_maps
from fei.metrics.trials import Trial, Trials
from fei.models import Classifier
from fei.service.inquiry import Inquiry
from fei.service.looking import Look, look, probe

_SCORES = "scores"  # the stage after the map, with rows of its own
_NO_MEMORY = "Memory ran out even with one row in a forward pass; use fewer workers, or a machine with more."


class Worker:
    """Computes units one after the other. It keeps one network, one image, and the methods.

    Args:
        context: What all units have in common.
    """

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._loaded: tuple[str, Classifier | None, str | None] = ("", None, None)
        self._picture: Look | None = None
        self._trials: tuple[int, dict[int, Trial]] | None = None
        self._method = cache(context.method)
        self._rows = Rows()

    def prepare(self, pair: int) -> str | None:
        """Load the network of a pair, if it is not the one that is loaded; a failure is remembered.

        Returns:
            Why it cannot be loaded.
        """
        network = self._context.networks[pair]
        if self._loaded[0] != network.model:
            self._picture = self._trials = None
            self._rows = Rows()
            self._loaded = (network.model, None, None)  # the old one makes room first
            try:
                self._loaded = (network.model, self._load(network), None)
            except (Exception, SystemExit) as error:
                self._loaded = (network.model, None, sentence(error))
        return self._loaded[2]

    def compute(self, unit: Unit) -> Outcome:
        """Compute a unit.

        Args:
            unit: The unit.

        Returns:
            Its numbers; where something failed, why, with the numbers of what did not.
        """
        problem = self.prepare(unit.pair)
        if problem is not None:
            return self._context.failure(unit, problem)
        work = {MAP: self._map, BLACK_IMAGE: self._black_image, SANITY: self._sanity}[unit.kind]
        with self._rows.watched(self._classifier):
            while True:
                self._rows.begin()
                try:
                    return self._with_rows(work(unit), unit)
                except (Exception, SystemExit) as error:
                    short = out_of_memory(error)
                    problem = _NO_MEMORY if short else sentence(error)
                # not within the handler: what it holds is to be let go first
                if not (short and self._rows.halve(unit.method)):
                    return self._context.failure(unit, problem)

    def _with_rows(self, outcome: Outcome, unit: Unit) -> Outcome:
        """An outcome that tells with how many rows it was computed, where memory decided that."""
        stages = (unit.method, _SCORES) if unit.kind == MAP else (unit.method,)
        fewer = [self._rows.fewer[stage] for stage in stages if stage in self._rows.fewer]
        if not fewer:
            return outcome
        return replace(outcome, scores=(*outcome.scores, (BATCH_ROWS, "", "", float(min(fewer)))))

    def _load(self, network: PlannedNetwork) -> Classifier:
        with self._context.agreement.holding():
            classifier = models.load(network.model)
        if model_fingerprint(classifier) != network.fingerprint:
            raise ModelError(
                f"The network '{network.model}' is another one each time it is loaded, so a run could not go on with "
                "its results; save its weights to a checkpoint and name that."
            )
        device = torch.device(self._context.device)
        classifier = classifier.to(device).eval()
        probe(classifier, device)
        return classifier

    @property
    def _classifier(self) -> Classifier:
        classifier = self._loaded[1]
        assert classifier is not None, "a network is loaded before a unit is computed"  # noqa: S101
        return classifier

    def _costed(self, unit: Unit, call: Callable[..., Any], *given: Any, **more: Any) -> tuple[Any, metrics.Cost]:
        """What something makes of the network, with as many rows in a pass as memory allows, and what that cost."""
        more |= {"generator": torch.Generator().manual_seed(unit.seed), "batch_size": self._rows.fewer.get(unit.method)}
        return metrics.measure_cost(self._classifier, lambda: call(self._classifier, *given, **more))

    def _look(self, path: str) -> Look:
        """Read an image and what the network says of it; the one read last is kept for the next method."""
        if self._picture is None or self._picture.source != path:
            self._picture = look(self._classifier, path)
        return self._picture

    def _about_target(self, unit: Unit, picture: Look) -> dict[str, Any]:
        classes = len(picture.probabilities)
        predicted = int(picture.probabilities.argmax())
        target = predicted if unit.target is None else unit.target
        if not 0 <= target < classes:
            raise InputError(
                f"Class {target} of the data set is none of the network's {classes} classes; choose other data."
            )
        counted = self._context.networks[unit.pair].classes
        known = unit.truth is not None and counted in {None, classes}
        return {
            "target": target,
            "label": storable(self._classifier.label(target)),
            "probability": float(picture.probabilities[target]),
            "correct": predicted == unit.truth if known else None,
        }

    def _map(self, unit: Unit) -> Outcome:
        picture = self._look(unit.path)
        facts = self._about_target(unit, picture)
        maps = self._kept_map(unit, picture.inputs)
        if maps is None:
            name = self._context.recipes[unit.method].name
            fewer = self._rows.fewer.get(unit.method)
            inquiry = Inquiry(
                self._classifier, {name: self._method(unit.method)}, unit.seed, batch_size=fewer, target=facts["target"]
            )
            maps, cost = inquiry.ask(name, picture, [facts["target"]], maps_alone=True)
            # as kept maps are, so that a kept map has the scores of a fresh one
            maps = check_maps(maps.detach().to(picture.inputs.device), picture.inputs)[:, None].float()
            facts |= vars(cost)
        subject = Subject(
            model=self._classifier,
            inputs=picture.inputs,
            maps=maps,
            target=facts["target"],
            boxes=_visible(self._classifier.place_boxes(unit.boxes, picture.size)),
            layers=self._context.networks[unit.pair].wanted,
            seed=unit.seed,
            batch_size=self._context.batch_size,
            method=self._method(unit.method),
        )
        findings = self._measured(subject, unit.scores)
        keeps = KEPT in unit.scores
        return self._context.outcome(
            unit,
            FAILED if findings.errors else DONE,
            error=" ".join(dict.fromkeys(map(sentence, findings.errors))) or None,
            scores=tuple(findings.scores),
            curves=tuple(findings.curves),
            groups=(MAP, *findings.groups, *([KEPT] if keeps else [])),
            map=maps[0, 0].cpu().numpy() if keeps else None,
            **facts,
        )

    def _measured(self, subject: Subject, groups: Sequence[str]) -> Findings:
        """The scores of a map, with fewer rows in a pass if memory runs out."""
        while True:
            self._rows.begin()
            subject.batch_size = self._rows.fewer.get(_SCORES, self._context.batch_size)
            findings = measure(subject, groups)
            # an error holds on to what was computed before it: it is let go
            findings.errors = [ModelError(_NO_MEMORY) if out_of_memory(e) else e for e in findings.errors]
            short = any(str(error) == _NO_MEMORY for error in findings.errors)
            if not (short and self._rows.halve(_SCORES)):
                return findings

    def _kept_map(self, unit: Unit, inputs: Tensor) -> Tensor | None:
        if MAP in unit.scores:  # its cost is not known yet
            return None
        for folder in self._context.maps:
            values = read_map(Path(folder), unit.key)
            if values is not None and values.shape == tuple(inputs.shape[2:]):
                return torch.from_numpy(values).to(inputs)[None, None]
        return None

    def _black_image(self, unit: Unit) -> Outcome:
        trial = self._trial(unit)
        given = {"trials": 1, "targets": trial.target, "references": trial.reference[None]}
        result, cost = self._costed(unit, metrics.black_image, self._method(unit.method), **given)
        numbers = {"fired": float(result.success[0]), "phi": float(result.phi[0]), "gain": float(result.gains[0])}
        return self._context.outcome(
            unit,
            DONE,
            target=trial.target,
            label=storable(self._classifier.label(trial.target)),
            scores=tuple((name, "", "", value) for name, value in numbers.items()),
            groups=(BLACK_IMAGE,),
            **vars(cost),
        )

    def _trial(self, unit: Unit) -> Trial:
        """The trial of that number; all are drawn at once, since each depends on the seed and its number alone."""
        if self._trials is None or self._trials[0] != unit.seed:
            drawn = Trials(self._classifier, None, None, None, self._context.trials, unit.seed).draw()
            self._trials = (unit.seed, {trial.number: trial for trial in drawn})
        trial = self._trials[1].get(int(unit.item))
        if trial is None:
            raise InputError(
                f"Trial {unit.item} has no class that the network sees neither in black nor in a colour; ask for fewer "
                "trials."
            )
        return trial

    def _sanity(self, unit: Unit) -> Outcome:
        picture = self._look(unit.path)
        facts = self._about_target(unit, picture)
        given = {"target": facts["target"], "layers": self._context.sanity_layers}
        method = self._method(unit.method)
        result, cost = self._costed(unit, metrics.cascading_randomization, method, picture.inputs, **given)
        stages = [f"{i:02d} {name.removeprefix('network.')}" for i, name in enumerate(result.layers, 1)]
        keeps = KEPT in unit.scores
        # passes are not counted: they are those of a copy
        return self._context.outcome(
            unit,
            DONE,
            scores=tuple(
                (metric, "", stage, float(value))
                for metric, values in result.similarity.items()
                for stage, value in zip(stages, values[:, 0], strict=True)
            ),
            groups=(SANITY, KEPT) if keeps else (SANITY,),
            map=result.maps[:, 0, 0].float().cpu().numpy() if keeps else None,
            seconds=cost.seconds,
            peak_bytes=cost.peak_bytes,
            **facts,
        )


def _visible(boxes: Sequence[Box | None]) -> list[Box]:
    """The boxes that cover the centre of a pixel."""

    def covers(low: float, high: float) -> bool:
        return math.ceil(low - 0.5) < high - 0.5

    return [box for box in boxes if box is not None and covers(box[0], box[2]) and covers(box[1], box[3])]
