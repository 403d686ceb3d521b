"""Damaged exports of a run: Parquet and CSV, as `--reuse` takes them."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

import pyarrow
import pyarrow.parquet
from _fuzz_mutate import mutate_bytes, mutate_text, odd_string, odd_value
from _fuzz_runs import PLAN, run_files
from _fuzz_worker import MEBIBYTE, Case

from fei.bench.plan import parse_plan
from fei.bench.store import Store
from fei.bench.store.exchange import COLUMNS, export, import_results


class Exports:
    """Tables of `fei bench export`, as `--reuse` takes them."""

    name = "exports"
    max_bytes = 256 * MEBIBYTE

    def valid(self) -> Sequence[Case]:
        """The whole tables."""
        return [Case({name: content}, name, (name, "keep")) for name, content in tables_of_run().items()]

    def make(self, rng: Random) -> Case:
        """A table with damaged cells or bytes."""
        name = rng.choice(("run.csv", "run.csv", "run.parquet"))
        content, then = tables_of_run()[name], rng.choice(("read", "read", "read", "keep"))
        chance = rng.random()
        if chance < 0.3:
            changed = mutate_bytes(rng, content)
        elif name == "run.csv":
            changed = mutate_text(rng, content.decode(), [odd_string(rng), *COLUMNS, '"', ","])
        else:
            changed = _change_table(rng, content)
        return Case({name: changed}, name, (name, then))

    def read(self, folder: Path, ask: tuple[str, ...]) -> None:
        """Read it as outcomes, and perhaps keep these in a run."""
        found = list(import_results(folder / ask[0]))
        if ask[1] == "keep":
            with Store.create(folder / "run", parse_plan(PLAN)) as store:
                store.commit(found)


@cache
def tables_of_run() -> dict[str, bytes]:
    """The run's exports."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in run_files().items():
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).write_bytes(content)
        with Store.open(Path(folder), readonly=True) as store:
            files = [Path(folder) / name for name in ("run.csv", "run.parquet")]
            for file in files:
                export(store, file)
        return {file.name: file.read_bytes() for file in files}


def _change_table(rng: Random, content: bytes) -> bytes:
    """Another value, or another type, in a column of the Parquet table."""
    table = pyarrow.parquet.read_table(io.BytesIO(content))
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(table.column_names)
        place, action = table.column_names.index(name), rng.randrange(4)
        if action == 0:
            table = table.remove_column(place)
        elif action == 1:
            table = table.rename_columns([odd_string(rng) if other == name else other for other in table.column_names])
        else:
            value = odd_value(rng)
            try:
                table = table.set_column(place, name, pyarrow.array([value] * table.num_rows))
            except (pyarrow.ArrowException, OverflowError, TypeError):
                table = table.slice(0, rng.randint(0, 3))
    stream = io.BytesIO()
    try:
        pyarrow.parquet.write_table(table, stream, compression=rng.choice(("snappy", "gzip", "zstd", "none")))
    except pyarrow.ArrowException:  # a structure without fields has no form in Parquet
        return mutate_bytes(rng, content)
    return stream.getvalue()
