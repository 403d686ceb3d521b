"""A run from plan to results: what is done is skipped, the rest is computed and committed as it comes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fei.bench.engine._drive import OnProgress, Options, Pace, Run, Summary
from fei.bench.engine.engines import Engine
from fei.bench.plan.keys import plan_key
from fei.bench.store import Store
from fei.errors import InputError

if TYPE_CHECKING:
    from fei.bench.plan import Plan

__all__ = ["OnProgress", "Pace", "Summary", "resume", "run"]


def run(
    plan: Plan,
    folder: str | Path,
    *,
    engine: str | Engine = "local",
    workers: int = 0,
    threads: int | None = None,
    device: str = "auto",
    reuse: Sequence[str | Path] = (),
    unit_timeout: float | None = None,
    on_progress: OnProgress | None = None,
) -> Summary:
    """Compute what a plan asks for; in a folder where that was begun, what is missing.

    A plan that was finished there is not looked at again: neither its networks nor its images are loaded.

    Args:
        plan: The plan.
        folder: Where the results go; made if it is not there.
        engine: "local", "ray" for a Ray of its own on this machine, a `fei.bench.RayEngine` for a cluster, or an engine
            of your own.
        workers: Processes; 0 to compute in this one, of "ray" as many as there is room for.
        threads: Torch's threads in each, see `fei.bench.LocalEngine` and `fei.bench.RayEngine`.
        device: "cpu", "cuda", "mps" or "auto".
        reuse: Folders of other runs, or exports, whose results are taken over where they are of this plan.
        unit_timeout: Seconds that a unit, with its further attempts, may take in a worker, and the loading of a network
            as well. What takes longer is ended, tried again in another worker, and recorded as failed in the end.
        on_progress: Called as units are ready.

    Returns:
        How many were computed, failed, and skipped.

    Raises:
        InputError: If the folder holds another plan's run, another process works on it, or something that was asked
            for does not exist.
        DataError: If the disk is full, or files cannot be used.
    """
    place = Path(folder)
    options = Options(engine, workers, threads, device, tuple(reuse), on_progress, False, unit_timeout)
    with _begun(place, plan) as store:
        return Run(store, plan, options).go()


def resume(
    folder: str | Path,
    plan: Plan | None = None,
    *,
    engine: str | Engine = "local",
    workers: int = 0,
    threads: int | None = None,
    device: str = "auto",
    reuse: Sequence[str | Path] = (),
    retry_failed: bool = False,
    unit_timeout: float | None = None,
    on_progress: OnProgress | None = None,
) -> Summary:
    """Go on with a run.

    Args:
        folder: Where it is.
        plan: A changed plan, which takes the place of the run's; all results that it shares with the old one are kept.
        engine: As for `run`.
        workers: As for `run`.
        threads: As for `run`.
        device: As for `run`.
        reuse: As for `run`.
        retry_failed: Whether units that failed are tried again.
        unit_timeout: As for `run`.
        on_progress: As for `run`.

    Returns:
        As for `run`.

    Raises:
        InputError: As for `run`.
        DataError: As for `run`.
    """
    options = Options(engine, workers, threads, device, tuple(reuse), on_progress, retry_failed, unit_timeout)
    with Store.open(Path(folder)) as store:
        return Run(store, plan or store.plan, options).go()


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
