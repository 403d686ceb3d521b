"""The committed scores: exports of the runs, made small, and beside them what an export does not hold."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from studies._plans import SCORES, plan_of, portable

from fei.bench.plan import Plan, parse_plan
from fei.bench.store import Store
from fei.bench.store.exchange import import_results

_LONGEST = 30  # points of a curve that is kept: RISE's have 225, which no page shows
_PORTABLE = ("model", "data")
_LAYERS = "SELECT layer FROM layers WHERE pair = ? ORDER BY depth"


def keep(folder: Path, exported: Path, target: Path) -> bool:
    """Put an export in the place of the committed one, unless that has the same content.

    Args:
        folder: The run.
        exported: Its export.
        target: The committed file, without its ending.

    Returns:
        Whether anything changed.
    """
    table = _compact(pyarrow.parquet.read_table(exported))
    scores = target.with_name(f"{target.name}.parquet")
    if not len(table):
        return False  # a run that was begun and has nothing yet
    if scores.is_file() and pyarrow.parquet.read_table(scores).equals(table):
        return False
    with Store.open(folder, readonly=True) as store:
        facts = {
            "versions": json.loads(store.meta("versions") or "{}"),
            "layers": {
                pair.name: [layer for (layer,) in store.rows(_LAYERS, (place,))]
                for place, pair in enumerate(store.plan.pairs)
            },
        }
    with _replacing(scores) as new:
        pyarrow.parquet.write_table(table, new, compression="zstd", compression_level=19, row_group_size=len(table))
    with _replacing(target.with_name(f"{target.name}.json")) as new:
        new.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return True


def committed(name: str, folder: Path = SCORES) -> bool:
    """Whether a plan has scores."""
    return (folder / f"{name}.parquet").is_file()


def counted(name: str, folder: Path = SCORES) -> dict[str, int]:
    """How many photographs, or trials, each pair of a plan has scores of."""
    if not committed(name, folder):
        return {}
    found = {(row["pair"], row["item"]) for row in _rows(folder / f"{name}.parquet", ["pair", "item"])}
    return dict(Counter(pair for pair, _ in found))


@contextlib.contextmanager
def opened(name: str, folder: Path = SCORES, only: Sequence[str] | None = None) -> Iterator[Store]:
    """The committed scores of a plan as a run that can be read: what is in it belongs to the plan as it is today.

    Args:
        name: The plan.
        folder: Where the scores are.
        only: Labels of methods, to read these alone.
    """
    plan = plan_of(name)
    if only is not None:
        content = plan.model_dump(exclude_none=True)
        plan = Plan.model_validate(content | {"methods": [row for row in content["methods"] if row["label"] in only]})
    table, facts = folder / f"{name}.parquet", (folder / f"{name}.json").read_text(encoding="utf-8")
    yield _imported(plan.text, table, table.stat().st_mtime_ns, facts)


@cache
def _imported(plan_text: str, table: Path, written: int, facts_text: str) -> Store:
    """A run with committed scores in it, open until the process ends: one page reads it several times.

    When the table was written is no more than a part of the key: a table that is written anew is read anew.
    """
    plan, facts = parse_plan(plan_text), json.loads(facts_text)
    pairs = {pair.name: place for place, pair in enumerate(plan.pairs)}
    methods = {row.label: place for place, row in enumerate(plan.methods)}
    columns = ["pair", "method", "item", "seed", "kind", "unit"]
    units = {tuple(row[column] for column in columns) for row in _rows(table, columns)}
    links = [
        (pairs[pair], methods[method], item, seed, kind, unit)
        for pair, method, item, seed, kind, unit in sorted(units)
        if pair in pairs and method in methods
    ]
    layers = [facts["layers"].get(pair.name, []) for pair in plan.pairs]
    temporary = tempfile.TemporaryDirectory()
    atexit.register(temporary.cleanup)
    store = Store.create(Path(temporary.name) / table.stem, plan)
    atexit.register(store.close)
    store.commit(import_results(table))
    store.link(links, layers=layers)
    store.set_meta(versions=json.dumps(facts["versions"]))
    return store


def _rows(file: Path, columns: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(file, columns=columns).to_pylist()
    return rows


def _compact(table: Any) -> Any:
    """Without long curves, and with the paths of networks and data sets as the plans write them."""
    for name in _PORTABLE:
        values = [None if value is None else portable(value) for value in table.column(name).to_pylist()]
        table = table.set_column(table.schema.get_field_index(name), name, pyarrow.array(values, pyarrow.string()))
    long = [value is not None and value.count(",") >= _LONGEST for value in table.column("curve").to_pylist()]
    for name in ("curve", "fractions"):
        kept = [None if drop else value for drop, value in zip(long, table.column(name).to_pylist(), strict=True)]
        table = table.set_column(table.schema.get_field_index(name), name, pyarrow.array(kept, pyarrow.string()))
    return table


@contextlib.contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """A new file that takes the place of one once it is whole."""
    new = file.with_name(f".{file.name}")
    yield new
    os.replace(new, file)
