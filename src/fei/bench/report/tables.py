"""The numbers of a run as tables, laid out as the paper's: methods down, networks, data sets and metrics across."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fei.bench.report._cells import Cell, Column, fill, known
from fei.bench.report._notes import notes
from fei.bench.report._written import csv_text, latex, markdown, tests_markdown
from fei.bench.report.numbers import COSTS, Numbers, Quantity, natural
from fei.errors import InputError
from fei.metrics.black_image import THRESHOLDS

if TYPE_CHECKING:
    from fei.bench.store import Store

_EXTERNAL, _INTERNAL = ("insertion", "deletion"), ("mse", "cosine")


@dataclass(frozen=True)
class TableRow:
    """A row of a table."""

    label: str
    group: str


@dataclass(frozen=True)
class Table:
    """A table of a run.

    Attributes:
        name: What its files are called.
        title: What is in it, in one line.
        pairs: The names of the plan's pairs.
        columns: Its columns.
        rows: Its rows, those of a group together.
        cells: For each row, its cells; None where there is no number.
        notes: What a reader must know, one sentence each.
        headings: Whether groups of rows have a heading.
    """

    name: str
    title: str
    pairs: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    cells: tuple[tuple[Cell | None, ...], ...]
    notes: tuple[str, ...]
    headings: bool = False

    def filled(self) -> Iterator[tuple[Column, TableRow, Cell]]:
        """The cells that have a number, column by column."""
        for column, cells in zip(self.columns, zip(*self.cells, strict=True), strict=True):
            yield from ((column, row, cell) for row, cell in zip(self.rows, cells, strict=True) if cell is not None)

    markdown = markdown
    tests = tests_markdown
    latex = latex
    csv = csv_text


def table(store: Store, layout: str, pair: int = 0) -> Table:
    """A table of a run.

    Args:
        store: The run.
        layout: "external", "internal", "layerwise", "black-image", "ablation", "sanity", or "plain" for all numbers.
        pair: For "layerwise" and "sanity", whose columns are a network's layers: the pair's place in the plan.

    Raises:
        InputError: If there is no such layout or pair, or the run has no numbers for it.
    """
    if layout not in _LAYOUTS:
        raise InputError(f"There is no table '{layout}'; choose one of {', '.join(_LAYOUTS)}.")
    if not 0 <= pair < len(store.plan.pairs):
        raise InputError(f"There is no pair {pair}; the plan has {len(store.plan.pairs)}, counted from 0.")
    made = _make(Numbers(store), layout, pair)
    if made is None:
        raise InputError(f"The run has no numbers for the table '{layout}'; let it compute them first.")
    return made


def tables(numbers: Numbers) -> list[Table]:
    """All tables that a run has numbers for."""
    made = []
    for layout, (_, per_pair) in _LAYOUTS.items():
        if layout == "ablation" and not _is_ablation(numbers):
            continue
        for pair in range(len(numbers.plan.pairs) if per_pair else 1):
            made += [found] if (found := _make(numbers, layout, pair)) is not None else []
    return made


def _make(numbers: Numbers, layout: str, pair: int) -> Table | None:
    build, per_pair = _LAYOUTS[layout]
    title, columns = build(numbers, pair)
    names = [each.name for each in numbers.plan.pairs]
    if per_pair and len(names) > 1:
        title, layout_name = f"{title}: {names[pair]}", f"{layout}-{pair + 1}"
    else:
        layout_name = layout
    rows = _rows(numbers, columns)
    cells = fill(numbers, columns, rows, against_first=layout == "ablation")
    filled = [index for index in range(len(columns)) if any(line[index] is not None for line in cells)]
    if not filled:
        return None
    columns = [columns[index] for index in filled]
    made = Table(
        name=layout_name,
        title=title,
        pairs=tuple(names),
        columns=tuple(columns),
        rows=tuple(TableRow(numbers.plan.methods[row].label, numbers.plan.methods[row].group) for row in rows),
        cells=tuple(tuple(line[index] for index in filled) for line in cells),
        notes=(),
        headings=layout == "ablation",
    )
    return replace(made, notes=notes(made, numbers, rows, against_first=layout == "ablation"))


# What the columns of each layout are


def _external(numbers: Numbers, pair: int) -> tuple[str, list[Column]]:
    protocols = numbers.protocols("map", "insertion")
    return "External faithfulness", [
        Column(
            (*heads, *([protocol] if len(protocols) > 1 else []), known(metric).heading),
            place,
            Quantity("map", metric, protocol),
        )
        for place, heads in enumerate(_pair_heads(numbers))
        for protocol in protocols
        for metric in _EXTERNAL
    ]


def _internal(numbers: Numbers, pair: int) -> tuple[str, list[Column]]:
    return "Internal faithfulness at the last feature layer", [
        Column((known(metric).heading, *heads), place, quantity)
        for metric in _INTERNAL
        for place, heads in enumerate(_pair_heads(numbers))
        for quantity in numbers.at_layers(place, metric)[-1:]
    ]


def _layerwise(numbers: Numbers, pair: int) -> tuple[str, list[Column]]:
    return "Internal faithfulness layer by layer", [
        Column((known(metric).heading, quantity.layer.removeprefix("network.")), pair, quantity)
        for metric in _INTERNAL
        for quantity in numbers.at_layers(pair, metric)
    ]


def _ablation(numbers: Numbers, pair: int) -> tuple[str, list[Column]]:
    return "Ablation", [
        Column((*(heads if len(numbers.plan.pairs) > 1 else ()), known(metric).heading), place, quantity)
        for place, heads in enumerate(_pair_heads(numbers))
        for metric in (*_EXTERNAL, *_INTERNAL)
        for quantity in numbers.at_layers(place, metric)[-1:]
    ]


def _black_image(numbers: Numbers, pair: int) -> tuple[str, list[Column]]:
    fired, phi = Quantity("black-image", "fired"), Quantity("black-image", "phi")
    columns = []
    for place, heads in enumerate(_pair_heads(numbers)):
        columns.append(Column((*heads, known("fired").heading), place, fired, share=True))
        columns += [
            Column((*heads, f"φ ≥ {level:g} {known('phi').arrow}"), place, phi, share=True, threshold=level)
            for level in THRESHOLDS
        ]
    return "Black-image test: share of trials in which a class is found in a black image", columns


def _sanity(numbers: Numbers, pair: int) -> tuple[str, list[Column]]:
    return "Similarity to the original map as layers are re-initialised", [
        Column((known(metric).heading, stage), pair, Quantity("sanity", metric, "", stage))
        for metric in ("ssim", "spearman")
        for stage in numbers.layers(pair, "sanity", metric)
    ]


def _plain(numbers: Numbers, pair: int) -> tuple[str, list[Column]]:
    columns = []
    for place, pair_heads in enumerate(_pair_heads(numbers)):
        found = [q for q in numbers.quantities[place] if q.kind == "map"]
        costs = [Quantity("map", metric) for metric in COSTS] if found else []
        for q in sorted(found, key=_order) + costs:
            details = [text for text in (q.protocol, q.layer.removeprefix("network.")) if text]
            columns.append(Column((*pair_heads, *details, known(q.metric, q.protocol).heading), place, q))
    levels = max((len(column.heads) for column in columns), default=0)
    padded = [(*heads[:-1], *[""] * (levels - len(heads)), heads[-1]) for heads in (each.heads for each in columns)]
    return "All numbers", [replace(column, heads=heads) for column, heads in zip(columns, padded, strict=True)]


_LAYOUTS: dict[str, tuple[Callable[[Numbers, int], tuple[str, list[Column]]], bool]] = {
    "external": (_external, False),
    "internal": (_internal, False),
    "layerwise": (_layerwise, True),
    "black-image": (_black_image, False),
    "ablation": (_ablation, False),
    "sanity": (_sanity, True),
    "plain": (_plain, False),
}


def _pair_heads(numbers: Numbers) -> list[tuple[str, ...]]:
    """The names of the pairs; where all are "data set, network", in two lines as in the paper."""
    parts = [tuple(pair.name.split(", ")) for pair in numbers.plan.pairs]
    return parts if len(parts) > 1 and all(len(part) == 2 for part in parts) else [(", ".join(p),) for p in parts]


def _order(quantity: Quantity) -> tuple[bool, str, list[tuple[int, int, str]], str]:
    return bool(quantity.layer), quantity.protocol, natural(quantity.layer), known(quantity.metric).title


def _is_ablation(numbers: Numbers) -> bool:
    """Whether the plan asks for an ablation, or all its rows are one method in several settings."""
    methods = numbers.plan.methods
    return numbers.plan.layout in ("ablation", "clipping-scope") or (
        len(methods) > 1 and len({method.name for method in methods}) == 1
    )


def _rows(numbers: Numbers, columns: Sequence[Column]) -> list[int]:
    """The methods that the plan asks for in these columns."""
    planned = {row for column in columns for row in numbers.planned(column.pair, column.quantity.kind)}
    return [row for row in numbers.rows if row in planned]
