"""Two runs made one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fei.bench.plan import Plan
from fei.bench.plan.keys import plan_key
from fei.bench.store._store import Link, Store
from fei.bench.store.outcomes import stored_outcomes
from fei.bench.units import DONE, Outcome
from fei.errors import InputError

_BATCH = 500  # outcomes committed at once


def merge(first: Store, second: Store, folder: str | Path) -> Store:
    """Make one run of two: the pairs, methods and seeds of both, with all that either has computed.

    What neither has computed is left to do: `fei.bench.engine.runner.resume` goes on with it.

    Args:
        first: A run. Where both have a unit, its numbers are taken; but one that failed gives way to one that is done.
        second: Another.
        folder: Where the new run goes.

    Returns:
        The new run, with the right to write to it.

    Raises:
        InputError: If the plans contradict each other, or the folder holds a run already.
    """
    plan = merged_plan(first.plan, second.plan)
    links = dict.fromkeys([*_links(first, plan), *_links(second, plan)])
    merged = Store.create(Path(folder), plan)
    try:
        done = {
            key for store in (first, second) for (key,) in store.rows("SELECT key FROM units WHERE status = 'done'")
        }
        for store in (first, second):
            batch: list[Outcome] = []
            for outcome in stored_outcomes(store, maps=True):
                if outcome.status == DONE or outcome.key not in done:
                    batch.append(outcome)
                if len(batch) == _BATCH:
                    merged.commit(batch)
                    batch = []
            merged.commit(batch)
        merged.link(links, layers=_layers(first, second, plan))
    except BaseException:
        merged.close()
        raise
    return merged


def merged_plan(first: Plan, second: Plan) -> Plan:
    """A plan with the pairs, methods, seeds and metrics of two; the first one's word counts where they are one word."""
    if plan_key(first) == plan_key(second):
        return first
    for attribute, heading in (("pairs", "name"), ("methods", "label")):
        there = {getattr(part, heading): part for part in getattr(first, attribute)}
        for part in getattr(second, attribute):
            if there.get(getattr(part, heading), part) != part:
                raise InputError(
                    f"The two plans mean different {attribute} by '{getattr(part, heading)}'; give one of them another "
                    f"{heading}."
                )
    for attribute in ("target", "black_image", "sanity"):
        one, other = getattr(first, attribute), getattr(second, attribute)
        if one is not None and other is not None and one != other:
            raise InputError(
                f"The two plans differ in '{attribute}' ({one} and {other}); only equal ones can be merged."
            )
    document = first.model_dump() | {
        "pairs": [pair.model_dump() for pair in {p.name: p for p in (*first.pairs, *second.pairs)}.values()],
        "methods": [row.model_dump() for row in {m.label: m for m in (*first.methods, *second.methods)}.values()],
        "seeds": list(dict.fromkeys([*first.seeds, *second.seeds])),
        "keep_maps": first.keep_maps or second.keep_maps,
        "metrics": {
            "protocols": list(dict.fromkeys([*first.metrics.protocols, *second.metrics.protocols])),
            "measure": [*first.metrics.groups, *second.metrics.groups],
            "batch_size": first.metrics.batch_size,
        },
    }
    for attribute in ("black_image", "sanity"):
        part = getattr(first, attribute) or getattr(second, attribute)
        document[attribute] = None if part is None else part.model_dump()
    return Plan.model_validate(document, context={"of_a_run": True})


def _links(store: Store, plan: Plan) -> Iterator[Link]:
    """The links of a run, with the places that its pairs and methods have in another plan."""
    own = store.plan
    names, labels = [pair.name for pair in plan.pairs], [row.label for row in plan.methods]
    pairs = [names.index(pair.name) for pair in own.pairs]
    methods = [labels.index(row.label) for row in own.methods]
    for pair, method, *rest in store.rows("SELECT pair, method, item, seed, kind, unit FROM plan_units"):
        yield (pairs[pair], methods[method], *rest)


def _layers(first: Store, second: Store, plan: Plan) -> list[list[str]]:
    """For each pair the layers that either run looked at."""
    sql = "SELECT layer FROM layers JOIN pairs USING (pair) WHERE name = ? ORDER BY depth"
    found = []
    for pair in plan.pairs:
        names = [name for store in (first, second) for (name,) in store.rows(sql, (pair.name,))]
        found.append(list(dict.fromkeys(names)))
    return found
