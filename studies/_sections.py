"""The sections of docs/results.md: tables by the benchmark's own code, verdicts, and the words of prose.toml."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from studies import _protocols, _steps
from studies._hypotheses import HYPOTHESES, Hypothesis, Study, black_images, values
from studies._verdicts import NO, OPEN, YES, Comparison

from fei.bench.report._cells import LEVEL, known
from fei.bench.report._statistics import images_needed
from fei.bench.report.numbers import Numbers, Quantity
from fei.bench.report.tables import Table, table
from fei.bench.store import Store
from fei.common.words import in_markdown

Prose = Mapping[str, Any]
_UNWRITTEN = "*(still to be written)*"
_FEW = 6  # comparisons that need no folding


def words(prose: Prose, name: str) -> str:
    """A block of prose."""
    text: str = prose[name]
    return (text.strip() or _UNWRITTEN) + "\n"


def bench_table(store: Store, layout: str) -> str:
    """A table of the benchmark, its notes, and its paired tests folded away, where any could be significant.

    It has intervals over the photographs; with several seeds it shows the spread over these and folds the intervals.
    """
    made = table(store, layout)
    seeds = len(store.plan.seeds) > 1
    parts = [made.markdown(intervals=not seeds), "\n".join(f"- {in_markdown(note)}" for note in _notes(made))]
    if seeds:
        parts.append(f"<details><summary>95 % intervals</summary>\n\n{made.markdown(intervals=True)}\n</details>")
    if _could_tell_apart(made):
        parts.append(f"<details><summary>Paired tests</summary>\n\n{made.tests()}\n</details>")
    return "\n".join(parts) + "\n"


def _notes(made: Table) -> list[str]:
    """A table's notes; here intervals are in the table or below it, and there is no CSV file."""
    return [
        note.replace(
            "; 95 % bootstrap intervals over the images are in the CSV file", ", with 95 % bootstrap intervals"
        ).replace(", which the CSV file names", "")
        for note in made.notes
    ]


def _could_tell_apart(made: Table) -> bool:
    """Whether a table has tests and images enough for any of them to be significant."""
    tests = [cell.test for line in made.cells for cell in line if cell is not None and cell.test is not None]
    return bool(tests) and max(test.images for test in tests) >= images_needed(len(tests), LEVEL)


def shape_table(numbers: Numbers) -> str:
    """How concentrated and how rough maps are."""
    pairs = [pair.name for pair in numbers.plan.pairs]
    heads = [f"{pair}<br>{name}" for pair in pairs for name in ("Gini", "rank variation")]
    lines = [f"| method | {' | '.join(heads)} |", "| :-- |" + " --: |" * len(heads)]
    for row in numbers.rows:
        found = [
            numbers.estimate(pair, row, Quantity("map", metric))
            for pair in range(len(pairs))
            for metric in ("gini", "rank_tv")
        ]
        cells = ["–" if e is None else f"{e.mean:.3f}" for e in found]
        lines.append(f"| {in_markdown(numbers.plan.methods[row].label)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def localization_table(numbers: Numbers) -> str:
    """Whether maps point at the object: means over the photographs with 95 % intervals; scores of before marked."""
    heads = {"pointing-2": "pointing game ↑", "pointing": "pointing game ↑ (raster order)", "energy": "energy in box ↑"}
    found = {quantity.metric for quantity in numbers.quantities[0]}
    names = [name for name in heads if name in found and not (name == "pointing" and "pointing-2" in found)]
    lines = [f"| method | {' | '.join(heads[name] for name in names)} |", "| :-- |" + " --: |" * len(names)]
    for row in numbers.rows:
        each = [numbers.estimate(0, row, Quantity("map", name)) for name in names]
        cells = ["–" if e is None else f"{e.mean:.3f} [{e.low:.3f}, {e.high:.3f}]" for e in each]
        lines.append(f"| {in_markdown(numbers.plan.methods[row].label)} | {' | '.join(map(in_markdown, cells))} |")
    return "\n".join(lines) + "\n"


def sanity_table(numbers: Numbers) -> str:
    """Similarity to the original map after the first of the cascade's stages, and along the rest of it."""
    stages = numbers.layers(0, "sanity", "ssim")
    few = sorted({max(1, len(stages) * eighths // 8) for eighths in (0, 1, 2, 4, 6, 8)})
    heads = [f"{name}<br>{number} of {len(stages)}" for name in ("SSIM", "Spearman") for number in few]
    lines = [f"| method | {' | '.join(heads)} |", "| :-- |" + " --: |" * len(heads)]
    for row in numbers.rows:
        found = [
            numbers.estimate(0, row, Quantity("sanity", metric, "", stages[number - 1]))
            for metric in ("ssim", "spearman")
            for number in few
        ]
        cells = ["–" if each is None else f"{each.mean:.2f}" for each in found]
        lines.append(f"| {in_markdown(numbers.plan.methods[row].label)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def summary_table(study: Study) -> str:
    """Every claim with its verdict."""
    lines = ["| | claim | verdict | comparisons: yes, no, open |", "| :-- | :-- | :-- | --: |"]
    for hypothesis in HYPOTHESES:
        found = hypothesis.comparisons(study)
        lines.append(f"| {hypothesis.name} | {hypothesis.claim} | **{hypothesis.verdict(study)}** | {_counts(found)} |")
    return "\n".join(lines) + "\n"


def hypothesis_section(hypothesis: Hypothesis, study: Study, prose: Prose) -> str:
    """A claim: how it was tested, what the paper reports, our numbers, the verdict and what we make of it."""
    found = hypothesis.comparisons(study)
    parts = [
        f"### {hypothesis.name}: {hypothesis.verdict(study)}\n",
        f"*{hypothesis.claim}* {hypothesis.tested}\n",
        f"- The paper: {hypothesis.paper}",
        f"- Here: {len(found)} comparisons; {_counts(found)} (yes, no, open).",
        f"- Why we think so: {words(prose['why'], hypothesis.name)}",
    ]
    if found:
        listed = _comparisons(found)
        parts.append(
            listed
            if len(found) <= _FEW
            else f"<details><summary>The {len(found)} comparisons</summary>\n\n{listed}\n</details>\n"
        )
    return "\n".join(parts)


def _comparisons(found: list[Comparison]) -> str:
    lines = ["| where | what | difference, above 0 as claimed | n | answer |", "| :-- | :-- | --: | --: | :-- |"]
    if any(each.margin for each in found):
        lines[0] = "| where | what | difference, above 0 is better (margin) | n | equal? |"
    for each in found:
        digits = 1 if abs(each.difference) >= 10 else 3
        text = _steps.signed(each.difference, each.low, each.high, digits)
        text += f" (±{each.margin:.{digits}f})" if each.margin else ""
        lines.append(f"| {each.where} | {in_markdown(each.what)} | {text} | {each.count} | {each.answer} |")
    return "\n".join(lines) + "\n"


def _counts(found: list[Comparison]) -> str:
    answers = [each.answer for each in found]
    return ", ".join(str(answers.count(answer)) for answer in (YES, NO, OPEN))


def variants_table(study: Study) -> str:
    """The variants of FEI side by side: mean places among them over all networks, and how often they fire on black."""
    names = [f"FEI-{name}" for name in ("VM", "IVM", "AVM", "IBM", "NONE")]
    metrics = {"insertion": True, "deletion": False, "mse": False, "cosine": True}
    places: dict[str, dict[str, list[int]]] = {name: {metric: [] for metric in metrics} for name in names}
    networks = 0
    for plan in ("twenty", "resnet50", "googlenet", "cub"):
        for pair in range(len(study[plan].plan.pairs) if plan in study else 0):
            networks += 1
            for metric, higher in metrics.items():
                means = _means(study[plan], pair, names, metric)
                ordered = sorted(means, key=means.__getitem__, reverse=higher)
                for place, name in enumerate(ordered):
                    places[name][metric].append(place + 1)
    heads = " | ".join(f"place in {known(metric).title}" for metric in metrics)
    lines = [
        f"| variant | {heads} | fires on black |",
        "| :-- |" + " --: |" * (len(metrics) + 1),
    ]
    for name in names:
        cells = [_mean_place(places[name][metric]) for metric in metrics]
        lines.append(f"| {name} | {' | '.join(cells)} | {_fires(study, name)} |")
    note = f"Mean place among these five (1 is best) over {networks} networks; trials on black images added up.\n"
    return "\n".join(lines) + "\n\n" + note


def _means(numbers: Numbers, pair: int, names: list[str], metric: str) -> dict[str, float]:
    labels = [row.label for row in numbers.plan.methods]
    found = {}
    for name in names:
        estimate = numbers.estimate(pair, labels.index(name), _steps.quantity(numbers, pair, metric))
        if estimate is not None:
            found[name] = estimate.mean
    return found


def _mean_place(places: list[int]) -> str:
    return f"{sum(places) / len(places):.1f}" if places else "–"


def _fires(study: Study, name: str) -> str:
    found = [values(numbers, pair, name, "fired") for numbers, pair in black_images(study)]
    fired = [value for each in found if each is not None for value in each.ravel() if not math.isnan(value)]
    return f"{sum(fired):.0f} of {len(fired)}" if fired else "–"


def protocol_section(numbers: Numbers) -> Iterator[str]:
    """Rank correlations between protocols, and the places of the methods."""
    yield "Rank correlation of the methods' means between two protocols, and the range over single photographs:\n"
    yield _protocols.correlation_table(numbers)
    yield "<details><summary>The places of the methods</summary>\n"
    yield _protocols.rank_table(numbers) + "\n</details>\n"
