"""One call of a run: find what is missing, take over what others have, compute the rest and commit it as it comes."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fei.bench.context import WorkerContext
from fei.bench.engine.engines import Engine, make_engine
from fei.bench.plan.catalog import Catalog
from fei.bench.plan.keys import plan_key
from fei.bench.store import MAPS, Link, Store
from fei.bench.store.reuse import outcomes_of
from fei.bench.units import BATCH_ROWS, DONE, FAILED, KEPT, Outcome, Unit
from fei.errors import FEIError, InputError

if TYPE_CHECKING:
    from fei.bench.plan import Plan

_SECONDS, _MOST = 0.25, 500  # how long an outcome may wait for its commit while others come, and how many may
_SHARE, _LONGEST = (
    0.1,
    30.0,
)  # of the time that may go to commits on a slow disk, and how long these may be put off then


@dataclass(frozen=True)
class Pace:
    """How a run gets on.

    Attributes:
        elapsed: Seconds since the first unit was handed out.
        rate: Units a second since the first was ready, so that loading does not count; 0 before the second is.
        left: Seconds that the rest will take at this rate; None where it is not known yet.
    """

    elapsed: float
    rate: float
    left: float | None


OnProgress = Callable[[int, int, int, Pace], None]
"""Called with how many units are done (those of earlier runs included), how many failed, how many there are, and how
fast it goes."""


@dataclass(frozen=True)
class Summary:
    """What a call came to.

    Attributes:
        done: Units that were computed.
        failed: Units of the plan without a result, those of earlier calls included.
        skipped: Units that were there already, or were taken over from elsewhere.
        seconds: How long it took.
    """

    done: int
    failed: int
    skipped: int
    seconds: float


@dataclass(frozen=True)
class Options:
    """How a run is computed; see `fei.bench.run`."""

    engine: str | Engine
    workers: int
    threads: int | None
    device: str
    reuse: tuple[str | Path, ...]
    on_progress: OnProgress | None
    retry_failed: bool
    unit_timeout: float | None

    def chosen_engine(self) -> Engine:
        """The engine."""
        if self.unit_timeout is not None and not 0 < self.unit_timeout < math.inf:
            raise InputError(f"unit_timeout is {self.unit_timeout!r}; give a number of seconds above 0.")
        return make_engine(self.engine, self.workers, self.threads) if isinstance(self.engine, str) else self.engine


class Run:
    """One call: from what there is to what the plan asks for."""

    def __init__(self, store: Store, plan: Plan, options: Options) -> None:
        self._store, self._plan, self._options = store, plan, options
        self._todo: dict[str, frozenset[str]] = {}  # the missing groups of each unit
        self._split: set[str] = set()  # units that are handed out in two parts
        self._pending: list[Outcome] = []
        self._total = self._done = self._failed = self._skipped = self._ready = 0
        self._started = self._first = time.monotonic()
        self._next_commit = self._started
        self._told_rows = False

    def go(self) -> Summary:
        """Do it."""
        start = time.monotonic()
        engine, device = self._options.chosen_engine(), choose_device(self._options.device)
        if not self._is_complete():
            catalog = Catalog(self._plan)
            unusable = self._find_missing(catalog)
            self._take_over()
            context = self._context(catalog, device)
            if unusable:
                self._drive(self._give_up(catalog, context))
            self._drive(engine.run(self._units(catalog), context))
            if not self._todo and not self._store.counts()["pending"]:
                self._store.set_meta(complete=plan_key(self._plan))
        return Summary(self._done, self._failed, self._skipped, time.monotonic() - start)

    def _is_complete(self) -> bool:
        """Whether this very plan was finished before: then not even its networks are loaded."""
        if self._store.meta("complete") != plan_key(self._plan):
            return False
        counts = self._store.counts()
        if counts[FAILED] and self._options.retry_failed:
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
                if missing and unit.key in failed and not self._options.retry_failed:
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
        for path in self._options.reuse:
            for outcome in outcomes_of(Path(path), self._todo):
                missing = self._todo.get(outcome.key, frozenset())
                groups = [name for name in outcome.groups if name != KEPT]
                if KEPT in missing and outcome.map is not None:
                    groups.append(KEPT)
                else:
                    outcome = replace(outcome, map=None)
                if missing.isdisjoint(groups):
                    continue
                self._pending.append(replace(outcome, groups=tuple(groups), status=DONE, error=None))
                self._todo[outcome.key] = missing.difference(groups)
                if not self._todo[outcome.key]:
                    del self._todo[outcome.key]
                    self._skipped += 1
                if len(self._pending) >= _MOST:
                    self._commit()
            self._commit()

    def _context(self, catalog: Catalog, device: str) -> WorkerContext:
        plan = self._plan
        folders = [self._store.folder, *(Path(path) for path in self._options.reuse)]
        return WorkerContext(
            networks=catalog.networks,
            recipes=catalog.recipes,
            batch_size=plan.metrics.batch_size,
            trials=0 if plan.black_image is None else plan.black_image.trials,
            sanity_layers=0 if plan.sanity is None else plan.sanity.layers,
            device=device,
            retries=plan.retries,
            unit_timeout=self._options.unit_timeout,
            maps=tuple(str((folder / MAPS).resolve()) for folder in folders if (folder / MAPS).is_dir()),
        )

    def _give_up(self, catalog: Catalog, context: WorkerContext) -> Iterator[Outcome]:
        """The units that cannot be computed, with the reason."""
        for entry in catalog.entries():
            if entry.problem is not None and entry.unit.key in self._todo:
                del self._todo[entry.unit.key]
                yield context.failure(entry.unit, entry.problem)

    def _units(self, catalog: Catalog) -> Iterator[Unit]:
        """The units with what they lack. Where two pairs ask for other scores of one unit, each asks for its own."""
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
            close = getattr(outcomes, "close", None)
            if close is not None:
                close()

    def _tally(self, outcome: Outcome) -> None:
        if outcome.key in self._split:  # the other part is still to come
            self._split.discard(outcome.key)
        elif outcome.status == DONE:
            self._done += 1
        else:
            self._failed += 1
        if not self._told_rows:
            self._tell_rows(outcome)
        self._first = time.monotonic() if not self._ready else self._first
        self._ready += 1

    def _tell_rows(self, outcome: Outcome) -> None:
        """Say, once, that memory was short and what was done about it."""
        rows = next((value for metric, _, _, value in outcome.scores if metric == BATCH_ROWS), None)
        if rows is not None:
            self._told_rows = True
            warnings.warn(
                f"Memory ran out, first with the method '{outcome.method}' on '{outcome.item}'; it goes on with fewer "
                f"rows in a forward pass, there {rows:g}, and units that were computed so say how many in their score "
                f"'{BATCH_ROWS}', since last digits may depend on it.",
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
        if self._options.on_progress is None:
            return
        now, done = time.monotonic(), self._skipped + self._done
        rate = (self._ready - 1) / max(now - self._first, 1e-9) if self._ready > 1 else 0.0
        rest = self._total - done - self._failed
        left = rest / rate if rate else None if rest else 0.0
        self._options.on_progress(done, self._failed, self._total, Pace(now - self._started, rate, left))


def choose_device(name: str) -> str:
    """The device of a name; "auto" for CUDA where there is one."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return "cuda" if there["cuda"] else "cpu"
    if not there.get(name):
        wrong = "This machine has no device" if name in there else "There is no device"
        raise InputError(f"{wrong} '{name}'; choose one of {', '.join(n for n in there if there[n])}, auto.")
    return name
