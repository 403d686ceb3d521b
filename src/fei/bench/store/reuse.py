"""Results of other runs, as outcomes that a run can take over."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path

from fei.bench.store._store import Store
from fei.bench.store.outcomes import stored_outcomes
from fei.bench.units import Outcome
from fei.errors import InputError


def outcomes_of(path: Path, wanted: Container[str]) -> Iterator[Outcome]:
    """What another run, or an export of one, has of some units.

    Args:
        path: The folder of a run, or an exported file.
        wanted: The keys of the units.

    Yields:
        Their outcomes; those of a run with their maps, where it kept them.

    Raises:
        InputError: If there is no such run or file.
        DataError: If it cannot be used.
    """
    if not path.exists():
        raise InputError(f"There is nothing at '{path}' to take results from; give the folder of a run or an export.")
    if path.is_dir():
        yield from _outcomes_in(path, wanted)
        return
    from fei.bench.store.exchange import import_results

    yield from (outcome for outcome in import_results(path) if outcome.key in wanted)


def _outcomes_in(folder: Path, wanted: Container[str]) -> Iterator[Outcome]:
    with Store.open(folder, readonly=True) as store:
        keys = [key for (key,) in store.rows("SELECT DISTINCT unit FROM groups") if key in wanted]
        yield from stored_outcomes(store, keys, maps=True)
