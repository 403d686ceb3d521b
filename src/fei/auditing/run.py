"""An audit from its request to its report: a race of methods on the store of a benchmark."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fei import data as datasets
from fei import models
from fei.auditing import thresholds
from fei.auditing.costs import Costs
from fei.auditing.measured import Measured
from fei.auditing.memory import Remembered, remember
from fei.auditing.network import FirstLook, first_look, remarks
from fei.auditing.page import write_report
from fei.auditing.questions import CONTROLS, METRICS, PROTOCOL, QUESTIONS, STEPS, Question, named
from fei.auditing.recommendation import recommend
from fei.auditing.result import Audit
from fei.auditing.schedule import UNFINISHED, Race
from fei.bench import RayEngine
from fei.bench.engine.runner import resume, run
from fei.bench.plan import Plan
from fei.bench.plan.keys import attends, model_fingerprint
from fei.bench.store import MAPS, Store
from fei.bench.units import BLACK_IMAGE, Outcome, Unit, storable
from fei.common.device import choose_device
from fei.common.files import prepare_folder
from fei.common.machine import usable_processors
from fei.data import Dataset, Item
from fei.errors import InputError, ModelError
from fei.methods import available, create, describe, is_control
from fei.models import Classifier
from fei.progress import span

if TYPE_CHECKING:
    from fei.bench import Engine

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SLOWNESS = 0.5  # of the time until the first step, kept for the report
_RESERVE = (4.0, 0.05)  # seconds for the report, and the share of the budget, whichever is more


def audit(
    model: str | Classifier,
    data: str | Path,
    *,
    budget: str | float = "10m",
    methods: Sequence[str] | None = None,
    options: dict[str, dict[str, Any]] | None = None,
    require: str | Sequence[str] = (),
    seed: int = 0,
    out: str | Path = "fei-out",
    engine: str | Engine = "local",
    workers: int = 0,
    device: str = "auto",
    tell: Callable[[str], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    started: float | None = None,
) -> Audit:
    """Measure which explanations can be trusted on a network, on a sample of its images, within a time.

    It goes on where an earlier audit of the same network in the same folder stopped; what was measured is kept.

    Args:
        model: The network's specification, or a classifier that was loaded from one.
        data: The images, as `fei.data.load` takes them; with labels it is also seen whether the network is right.
        budget: Seconds, or a text such as "90s", "10m" or "1h".
        methods: Names of the methods; by default all that the network can be asked with.
        options: Options of methods, by the method's name.
        require: Names of questions; only these are asked, and `Audit.unmet` says which are not met.
        seed: Of the sample and of whatever is random.
        out: Folder for the results.
        engine: As for `fei.bench.run`.
        workers: As for `fei.bench.run`.
        device: "cpu", "cuda", "mps" or "auto".
        tell: Is told in words what has been decided.
        clock: Tells the time in seconds.
        started: When the budget began, by the clock; now if not given.

    Returns:
        The verdicts, the recommendation, and where the report is.

    Raises:
        InputError: If there are too few images, all of one class, the network is at chance on them, or the budget is
            too short for a single method.

    Examples:
        >>> found = fei.audit("net.py:net", "imagefolder:classes", methods=["gradcam", "random"], require="class")
        >>> found.verdict("random", "class").answer
        'fail'
    """
    started, seconds = clock() if started is None else started, budget_seconds(budget)
    deadline = started + seconds - max(_RESERVE[0], _RESERVE[1] * seconds)
    if clock() >= deadline:
        raise InputError(
            f"The budget of {span(seconds)} was over before anything could be measured; give at least "
            f"{span(60 + 2 * (clock() - started))}."
        )
    say = tell or (lambda text: None)
    spec = model if isinstance(model, str) else model.spec
    if not spec:
        raise InputError(
            "A network that was not loaded from a specification cannot be audited; load it with fei.models.load."
        )
    questions = named(list(require) if not isinstance(require, str) else require) or QUESTIONS
    classifier = (model if isinstance(model, Classifier) else models.load(spec)).to(choose_device(device)).eval()
    dataset = datasets.load(str(data))
    items = _draw(dataset, seed)
    say(f"looking at the first of {len(dataset)} images")
    seen = first_look(classifier, items, None if dataset.classes is None else len(dataset.classes))
    items = [item for item in items if item.id not in seen.unreadable]
    chosen = _methods(classifier, methods, options or {})
    with_masks = [name for name, given in chosen.items() if callable(getattr(create(name, **given), "explain", None))]
    plan = _plan(spec, str(data), chosen, [name for name in with_masks if ":" not in name], seed, questions)
    fingerprint = model_fingerprint(classifier)
    folder = Path(out) / f"audit-{_slug(spec)}-{fingerprint[:8]}"
    prepare_folder(folder / MAPS)
    # the slower the machine was to begin, the slower it will be to write
    deadline = min(deadline, started + seconds - _SLOWNESS * (clock() - started))
    race = _Driver(
        folder, plan, [storable(item.id) for item in items], chosen, questions, with_masks, seen,
        deadline=deadline, clock=clock, tell=say,
        workers=_at_a_time(engine, workers),
    )  # fmt: skip
    computed = race.drive(engine=engine, workers=workers, device=device)
    found = race.finish()
    return _written(
        found, plan, folder, classifier, dataset, seen, fingerprint, items,
        {"spec": spec, "data": str(data), "seed": seed, "budget": seconds, "options": chosen, "require": bool(require)},
        computed, started, clock,
    )  # fmt: skip


def budget_seconds(budget: str | float) -> float:
    """A budget in seconds: a number, or a text such as "90s", "10m" or "1h"."""
    text = str(budget).strip().lower()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|)", text)
    seconds = float(match[1]) * _UNITS[match[2]] if match else math.nan
    if not 1 <= seconds <= 30 * 86400:
        raise InputError(f"The budget is '{budget}'; give a time from one second to 30 days, such as 90s, 10m or 1h.")
    return seconds


def _at_a_time(engine: str | Engine, workers: int) -> int:
    """How many steps are computed at a time; Ray takes all processors where nobody says how many."""
    count = int(workers or getattr(engine, "workers", 0))
    on_ray = engine == "ray" or isinstance(engine, RayEngine)
    return count or (usable_processors() if on_ray else 1)


class _Driver:
    """A race whose steps are units of a run."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        items: Sequence[str],
        chosen: dict[str, dict[str, Any]],
        questions: Sequence[Question],
        with_masks: Sequence[str],
        seen: FirstLook,
        *,
        deadline: float,
        clock: Callable[[], float],
        tell: Callable[[str], None],
        workers: int,
    ) -> None:
        self._folder, self._plan, self._computed = folder, plan, 0

        def make(measured: Measured) -> Race:
            costs = Costs(seen.seconds, chosen, measured)
            return Race(
                list(chosen), items, questions, with_masks, measured, costs, deadline, clock, tell, workers=workers
            )

        self._make = make
        self.race: Race | None = None

    def drive(self, **how: Any) -> int:
        """Run it; how many steps were computed."""
        how |= {"choose": self._choose, "on_outcome": self._hear, "retry_failed": True}
        if Store.begun(self._folder):
            resume(self._folder, self._plan, **how)
        else:
            run(self._plan, self._folder, **how)
        return self._computed

    def _choose(self, units: Sequence[Unit]) -> Iterator[Unit]:
        """The units, step by step, in the order of the race."""
        race = self.race = self._make(Measured.of(self._folder))
        names = [row.name for row in self._plan.methods]
        by_place = {(names[unit.method], unit.item, unit.kind == BLACK_IMAGE): unit for unit in units}
        _refuse_short(race)
        while (step := race.next()) is not None:
            unit = by_place.get((step.method, step.item, step.name == "black"))
            wanted = () if unit is None else tuple(name for name in unit.scores if name in STEPS[step.name])
            if unit is not None and wanted:
                yield replace(unit, scores=wanted)
            else:  # it cannot be computed, which the run has told
                race.forget(step)

    def _hear(self, outcome: Outcome) -> None:
        if self.race is not None:
            self._computed += 1
            self.race.measured.add(outcome)
            self.race.came(outcome)

    def finish(self) -> Race:
        """The race as it ended."""
        race = self.race or self._make(Measured.of(self._folder))
        race.look()
        race.leave_out()
        if not race.begun and race.left_out:
            for method, reason in race.left_out.items():
                if reason.startswith(UNFINISHED):
                    raise InputError(
                        f"The budget was too short for a single method ({method}: {reason}); give the same command "
                        "again, which goes on where this stopped, or a longer budget."
                    )
            method, reason = next(iter(race.left_out.items()))
            raise ModelError(f"No method could be measured, {method} since {reason.rstrip('.')}; see to that first.")
        return race


def _refuse_short(race: Race) -> None:
    if race.begun:  # from an earlier audit
        return
    cheapest = min(race.methods, key=race.costs.of_map)
    needed = race.first_round(cheapest, scores=False)
    left = race.deadline - race.clock()
    if needed > left:
        raise InputError(
            f"The budget is too short for a single method: {cheapest} takes about {span(needed)} on "
            f"{thresholds.FEWEST} images, and {max(0.0, left):.0f} s are left after loading; give at least "
            f"{math.ceil(1.2 * (needed - left) / 10) * 10} s more."
        )


def _draw(dataset: Dataset, seed: int) -> list[Item]:
    """The images in the order in which they are taken, by a hash of the seed and the id, as `Dataset.sample` draws."""

    def place(item: Item) -> bytes:
        return hashlib.sha256(f"{seed}\0{item.id}".encode("utf-8", "surrogateescape")).digest()

    return sorted(dataset.sample(thresholds.LADDER[-1], seed), key=place)


def _methods(
    classifier: Classifier, names: Sequence[str] | None, options: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    if names is None:
        tokens = attends(classifier)
        fitting = [name for name in available() if not is_control(name)]
        names = [name for name in fitting if tokens or describe(name).family != "attention"]
    chosen = {describe(name).name: dict(options.get(name, {})) for name in names}
    if not chosen:
        raise InputError("There is no method to audit; name at least one.")
    return chosen


def _plan(
    spec: str,
    data: str,
    chosen: dict[str, dict[str, Any]],
    with_masks: list[str],
    seed: int,
    questions: Sequence[Question],
) -> Plan:
    rows = chosen | {control: {} for control in CONTROLS if control not in chosen}
    black = with_masks and any(question.name == "black" for question in questions)
    return Plan.model_validate(
        {
            "name": f"audit of {spec}",
            "pairs": [{"model": spec, "data": data, "sample": thresholds.LADDER[-1], "sample_seed": seed}],
            "methods": [{"name": name, "options": given} for name, given in rows.items()],
            "seeds": [seed],
            "keep_maps": True,
            "retries": 0,
            "metrics": {"protocols": [PROTOCOL], "measure": list(METRICS)},
            **({"black_image": {"trials": thresholds.TRIALS, "methods": with_masks}} if black else {}),
        }
    )


def _slug(spec: str) -> str:
    return re.sub(r"[^\w.-]+", "-", Path(spec.partition("?")[0]).name).strip("-.") or "network"


def _written(
    race: Race,
    plan: Plan,
    folder: Path,
    classifier: Classifier,
    dataset: Dataset,
    seen: FirstLook,
    fingerprint: str,
    items: Sequence[Item],
    asked: dict[str, Any],
    computed: int,
    started: float,
    clock: Callable[[], float],
) -> Audit:
    names = [storable(item.id) for item in items]
    standing = race.standing()
    advice = recommend(race.measured, race.table, standing, race.questions, names, race.left_out)
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    found = Audit(
        recommended=advice.method,
        sentences=advice.sentences,
        by_question=advice.by_question,
        table=race.table,
        methods=tuple(standing),
        questions=tuple(race.questions),
        dropped=dict(race.dropped),
        left_out=dict(race.left_out),
        remarks=tuple(remarks(race.measured, CONTROLS[0], names)),
        measured=race.measured,
        items=tuple(names),
        looked=seen,
        asked=asked | {"images": len(dataset), "classes": None if dataset.classes is None else len(dataset.classes)},
        fingerprint=fingerprint,
        folder=folder,
        computed=computed,
        seconds=clock() - started,
        finished=finished,
    )
    write_report(found, classifier, {storable(item.id): item.path for item in items})
    if not asked["require"]:
        options = asked["options"].get(advice.method, {}) if advice.method else {}
        remember(Remembered(fingerprint, advice.method, options, advice.sentences, str(found.page.resolve()), finished))
    return replace(found, seconds=clock() - started)
