"""The page of a benchmark run: one HTML file with its table to sort and filter, down to every image.

from fei.bench import Store
from fei.bench.report.page import write_bench_page

with Store.open("runs/plan", readonly=True) as store:
    write_bench_page("report.html", store)
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fei import __version__
from fei.bench.report._notes import failure_notes
from fei.bench.report._page_numbers import column_documents, pair_document, protocols, table_columns
from fei.bench.report._page_pictures import LARGEST, pictures
from fei.bench.report.numbers import Numbers
from fei.bench.store import Store
from fei.common.files import write_file
from fei.methods import is_control
from fei.metrics import declared
from fei.report.shell import Page, document

__all__ = ["LARGEST", "bench_html", "write_bench_page"]

SCHEMA = 1
_TITLE = "FEI benchmark"
_SHELL = 200_000  # bytes of styles and code, generously
_PAGE = Page(
    name="bench",
    brand=_TITLE,
    skip="Skip to the table",
    help="A heading of a table sorts by it, with a click or with Enter; a second time the other way round.",
    scripts=("bench-data.js", "bench-state.js", "bench-table.js", "bench-images.js", "bench-unit.js", "bench.js"),
)


def bench_html(store: Store, numbers: Numbers | None = None) -> str:
    """The page of a run as one HTML document, styles, code and data inside.

    Pictures of maps that were kept are in it as far as it stays below `LARGEST` bytes; it says which were left out.

    Args:
        store: The run; it may be unfinished.
        numbers: Its numbers, if they were read already.
    """
    numbers = numbers or Numbers(store)
    payload = _payload(store, numbers)
    room = LARGEST - _SHELL - len(json.dumps(payload))
    payload["pictures"] = pictures(store, numbers, max(0, room))
    return document(_PAGE, f"{numbers.plan.name} · {_TITLE}", payload)


def write_bench_page(path: str | os.PathLike[str], store: Store, numbers: Numbers | None = None) -> Path:
    """Write the page of a run to a file, whole or not at all; arguments as for `bench_html`.

    Raises:
        InputError: If there is no such folder.
        DataError: If the disk refuses.
    """
    return write_file(Path(path), bench_html(store, numbers), what="page of the run")


def _payload(store: Store, numbers: Numbers) -> dict[str, Any]:
    plan, columns = numbers.plan, table_columns(numbers)
    counts = {
        status: sum(count for (_, each), count in numbers.counts.items() if each == status)
        for status in ("done", "failed", "waiting")
    }
    return {
        "schema": SCHEMA,
        "fei": __version__,
        "run": str(store.folder),
        "name": plan.name,
        "seeds": list(plan.seeds),
        "target": plan.target,
        "protocols": protocols(numbers),
        "columns": column_documents(numbers, columns),
        "metrics": {metric.score: metric.document() for metric in declared().values()},
        "methods": [
            {
                "label": method.label,
                "name": method.name,
                "group": method.group,
                "control": is_control(method.name),
                "ranked": row not in numbers.controls,
            }
            for row, method in enumerate(plan.methods)
        ],
        "pairs": [pair_document(store, numbers, pair, columns) for pair in range(len(plan.pairs))],
        "counts": counts,
        "failures": failure_notes(numbers, numbers.failures),
        "versions": store.versions,
        "created": store.meta("created"),
        "planKey": store.plan_key,
        "plan": plan.text,
    }
