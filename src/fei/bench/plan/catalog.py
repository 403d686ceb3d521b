"""A plan made concrete: networks by their fingerprints, images by their digests, and from these every unit's key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fei import data, metrics, models
from fei.bench.context import PlannedNetwork, Recipe, sentence
from fei.bench.plan.keys import attends, canonical, feature_layers, file_digest, key_of, model_fingerprint, plan_key
from fei.bench.units import BLACK_IMAGE, KEPT, MAP, SANITY, Unit, storable
from fei.common.exits import exits_caught
from fei.core.settings import as_stored
from fei.data import Dataset, Item
from fei.errors import InputError

if TYPE_CHECKING:
    from fei.bench.plan._plan import Pair, Plan, PlannedMethod


@dataclass(frozen=True, slots=True)
class PlannedUnit:
    """A unit with all its score groups, and why it cannot be computed, if that is known beforehand."""

    unit: Unit
    problem: str | None


@dataclass(frozen=True, slots=True)
class _Image:
    """An image of a pair's data set; `content` is its digest, or names the file where that cannot be read."""

    name: str
    path: str
    content: str
    item: Item
    problem: str | None


class Catalog:
    """What a plan means on this machine, today. Making one loads each network once and reads each image file.

    Args:
        plan: The plan.

    Attributes:
        networks: The network of each pair.
        recipes: The methods.
        problems: What the data sets had to leave out, one sentence each.

    Raises:
        InputError: If a network or a data set does not exist.
        DataError: If a data set cannot be used.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        for group in plan.metrics.groups:
            metrics.group_of(group)  # that of a plug-in may not be here
        self.recipes = tuple(_recipe(index, row) for index, row in enumerate(plan.methods))
        datasets = [_dataset(pair) for pair in plan.pairs]
        surveyed = cache(_survey)
        self.networks = tuple(
            _network(pair, dataset, *surveyed(pair.model)) for pair, dataset in zip(plan.pairs, datasets, strict=True)
        )
        self.problems = tuple(
            f"{pair.name}: {storable(problem)}"
            for pair, dataset in zip(plan.pairs, datasets, strict=True)
            if dataset is not None
            for problem in dataset.problems
        )
        self._tested, self._randomized = plan.black_image_methods(), plan.sanity_methods()
        look = cache(_look_at)
        self._images = [[look(item) for item in dataset or ()] for dataset in datasets]
        self._checked = [_few(dataset, pair, plan) for dataset, pair in zip(datasets, plan.pairs, strict=True)]

    def entries(self) -> Iterator[PlannedUnit]:
        """All units, pair by pair; within a pair image by image, so that a worker reads each once."""
        plan = self._plan
        for pair, network in enumerate(self.networks):
            groups = {boxed: self._groups(plan.pairs[pair], boxed) for boxed in (False, True)}
            for image in self._images[pair]:
                for seed in plan.seeds:
                    for method in range(len(self.recipes)):
                        yield self._on_image(MAP, groups[bool(image.item.boxes)], pair, method, image, seed)
            if plan.black_image is not None:
                for seed in plan.seeds:
                    for trial in range(plan.black_image.trials):
                        for method in self._tested:
                            key = self._key(BLACK_IMAGE, pair, method, seed, trial=trial)
                            unit = Unit(
                                BLACK_IMAGE, key, pair, method, str(trial), "", None, None, (), seed, (BLACK_IMAGE,)
                            )
                            yield PlannedUnit(unit, network.problem)
            kept = (SANITY, KEPT) if plan.keep_maps else (SANITY,)
            for image in self._images[pair]:
                if image.name in self._checked[pair]:
                    for seed in plan.seeds:
                        for method in self._randomized:
                            yield self._on_image(SANITY, kept, pair, method, image, seed)

    def _groups(self, pair: Pair, boxed: bool) -> tuple[str, ...]:
        """The score groups of the map of an image with or without boxes, in the order in which they are measured."""
        asked = self._plan.metrics
        needs = {group: {need for each in known for need in each.needs} for group, known in metrics.groups().items()}
        under = [group for group in asked.groups if "protocol" in needs[group]]
        layers = f":{','.join(pair.layers)}" if pair.layers else ""
        return (
            MAP,
            *(f"{g}/{p}{layers if 'layers' in needs[g] else ''}" for p in asked.protocols for g in under),
            *(_versioned(group, boxed) for group in asked.groups if group not in under),
            *([KEPT] if self._plan.keep_maps else []),
        )

    def _on_image(
        self, kind: str, groups: tuple[str, ...], pair: int, method: int, image: _Image, seed: int
    ) -> PlannedUnit:
        by_label = self._plan.target == "label"
        target = image.item.label if by_label else None
        problem = self.networks[pair].problem or image.problem
        if by_label and target is None and problem is None:
            problem = f"The image '{image.name}' has no label; give it one, or explain the predicted class."
        content: dict[str, Any] = {"image": image.content, "target": target if by_label else "predicted"}
        if kind == SANITY and self._plan.sanity is not None:
            content["layers"] = self._plan.sanity.layers
        key = self._key(kind, pair, method, seed, reference="default", **content)
        item = image.item
        unit = Unit(kind, key, pair, method, image.name, image.path, target, item.label, item.boxes, seed, groups)
        return PlannedUnit(unit, problem)

    def _key(self, kind: str, pair: int, method: int, seed: int, **content: Any) -> str:
        recipe, network = self.recipes[method], self.networks[pair]
        config = recipe.config_on(network)
        return key_of(kind, method=recipe.name, config=config, model=network.fingerprint, seed=seed, **content)


def _versioned(group: str, boxed: bool) -> str:
    """A group of metrics, with the version of the newest where one of them changed its meaning.

    What needs boxes has no number on an image without, and so none that could be stale.
    """
    versions = [metric.version for metric in metrics.groups().get(group, ()) if boxed or "boxes" not in metric.needs]
    newest = max(versions, default=1)
    return f"{group}/{newest}" if newest > 1 else group


def completion_key(plan: Plan) -> str:
    """What a run is marked with that has all of a plan: the plan, and whatever in it has had another version before."""
    made = {row.name: getattr(row.make(), "config", {}) for row in plan.methods if not row.is_foreign}
    newer = [f"{name}/{config['version']}" for name, config in made.items() if config.get("version", 1) > 1]
    newer += [name for group in plan.metrics.groups if (name := _versioned(group, boxed=True)) != group]
    return " ".join([plan_key(plan), *newer])


def _recipe(index: int, row: PlannedMethod) -> Recipe:
    try:
        with exits_caught():
            made = row.make()
    except InputError as error:  # code from elsewhere, which the plan alone does not load
        raise InputError(f"`methods[{index}]`: {error}") from error
    # code from elsewhere may be a method as it is, without settings that could be read
    config = getattr(made, "config", {"options": row.options})
    stored = [canonical(as_stored(config, attends)) for attends in (False, True)]
    return Recipe(row.name, dict(row.options), *stored)


def _dataset(pair: Pair) -> Dataset | None:
    if pair.data is None:
        return None
    dataset = data.load(pair.data)
    return dataset if pair.sample is None else dataset.sample(pair.sample, pair.sample_seed)


def _few(dataset: Dataset | None, pair: Pair, plan: Plan) -> frozenset[str]:
    """The names of the images of the sanity check: the first ones of the pair's own draw."""
    if dataset is None or plan.sanity is None:
        return frozenset()
    return frozenset(storable(item.id) for item in dataset.sample(plan.sanity.images, pair.sample_seed))


def _survey(spec: str) -> tuple[str, tuple[str, ...], str | None, bool]:
    """The fingerprint and the feature layers of a network, why it cannot be loaded, and whether it has attention."""
    try:
        with exits_caught():
            classifier = models.load(spec)
            return model_fingerprint(classifier), tuple(feature_layers(classifier)), None, attends(classifier)
    except InputError:
        raise  # it names nothing that exists
    except (Exception, SystemExit) as error:
        return f"not loaded: {spec}", (), sentence(error), False


def _network(
    pair: Pair,
    dataset: Dataset | None,
    fingerprint: str,
    layers: tuple[str, ...],
    problem: str | None,
    attends: bool,
) -> PlannedNetwork:
    classes = None if dataset is None or dataset.classes is None else len(dataset.classes)
    found = tuple(name.removeprefix("network.") for name in layers)
    return PlannedNetwork(
        pair.model, fingerprint, pair.data or "", pair.layers or found, pair.layers, classes, problem, attends
    )


def _look_at(item: Item) -> _Image:
    path = os.path.abspath(item.path)
    name = storable(item.id)
    try:
        return _Image(name, path, file_digest(Path(path)), item, None)
    except OSError as error:
        problem = f"The image '{path}' cannot be read ({error.strerror}); check the file."
        return _Image(name, path, f"not read: {path}", item, storable(problem))
