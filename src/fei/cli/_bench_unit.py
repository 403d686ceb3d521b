"""One unit of a run: all that is known of it, and how it is computed once more."""

from __future__ import annotations

from typing import Any

from fei.bench.context import WorkerContext
from fei.bench.engine.engines import LocalEngine
from fei.bench.plan import Plan, parse_plan
from fei.bench.plan.catalog import Catalog
from fei.bench.store import MAPS, Store
from fei.bench.store.outcomes import stored_json, stored_outcomes
from fei.bench.units import BLACK_IMAGE, DONE, SANITY, Outcome
from fei.common.device import choose_device
from fei.errors import DataError, InputError

SCHEMA = 1
_SHORTEST = 6  # digits that may stand for a whole key
_FACTS = (
    "kind", "item", "seed", "status", "error", "target", "label", "probability", "correct", "seconds", "forwards",
    "backwards", "peak_bytes", "threads", "finished",
)  # fmt: skip


def unit_document(store: Store, key: str) -> dict[str, Any]:
    """A unit as plain data, with a plan for it alone.

    Args:
        store: The run.
        key: The unit's key, or its first digits if no other unit has them.

    Raises:
        InputError: If the run has no such unit, or it is not computed yet.
    """
    links = store.rows(
        "SELECT unit, pair, method, seed, kind FROM plan_units WHERE unit = ? OR (? AND substr(unit, 1, ?) = ?)",
        (key, len(key) >= _SHORTEST, len(key), key),
    )
    units = {link[0] for link in links}
    if len(units) != 1:
        what = f"{len(units)} units whose keys begin with" if units else "no unit"
        raise InputError(
            f"The run in '{store.folder}' has {what} '{key}'; keys are in the column 'unit' of its results."
        )
    unit, pair, method, seed, kind = links[0]
    outcome = next(stored_outcomes(store, [unit], maps=True), None)
    if outcome is None:
        raise InputError(f"The unit '{unit}' is not computed yet; go on with: fei bench resume {store.folder}.")
    plan = store.plan
    columns = ("metric", "protocol", "layer", "value")
    return {
        "schema": SCHEMA,
        "unit": unit,
        "pair": plan.pairs[pair].name,
        "method": plan.methods[method].label,
        **{name: getattr(outcome, name) for name in _FACTS},
        "config": stored_json(outcome.config),
        "groups": list(outcome.groups),
        "scores": [dict(zip(columns, score, strict=True)) for score in outcome.scores],
        "map": None if outcome.map is None else str((store.folder / MAPS / f"{unit}.npy").resolve()),
        "versions": store.versions,
        "plan": _plan_of_one(plan, pair, method, seed, kind).text,
    }


def compute_again(document: dict[str, Any], *, threads: int | None, device: str) -> Outcome:
    """Compute the unit of a document once more, its map included.

    Raises:
        DataError: If the network or the image is not what it was, or the unit fails.
    """
    plan = parse_plan(document["plan"])
    catalog = Catalog(plan)
    entry = next((entry for entry in catalog.entries() if entry.unit.key == document["unit"]), None)
    if entry is None or entry.problem:
        reason = entry.problem if entry and entry.problem else "the network, the image or the method's defaults changed"
        raise DataError(
            f"The unit '{document['unit']}' cannot be computed as it was ({reason.rstrip('.')}); restore what changed."
        )
    context = WorkerContext.of(plan, catalog, choose_device(device).type)
    outcome = next(LocalEngine(threads=threads).run([entry.unit], context))
    if outcome.status != DONE:
        reason = str(outcome.error).rstrip(".")
        raise DataError(f"The unit '{outcome.key}' failed this time ({reason}); see to that, then try again.")
    return outcome


def _plan_of_one(plan: Plan, pair: int, method: int, seed: int, kind: str) -> Plan:
    """A plan that leads to the units of one method on one pair, with one seed; maps are wanted too."""
    document = plan.model_dump()
    label = plan.methods[method].label
    document |= {
        "pairs": [document["pairs"][pair]],
        "methods": [document["methods"][method]],
        "seeds": [seed],
        "keep_maps": kind not in {BLACK_IMAGE, SANITY},
    }
    for name, own in (("black_image", BLACK_IMAGE), ("sanity", SANITY)):
        if kind == own and document[name] is None:
            raise DataError(f"The run has a unit of '{name}', which is not in its plan; restore the run.")
        document[name] = document[name] | {"methods": [label]} if kind == own else None
    return Plan.model_validate(document)
