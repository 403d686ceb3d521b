"""Runs and other programs, runs and runs: tables in Parquet or CSV, and two runs made one."""

from __future__ import annotations

import csv
import importlib
import io
import math
from collections.abc import Container, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from fei.bench.store._diff import Difference, diff
from fei.bench.store._merge import merge
from fei.bench.store._store import Store
from fei.bench.store.outcomes import curve_values, stored_outcomes
from fei.bench.units import KEPT, Outcome, Score, StoredCurve
from fei.common.files import replacing
from fei.common.packages import need
from fei.common.words import from_spreadsheet_cell, spreadsheet_cell
from fei.data.files import MAX_LIST_BYTES
from fei.errors import DataError, InputError, PackageError

__all__ = ["COLUMNS", "Difference", "diff", "export", "import_results", "merge", "outcomes_of", "stored_outcomes"]

# What an export holds: the view `results`, the curve behind a score, and what it takes to know a unit again.
COLUMNS: dict[str, type] = {
    **dict.fromkeys(("pair", "method", "item"), str), "seed": int,
    **dict.fromkeys(("kind", "metric", "protocol", "layer"), str), "value": float,
    **dict.fromkeys(("fractions", "curve", "status", "error", "group", "method_name", "config", "model", "data"), str),
    "target": int, "label": str, "probability": float, "correct": int, "seconds": float,
    **dict.fromkeys(("forwards", "backwards", "peak_bytes", "threads", "attempts"), int),
    **dict.fromkeys(("finished", "unit", "groups"), str),
}  # fmt: skip
_NEVER_NULL = frozenset({"protocol", "layer", "data", "group"})  # trials on black images have no data
_NEEDED = frozenset({"unit", "item", "seed", "kind", "status", "method_name", "config", "model"})
_ELSEWHERE = {
    "fractions": "c.fractions",
    "curve": 'c."values"',
    "method_name": "u.method",
    "groups": "(SELECT group_concat(name, char(10)) FROM groups WHERE unit = r.unit)",
}
_SELECTED = ", ".join('{} AS "{}"'.format(_ELSEWHERE.get(name, f'r."{name}"'), name) for name in COLUMNS)
_QUERY = f"""
    SELECT {_SELECTED}
    FROM results r JOIN units u ON u.key = r.unit
    LEFT JOIN curves c ON c.unit = r.unit AND c.protocol = r.protocol AND c.name = r.metric AND r.layer = ''
    WHERE r.pair_index = ? AND r.method_index = ?
    ORDER BY r.kind, r.item, r.seed, r.unit, r.metric, r.protocol, r.layer"""  # noqa: S608
_Row = dict[str, Any]
_ROWS = 1024  # read at once


def export(store: Store, path: str | Path) -> int:
    """Write the scores of a run as one flat table: a row for each score of each unit of the plan.

    Args:
        store: The run.
        path: A file that ends in .parquet or .csv; replaced if it is there.

    Returns:
        How many rows were written.

    Raises:
        InputError: If the ending is another one, or the folder is not there.
        DataError: If the disk refuses.
        PackageError: If pyarrow is needed and not installed.
    """
    file = Path(path)
    write = {".parquet": _write_parquet, ".csv": _write_csv}.get(file.suffix.lower())
    if write is None:
        raise InputError(f"'{file}' ends in neither .parquet nor .csv; give a file that does.")
    if not file.parent.is_dir():
        raise InputError(f"There is no folder '{file.parent}' to write '{file.name}' to; make it first.")
    rows = 0

    def parts() -> Iterator[list[tuple[Any, ...]]]:
        nonlocal rows
        for pair, method in store.rows("SELECT DISTINCT pair, method FROM plan_units ORDER BY pair, method"):
            part = store.rows(_QUERY, (pair, method))
            rows += len(part)
            yield part

    try:
        with replacing(file) as stream:
            write(stream, parts())
    except OSError as error:
        raise DataError(f"'{file}' cannot be written ({error.strerror or error}); choose another place.") from error
    return rows


def import_results(path: str | Path) -> Iterator[Outcome]:
    """The outcomes in a table that `export` wrote; a unit that two rows of the plan share comes twice.

    Maps are not in such a table: where a plan wants them kept, they are computed anew.

    Args:
        path: The .parquet or .csv file.

    Yields:
        The outcomes, in the order of the file.

    Raises:
        InputError: If there is no such file.
        DataError: If it is none that `export` wrote.
    """
    file = Path(path)
    read = {".parquet": _read_parquet, ".csv": _read_csv}.get(file.suffix.lower())
    if read is None or not file.is_file():
        raise InputError(f"There is no exported table '{file}'; give a .parquet or .csv file of 'fei bench export'.")
    try:
        for _, rows in groupby(map(_checked, read(file)), key=lambda row: row["unit"]):
            yield _outcome(list(rows))
    except (DataError, PackageError):
        raise
    except Exception as error:  # on a damaged file pyarrow raises nearly anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise DataError(f"'{file}' is no table of 'fei bench export' ({reason}); export the run again.") from error


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
    if not path.is_dir():
        yield from (outcome for outcome in import_results(path) if outcome.key in wanted)
        return
    with Store.open(path, readonly=True) as store:
        keys = [key for (key,) in store.rows("SELECT DISTINCT unit FROM groups") if key in wanted]
        yield from stored_outcomes(store, keys, maps=True)


def _checked(row: _Row) -> _Row:
    """The row, if a run can keep it, with an empty text where a pair has no data; a ValueError else."""
    row |= {name: "" for name in _NEVER_NULL if row[name] is None}
    for name, kind in COLUMNS.items():
        value = row[name]
        if value is None and name in _NEEDED:
            raise ValueError(f"a row has no {name}")
        if value is not None and not isinstance(value, (int, float) if kind is float else kind):
            raise ValueError(f"a row has {value!r:.60} for {name}")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(f"a row has a number of more than 64 bits for {name}")
    return row


def _outcome(rows: list[_Row]) -> Outcome:
    """The outcome that the rows of one unit tell of."""
    first = rows[0]
    same = {name: first[name] for name in COLUMNS.keys() & set(Outcome.__dataclass_fields__) - {"groups", "method"}}
    scores: dict[tuple[str, str, str], Score] = {}
    curves: dict[tuple[str, str], StoredCurve] = {}
    for row in rows:
        where = (row["metric"], row["protocol"], row["layer"])
        if row["metric"] is None:
            continue
        scores[where] = (*where, math.nan if row["value"] is None else row["value"])  # SQLite has no other NaN
        if row["curve"] is not None:
            named = (row["protocol"], row["metric"])
            curves[named] = (*named, curve_values(row["fractions"]), curve_values(row["curve"]))
    return Outcome(
        **same | {"correct": None if first["correct"] is None else bool(first["correct"])},
        key=first["unit"],
        method=first["method_name"],
        scores=tuple(scores.values()),
        curves=tuple(curves.values()),
        groups=tuple(name for name in (first["groups"] or "").splitlines() if name != KEPT),
    )


def _write_csv(stream: BinaryIO, parts: Iterable[list[tuple[Any, ...]]]) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    table = csv.writer(text)  # floats are written so that they are read as the same ones
    table.writerow(COLUMNS)
    for part in parts:
        table.writerows([spreadsheet_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in part)
    text.detach()


def _read_csv(file: Path) -> Iterator[_Row]:
    limit = csv.field_size_limit(2**31 - 1)  # of the whole process: a curve of many points is one long field
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                yield {name: _value(name, kind, row[name]) for name, kind in COLUMNS.items()}
    finally:
        csv.field_size_limit(limit)


def _value(name: str, kind: type, text: str) -> Any:
    if text == "":
        return text if name in _NEVER_NULL else None
    return from_spreadsheet_cell(text) if kind is str else kind(text)


def _write_parquet(stream: BinaryIO, parts: Iterable[list[tuple[Any, ...]]]) -> None:
    arrow = _arrow()
    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    schema = arrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    with arrow.parquet.ParquetWriter(stream, schema) as table:
        for part in parts:
            columns = zip(*part, strict=True) if part else ([] for _ in COLUMNS)
            table.write_table(arrow.table([list(column) for column in columns], schema=schema))


def _read_parquet(file: Path) -> Iterator[_Row]:
    """The rows. A text that many of them have is kept once: a few bytes of a file can give it to every row."""
    arrow = _arrow()
    texts = [name for name, kind in COLUMNS.items() if kind is str]
    with arrow.parquet.ParquetFile(file, read_dictionary=texts) as table:
        if table.metadata.num_rows > file.stat().st_size:
            raise ValueError("it has more rows than bytes")
        if sum(table.metadata.row_group(i).total_byte_size for i in range(table.num_row_groups)) > MAX_LIST_BYTES:
            raise ValueError(f"it unpacks to more than {MAX_LIST_BYTES // 1_000_000} MB")
        for batch in table.iter_batches(_ROWS, columns=list(COLUMNS)):
            yield from (
                dict(zip(COLUMNS, row, strict=True)) for row in zip(*map(_cells, _in_order(batch)), strict=True)
            )


def _in_order(batch: Any) -> Iterator[Any]:
    return (batch.column(batch.schema.get_field_index(name)) for name in COLUMNS)


def _cells(column: Any) -> list[Any]:
    """The values of a column."""
    if not hasattr(column, "dictionary"):
        return list(column.to_pylist())
    texts = column.dictionary.to_pylist()
    return [None if index is None else texts[index] for index in column.indices.to_pylist()]


def _arrow() -> Any:
    need("A Parquet file", "parquet", "pyarrow")
    importlib.import_module("pyarrow.parquet")
    return importlib.import_module("pyarrow")
