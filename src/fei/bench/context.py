"""What a worker is told once, and how a unit is attempted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch

from fei.bench.units import BLACK_IMAGE, DONE, FAILED, Outcome, Unit, storable
from fei.common.consent import Agreement
from fei.errors import FEIError

if TYPE_CHECKING:
    from fei.bench.plan import Plan
    from fei.bench.plan.catalog import Catalog
    from fei.methods import Method


@dataclass(frozen=True)
class PlannedNetwork:
    """The network of a pair, as far as a worker needs to know it.

    Attributes:
        model: Its specification.
        fingerprint: What it must turn out to be, see `fei.bench.plan.keys.model_fingerprint`.
        data: The data set's specification; empty where there is none.
        layers: Names of the layers that are looked at, from shallow to deep.
        wanted: Those of them that the plan names; None for the network's own feature layers.
        classes: How many classes the data set has, where it says so.
        problem: Why it cannot be loaded.
        attends: Whether it has attention between tokens, see `fei.core.attention`.
    """

    model: str
    fingerprint: str
    data: str = ""
    layers: tuple[str, ...] = ()
    wanted: tuple[str, ...] | None = None
    classes: int | None = None
    problem: str | None = None
    attends: bool = False


@dataclass(frozen=True)
class Recipe:
    """A method: its name, its options, and all its settings as JSON, which may differ on networks with attention."""

    name: str
    options: dict[str, Any]
    config: str
    with_attention: str | None = None

    def config_on(self, network: PlannedNetwork) -> str:
        """Its settings on a network, as JSON."""
        return self.with_attention if network.attends and self.with_attention is not None else self.config


class Computer(Protocol):
    """What an engine needs of a worker."""

    def prepare(self, pair: int) -> str | None:
        """Get ready for the units of a pair; a sentence if that is not possible."""
        ...

    def compute(self, unit: Unit) -> Outcome:
        """Compute a unit; what goes wrong is in the outcome."""
        ...


@dataclass(frozen=True)
class WorkerContext:
    """What all units of a run have in common; picklable.

    Attributes:
        networks: The network of each pair.
        recipes: The methods.
        batch_size: Rows in one forward pass of the metrics.
        trials: How many trials there are on black images.
        sanity_layers: How many layers the sanity check re-initialises.
        device: "cpu", "cuda" or "mps".
        retries: How often a failed unit is tried again.
        maps: Folders in which maps may have been kept.
        unit_timeout: Seconds that a unit, or the loading of a network, may take; None for as long as it takes.
        agreement: What code may be loaded.
        make: What makes a worker; None for `fei.bench.engine.worker.Worker`.
    """

    networks: tuple[PlannedNetwork, ...]
    recipes: tuple[Recipe, ...]
    batch_size: int | None = None
    trials: int = 0
    sanity_layers: int = 0
    device: str = "cpu"
    retries: int = 0
    maps: tuple[str, ...] = ()
    unit_timeout: float | None = None
    agreement: Agreement = field(default_factory=Agreement)
    make: Callable[[WorkerContext], Computer] | None = None

    @classmethod
    def of(cls, plan: Plan, catalog: Catalog, device: str, **more: Any) -> Self:
        """The context of a plan's units on a device; `more` are further attributes."""
        trials = plan.black_image.trials if plan.black_image else 0
        layers = plan.sanity.layers if plan.sanity else 0
        more = {"agreement": Agreement.now(), **more}
        return cls(catalog.networks, catalog.recipes, plan.metrics.batch_size, trials, layers, device, **more)

    def method(self, index: int) -> Method:
        """A new method of these units."""
        from fei.methods import create

        recipe = self.recipes[index]
        with self.agreement.holding():
            return create(recipe.name, **recipe.options)

    def worker(self) -> Computer:
        """A new worker for these units."""
        from fei.bench.engine.worker import Worker

        return (self.make or Worker)(self)

    def outcome(self, unit: Unit, status: str, **facts: Any) -> Outcome:
        """The outcome of a unit."""
        network, recipe = self.networks[unit.pair], self.recipes[unit.method]
        return Outcome(
            key=unit.key,
            kind=unit.kind,
            model=network.model,
            data="" if unit.kind == BLACK_IMAGE else network.data,
            item=unit.item,
            method=recipe.name,
            config=recipe.config_on(network),
            seed=unit.seed,
            status=status,
            threads=torch.get_num_threads(),
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            **facts,
        )

    def failure(self, unit: Unit, reason: str, attempts: int = 1) -> Outcome:
        """A unit that has no result."""
        return self.outcome(unit, FAILED, error=storable(reason), attempts=attempts)


def attempt(worker: Computer, unit: Unit, retries: int) -> Outcome:
    """Compute a unit, again if it fails, unless its network is what fails."""
    tries = 1 if worker.prepare(unit.pair) is not None else retries + 1
    outcome = worker.compute(unit)
    while outcome.status != DONE and outcome.attempts < tries:
        outcome = replace(worker.compute(unit), attempts=outcome.attempts + 1)
    return outcome


def sentence(error: BaseException) -> str:
    """An error as one line."""
    text = storable(error)
    if isinstance(error, FEIError):
        return text
    if isinstance(error, SystemExit):
        return f"The network or the method ended the program (exit code {text}); have it raise an error instead."
    return f"unexpected {type(error).__name__}: {text}" if text else f"unexpected {type(error).__name__}"
