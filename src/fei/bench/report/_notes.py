"""What stands under a table: how its numbers came about, and which are missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fei import protocols
from fei.bench.report._cells import LEVEL, known
from fei.bench.report._statistics import images_needed
from fei.bench.report.numbers import Failure, Numbers

if TYPE_CHECKING:
    from fei.bench.report.tables import Table

_SAME_ON_LINEAR_HEADS = {"gradcam", "xgradcam", "fgvce"}
_READ = 3  # digits after the point that a reader compares
_MOST_COLUMNS = 8  # for which the baselines are named
_MOST_NAMED = 3  # failed units of a method, with one reason


def notes(table: Table, numbers: Numbers, rows: Sequence[int], *, against_first: bool) -> tuple[str, ...]:
    """The notes under a table, one sentence or two each."""
    kinds = {column.quantity.kind for column in table.columns}
    found = [*_measured(table), *_spread(table), *_marks(table, numbers, rows), *_tests(table, against_first)]
    found += _equal(table, numbers, rows)
    if kinds == {"sanity"}:
        found.append("1 is the original map; a method that depends on the network's weights moves away from it.")
    if any(cell.short for _, _, cell in table.filled()):
        found.append("†: rests on fewer numbers than others in its column.")
    for quantity in dict.fromkeys(column.quantity for column in table.columns):
        if left := numbers.left_out[quantity]:
            found.append(f"{left} numbers of {known(quantity.metric).title} are NaN or infinite and were left out.")
    places = {(column.pair, column.quantity.kind) for column in table.columns}
    found += failure_notes(numbers, [failure for failure in numbers.failures if (failure.pair, failure.kind) in places])
    waiting = sum(count for (kind, status), count in numbers.counts.items() if status == "waiting" and kind in kinds)
    planned = sum(count for (kind, _), count in numbers.counts.items() if kind in kinds)
    if waiting:
        found.append(f"{waiting} of {planned} units are not computed yet.")
    return tuple(found)


def failure_notes(numbers: Numbers, failures: Iterable[Failure]) -> list[str]:
    """For each pair, method and reason how many units failed, and which."""
    groups: dict[tuple[int, int, str], list[Failure]] = {}
    for failure in failures:
        groups.setdefault((failure.pair, failure.method, failure.error), []).append(failure)
    texts = []
    for (pair, method, error), group in groups.items():
        units = "1 unit" if len(group) == 1 else f"{len(group)} units"
        named = "; ".join(f"{failure.item}, seed {failure.seed}" for failure in group[:_MOST_NAMED])
        more = f"; and {len(group) - _MOST_NAMED} more" if len(group) > _MOST_NAMED else ""
        label, name = numbers.plan.methods[method].label, numbers.plan.pairs[pair].name
        texts.append(f"Failed: {units} of {label} on {name} ({named}{more}): {error}")
    return texts


def _measured(table: Table) -> list[str]:
    """Under which protocol and, where the columns do not say so, at which layer."""
    texts = []
    used = {column.quantity.protocol for column in table.columns} - {""}
    if len(used) == 1:
        texts.append(f"Protocol {next(iter(used))}.")
    cautions = {name: protocols.get(name).caution for name in protocols.available() if name in used}
    texts += [f"Protocol {name}: {caution}." for name, caution in cautions.items() if caution]
    if table.name.split("-")[0] in ("internal", "ablation"):
        layers = {c.pair: c.quantity.layer.removeprefix("network.") for c in table.columns if c.quantity.layer}
        texts += [f"Layer {layer} of {table.pairs[pair]}." for pair, layer in layers.items()]
    return texts


def _spread(table: Table) -> list[str]:
    cells = [cell for _, _, cell in table.filled()]
    shares = all(column.share for column in table.columns)
    counts, seeds = _range(cell.estimate.images for cell in cells), _range(cell.estimate.seeds for cell in cells)
    if shares:
        return [f"Share of {counts} trials in per cent, with Wilson's 95 % interval."]
    images = "1 image" if counts == "1" else f"{counts} images"
    where = "; 95 % bootstrap intervals over the images are in the CSV file" if counts != "1" else ""
    if all(math.isnan(cell.estimate.std) for cell in cells):
        return [f"Mean over {images}, one seed{where}."]
    return [f"Mean ± standard deviation over {seeds} seeds, each of {images}{where}."]


def _marks(table: Table, numbers: Numbers, rows: Sequence[int]) -> list[str]:
    if not any(cell.place for _, _, cell in table.filled()):
        return []
    labels = [numbers.plan.methods[row].label for row in rows if row in numbers.controls]
    takes = "takes" if len(labels) == 1 else "take"
    control = f" {' and '.join(labels)} (no clipping: a control) {takes} no place." if labels else ""
    found = [f"Bold is the best of a column, underlined the second.{control}"]
    if numbers.reduced.intersection(rows):
        found.append(
            "Baselines with brackets at the end do less work than their authors' settings ask for: they take no place "
            "and nothing is compared with them."
        )
    return found


def _equal(table: Table, numbers: Numbers, rows: Sequence[int]) -> list[str]:
    """Which rows have the same numbers throughout, and why, where that is known."""
    groups: dict[tuple[float | None, ...], list[int]] = {}
    exact: dict[int, tuple[float | None, ...]] = {}
    for row, cells in zip(rows, table.cells, strict=True):
        exact[row] = tuple(None if cell is None else cell.estimate.mean for cell in cells)
        known = numbers.plan.methods[row].name in _SAME_ON_LINEAR_HEADS
        means = (mean if mean is None or not known else round(mean, _READ) for mean in exact[row])
        groups.setdefault(tuple(means), []).append(row)
    texts = []
    for alike in (group for means, group in groups.items() if len(group) > 1 and any(means)):
        methods = [numbers.plan.methods[row] for row in alike]
        why = "their maps rank the pixels in the same way"
        if {method.name for method in methods} <= _SAME_ON_LINEAR_HEADS:
            why = "on a network that ends in pooling and one linear layer they are the same map, whatever the image"
            why += "" if len({exact[row] for row in alike}) == 1 else ", and nearly so on one that nearly does"
        texts.append(f"{' and '.join(method.label for method in methods)} have equal numbers: {why}.")
    return texts


def _tests(table: Table, against_first: bool) -> list[str]:
    tests = [(column, cell.test) for column, _, cell in table.filled() if cell.test is not None]
    if not tests:
        return []
    against: dict[str, dict[str, None]] = {}
    for column, test in tests:
        against.setdefault(test.against, {})[", ".join(column.heads)] = None
    if against_first:
        other = f"the first row ({next(iter(against))})"
    elif len(table.columns) > _MOST_COLUMNS:
        other = "the best baseline of the column, which the CSV file names"
    elif len(against) == 1:
        other = f"{next(iter(against))}, the best baseline of each column"
    else:
        listed = "; ".join(f"{label}: {' / '.join(names)}" for label, names in against.items())
        other = f"the best baseline of the column ({listed})"
    note = (
        f"Marked + and −: better and worse than {other}; Wilcoxon's signed-rank test over the images, two-sided, "
        f"p < {LEVEL} after Holm's correction for the {len(tests)} tests of this table."
    )
    needed = images_needed(len(tests), LEVEL)
    if max(test.images for _, test in tests) < needed:
        note += f" With so few images nothing can be marked: it takes {needed} at least."
    return [note]


def _range(counts: Iterable[int]) -> str:
    low, *rest = sorted(set(counts))
    return f"{low} to {rest[-1]}" if rest else str(low)
