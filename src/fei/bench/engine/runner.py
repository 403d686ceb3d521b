"""A run from plan to results: what is done is skipped, the rest is computed and committed as it comes."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from fei.bench.context import WorkerContext
from fei.bench.engine.engines import Engine, make_engine
from fei.bench.plan.catalog import Catalog, completion_key
from fei.bench.plan.keys import plan_key
from fei.bench.store import MAPS, Link, Store
from fei.bench.store.exchange import outcomes_of
from fei.bench.units import BATCH_ROWS, DONE, FAILED, KEPT, Outcome, Unit
from fei.common.consent import named_by, remembering
from fei.common.device import choose_device
from fei.errors import FEIError, InputError

if TYPE_CHECKING:
    from fei.bench.plan import Plan

_SECONDS, _MOST = 0.25, 500  # how long an outcome may wait for its commit while others come, and how many may wait
# On a slow disk: the share of time that commits may take, and for how long they may be put off.
_SHARE, _LONGEST = 0.1, 30.0


@dataclass(frozen=True)
class Pace:
    """How fast a run goes.

    Attributes:
        elapsed: Seconds since the first unit was handed out.
        rate: Units per second since the first was ready, so that loading does not count; 0 before the second is ready.
        left: Seconds that the rest will take at this rate; None while that is not known.

    Examples:
        >>> def tell(done: int, failed: int, total: int, pace: fei.bench.Pace) -> None:
        ...     seen.append(pace.elapsed >= 0)
        >>> seen = []
        >>> _ = fei.bench.run(fei.bench.load_plan("plan.toml"), "a third", on_progress=tell)
        >>> all(seen)
        True
    """

    elapsed: float
    rate: float
    left: float | None


OnProgress = Callable[[int, int, int, Pace], None]
"""Called with how many units are done (those of earlier runs included), how many failed, how many there are, and the
pace."""


@dataclass(frozen=True)
class RunSummary:
    """What a call of `run` or `resume` did.

    Attributes:
        done: Units that were computed.
        failed: Units of the plan without a result, those of earlier calls included.
        skipped: Units that were there already, or were taken over from elsewhere.
        seconds: How long it took.

    Examples:
        >>> found = fei.bench.run(fei.bench.load_plan("plan.toml"), "another")
        >>> found.done, found.failed, found.skipped
        (2, 0, 0)
    """

    done: int
    failed: int
    skipped: int
    seconds: float


class RunOptions(TypedDict, total=False):
    """How a run is computed: the keyword arguments of `run` and `resume`.

    Attributes:
        engine: "local" (the default), "ray" for a Ray of its own on this machine, a `fei.bench.RayEngine` for a
            cluster, or an engine of your own.
        workers: Processes; 0 (the default) to compute in this one, with "ray" as many as there is room for.
        threads: Torch's threads in each, see `fei.bench.LocalEngine` and `fei.bench.RayEngine`.
        device: "cpu", "cuda", "mps" or "auto" (the default).
        reuse: Folders of other runs, or exports, whose results are taken over where they belong to this plan.
        retry_failed: Whether units that failed in an earlier call are tried again.
        unit_timeout: Seconds that a unit, with its further attempts, may take in a worker; the same for loading a
            network. What takes longer is ended, tried again in another worker, and in the end recorded as failed.
        on_progress: Called as units are ready.
        choose: Is given the units that lack scores, and says which of them are computed, in which order, and with which
            of these scores; it may go by what has come so far. Without, all are.
        on_outcome: Called with what came of each unit.

    Examples:
        >>> plan = fei.bench.load_plan("plan.toml")
        >>> fei.bench.run(plan, "a seventh", device="cpu", on_outcome=lambda outcome: print(outcome.item)).done
        a.png
        b.png
        2
    """

    engine: str | Engine
    workers: int
    threads: int | None
    device: str
    reuse: Sequence[str | Path]
    retry_failed: bool
    unit_timeout: float | None
    on_progress: OnProgress | None
    choose: Callable[[Sequence[Unit]], Iterator[Unit]] | None
    on_outcome: Callable[[Outcome], None] | None


def run(plan: Plan, folder: str | Path, **options: Unpack[RunOptions]) -> RunSummary:
    """Compute what a plan asks for; in a folder where that was begun, what is missing.

    A plan that was finished there is not looked at again: neither its networks nor its images are loaded.

    Args:
        plan: The plan.
        folder: Where the results go; made if it is not there.
        options: How to compute, see `RunOptions`.

    Returns:
        How many units were computed, failed, and skipped.

    Raises:
        InputError: If the folder holds another plan's run, another process works on it, or something that was asked
            for does not exist.
        DataError: If the disk is full, or files cannot be used.

    Examples:
        >>> fei.bench.run(fei.bench.load_plan("plan.toml"), "run").failed
        0
    """
    with _begun(Path(folder), plan) as store, remembering():
        store.show_plan(plan)
        return _Run(store, plan, options).go()


def resume(folder: str | Path, plan: Plan | None = None, **options: Unpack[RunOptions]) -> RunSummary:
    """Go on with a run.

    Code that the run's own plan names must have been agreed to before, as it is by `run`, or within
    `fei.common.consent.trusting`.

    Args:
        folder: Where it is.
        plan: A changed plan, which takes the place of the run's; all results that it shares with the old one are kept.
        options: How to compute, see `RunOptions`.

    Returns:
        As for `run`.

    Raises:
        InputError: As for `run`.
        DataError: As for `run`.

    Examples:
        >>> _ = fei.bench.run(fei.bench.load_plan("plan.toml"), "run")
        >>> fei.bench.resume("run").done  # nothing is left to do
        0
    """
    with Store.open(Path(folder)) as store, remembering() if plan else named_by(f"The run in '{folder}'"):
        if plan is not None:
            store.show_plan(plan)
        return _Run(store, plan or store.plan, options).go()


def _begun(folder: Path, plan: Plan) -> Store:
    """The store of a plan: a new one, or the one that is there."""
    if not Store.begun(folder):
        return Store.create(folder, plan)
    store = Store.open(folder)
    # a run of which nothing was computed yet is no loss
    if store.plan_key != plan_key(plan) and store.rows("SELECT 1 FROM units LIMIT 1"):
        store.close()
        raise InputError(
            f"'{folder}' holds the run of another plan; choose another folder, or go on there with: fei bench resume "
            f"{folder} --plan NEW.toml, which keeps its results."
        )
    return store


class _Run:
    """One call: from what is there to what the plan asks for."""

    def __init__(self, store: Store, plan: Plan, options: RunOptions) -> None:
        if unknown := options.keys() - RunOptions.__annotations__.keys():
            raise TypeError(f"a run has no option {', '.join(sorted(unknown))}")
        self._store, self._plan, self._options = store, plan, options
        self._reuse = [Path(path) for path in options.get("reuse", ())]
        self._todo: dict[str, frozenset[str]] = {}  # the missing groups of each unit
        self._split: set[str] = set()  # units that are handed out in two parts
        self._pending: list[Outcome] = []
        self._total = self._done = self._failed = self._skipped = self._ready = 0
        self._started = self._first = self._next_commit = time.monotonic()
        self._told_rows = False

    def go(self) -> RunSummary:
        """Do it."""
        start = time.monotonic()
        engine, device = self._engine(), choose_device(self._options.get("device", "auto"))
        self._repair()
        if not self._is_complete():
            catalog = Catalog(self._plan)
            unusable = self._find_missing(catalog)
            self._take_over()
            folders = [folder / MAPS for folder in (self._store.folder, *self._reuse)]
            context = WorkerContext.of(
                self._plan,
                catalog,
                device.type,
                retries=self._plan.retries,
                unit_timeout=self._options.get("unit_timeout"),
                maps=tuple(str(folder.resolve()) for folder in folders if folder.is_dir()),
            )
            if unusable:
                self._drive(self._give_up(catalog, context))
            units, choose = self._units(catalog), self._options.get("choose")
            self._drive(engine.run(units if choose is None else choose(list(units)), context))
            if choose is None and not self._todo and not self._store.counts()["pending"]:  # else some may be left out
                self._store.set_meta(complete=completion_key(self._plan))
        return RunSummary(self._done, self._failed, self._skipped, time.monotonic() - start)

    def _repair(self) -> None:
        """Have what is damaged or missing computed again, and say so."""
        found = self._store.repair()
        if not found.none:
            warnings.warn(
                f"Of the run in '{self._store.folder}' {len(found.units)} units and {len(found.maps)} maps are damaged "
                f"and {len(found.missing)} maps are missing; they are computed again.",
                stacklevel=2,
            )

    def _engine(self) -> Engine:
        timeout, engine = self._options.get("unit_timeout"), self._options.get("engine", "local")
        if timeout is not None and not 0 < timeout < math.inf:
            raise InputError(f"`unit_timeout` is {timeout!r}; give a number of seconds above 0.")
        if not isinstance(engine, str):
            return engine
        return make_engine(engine, self._options.get("workers", 0), self._options.get("threads"))

    def _is_complete(self) -> bool:
        """Whether this very plan was finished before: then not even its networks are loaded."""
        if self._store.meta("complete") != completion_key(self._plan):
            return False
        counts = self._store.counts()
        if counts[FAILED] and self._options.get("retry_failed"):
            return False
        self._skipped, self._failed, self._total = counts[DONE], counts[FAILED], sum(counts.values())
        self._report()
        return True

    def _find_missing(self, catalog: Catalog) -> bool:
        """Link the plan's units and note what each still lacks; True if some cannot be computed anyway."""
        complete, failed = self._store.done_groups(), self._store.failed()
        given_up, healed, unusable = set[str](), set[str](), False
        none: frozenset[str] = frozenset()
        shared: dict[frozenset[str], frozenset[str]] = {}  # few sets, for many units

        def links() -> Iterator[Link]:
            nonlocal unusable
            for entry in catalog.entries():
                unit = entry.unit
                missing = frozenset(unit.scores) - complete.get(unit.key, none)
                if missing and unit.key in failed and not self._options.get("retry_failed"):
                    given_up.add(unit.key)
                elif missing:
                    missing |= self._todo.get(unit.key, none)
                    self._todo[unit.key] = shared.setdefault(missing, missing)
                    unusable = unusable or entry.problem is not None
                elif unit.key in failed:
                    healed.add(unit.key)
                yield unit.pair, unit.method, unit.item, unit.seed, unit.kind, unit.key

        changed = self._plan if self._store.plan_key != plan_key(self._plan) else None
        self._store.link(links(), changed, [network.layers for network in catalog.networks])
        self._store.set_done(healed - given_up - self._todo.keys())
        self._store.set_meta(complete="", problems=json.dumps(catalog.problems))
        self._total = sum(self._store.counts().values())
        self._failed = len(given_up)
        self._skipped = self._total - self._failed - len(self._todo)
        return unusable

    def _take_over(self) -> None:
        """Keep what other runs have of the missing units."""
        for path in self._reuse:
            for outcome in outcomes_of(path, self._todo):
                missing = self._todo.get(outcome.key, frozenset())
                kept = outcome.map if KEPT in missing else None
                groups = [name for name in outcome.groups if name != KEPT] + ([] if kept is None else [KEPT])
                if missing.isdisjoint(groups):
                    continue
                self._pending.append(replace(outcome, groups=tuple(groups), map=kept, status=DONE, error=None))
                self._todo[outcome.key] = missing.difference(groups)
                if not self._todo[outcome.key]:
                    del self._todo[outcome.key]
                    self._skipped += 1
                if len(self._pending) >= _MOST:
                    self._commit()
            self._commit()

    def _give_up(self, catalog: Catalog, context: WorkerContext) -> Iterator[Outcome]:
        """The units that cannot be computed, with the reason."""
        for entry in catalog.entries():
            if entry.problem is not None and entry.unit.key in self._todo:
                del self._todo[entry.unit.key]
                yield context.failure(entry.unit, entry.problem)

    def _units(self, catalog: Catalog) -> Iterator[Unit]:
        """The units with what they lack. Where two pairs want different scores of one unit, each asks for its own."""
        for entry in catalog.entries():
            unit = entry.unit
            missing = self._todo.get(unit.key, frozenset())
            wanted = tuple(group for group in unit.scores if group in missing)
            if not wanted:
                continue
            rest = missing.difference(wanted)
            if rest:
                self._todo[unit.key] = rest
                self._split.add(unit.key)
            else:
                del self._todo[unit.key]
            yield replace(unit, scores=wanted)

    def _drive(self, outcomes: Iterator[Outcome]) -> None:
        """Commit outcomes as they come; on any failure, Ctrl-C included, what has come is committed first."""
        self._started, self._ready = time.monotonic(), 0
        self._report()
        try:
            for outcome in outcomes:
                self._pending.append(outcome)
                self._tally(outcome)
                if len(self._pending) >= _MOST or time.monotonic() >= self._next_commit:
                    self._commit()
            self._commit()
        except BaseException:
            with suppress(FEIError):
                self._commit()
            raise
        finally:
            if isinstance(outcomes, Generator):
                outcomes.close()

    def _tally(self, outcome: Outcome) -> None:
        if outcome.key in self._split:  # the other part is still to come
            self._split.discard(outcome.key)
        elif outcome.status == DONE:
            self._done += 1
        else:
            self._failed += 1
        self._first = time.monotonic() if not self._ready else self._first
        self._ready += 1
        if (hear := self._options.get("on_outcome")) is not None:
            hear(outcome)
        rows = next((value for metric, _, _, value in outcome.scores if metric == BATCH_ROWS), None)
        if rows is not None and not self._told_rows:
            self._told_rows = True
            warnings.warn(
                f"Memory ran out, first with the method '{outcome.method}' on '{outcome.item}'; the run goes on with "
                f"fewer rows in a forward pass, there {rows:g}, and units that were computed this way tell how many in "
                f"their score '{BATCH_ROWS}', since the last digits may depend on it.",
                stacklevel=2,
            )

    def _commit(self) -> None:
        start = time.monotonic()
        if self._pending:
            self._store.commit(self._pending)
            self._pending.clear()
        now = time.monotonic()
        # on a slow disk less often, so that workers do not wait for it
        self._next_commit = now + min(_LONGEST, max(_SECONDS, (now - start) * (1 / _SHARE - 1)))
        self._report()

    def _report(self) -> None:
        tell = self._options.get("on_progress")
        if tell is None:
            return
        now, done = time.monotonic(), self._skipped + self._done
        rate = (self._ready - 1) / max(now - self._first, 1e-9) if self._ready > 1 else 0.0
        rest = self._total - done - self._failed
        left = rest / rate if rate else None if rest else 0.0
        tell(done, self._failed, self._total, Pace(now - self._started, rate, left))
