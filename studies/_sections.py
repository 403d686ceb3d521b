"""Parts of the study's pages: tables of the benchmark with captions, verdicts, and the words of prose.toml."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from studies import _steps
from studies._editions import FAST, PRESETS, Study, measured, planned, variants
from studies._editions import black_images as black_places
from studies._effects import effects_table
from studies._hypotheses import HYPOTHESES, Hypothesis
from studies._questions import Extra, questions
from studies._verdicts import NO, OPEN, YES, Comparison, verdict

from fei.bench.plan import Plan
from fei.bench.report._cells import LEVEL, known
from fei.bench.report._statistics import images_needed
from fei.bench.report.numbers import Numbers, Quantity
from fei.bench.report.tables import Table, table
from fei.bench.store import Store
from fei.common.words import in_markdown

Prose = Mapping[str, Any]
_UNWRITTEN = "*(still to be written)*"
# Layouts of tables: what they are called, and the metric without which there is nothing to show.
_LAYOUTS = {
    "external": ("From outside", "insertion"),
    "internal": ("Inside, at the last feature layer", "mse"),
    "layerwise": ("Layer by layer", "mse"),
    "ablation": ("The rows", "insertion"),
    "black-image": ("Share of trials", "fired"),
}
_PER_NETWORK = ("layerwise",)


@dataclass(frozen=True)
class Found:
    """All that the pages are made from.

    Attributes:
        stores: The plans that have scores.
        study: Their numbers.
        extra: Scores of what no plan can compute.
        prose: The words of prose.toml.
        docs: Where the pages are; they show the pictures that are there.
    """

    stores: Mapping[str, Store]
    study: Study
    extra: Extra
    prose: Prose
    docs: Path

    @cached_property
    def claims(self) -> dict[str, Hypothesis]:
        """The paper's claims and our questions, by name."""
        return {each.name: each for each in (*HYPOTHESES, *questions(self.extra))}

    @cached_property
    def compared(self) -> dict[str, dict[str, list[Comparison]]]:
        """The comparisons of each claim, by preset; only of presets with which there are any."""
        every = {
            name: {preset: claim.comparisons(self.study, (preset,)) for preset in PRESETS}
            for name, claim in self.claims.items()
        }
        return {name: {preset: each for preset, each in made.items() if each} for name, made in every.items()}

    def comparisons(self, name: str) -> list[Comparison]:
        """All comparisons of a claim."""
        return [each for made in self.compared[name].values() for each in made]


def words(prose: Prose, name: str) -> str:
    """A block of prose."""
    text: str = prose[name]
    return (text.strip() or _UNWRITTEN) + "\n"


def later(prose: Prose, name: str) -> str:
    """Words about the second edition, where they are written."""
    text: str = prose["second"].get(name, "")
    return f"{text.strip()}\n" if text.strip() else ""


def folded(summary: str, text: str) -> str:
    """Text that opens at a click."""
    plain = re.sub(r"`([^`]+)`", r"<code>\1</code>", summary)  # no Markdown is read in a summary
    return f"<details><summary>{plain}</summary>\n\n{text.rstrip()}\n\n</details>\n"


def caption(numbers: Numbers) -> str:
    """On how many photographs or trials of how many, with which presets and seeds, a table rests."""
    plan = numbers.plan
    what = "trials" if plan.black_image is not None else "photographs"
    each = []
    for pair, network in enumerate(plan.pairs):
        n, of = measured(numbers, pair), planned(numbers, pair)
        each.append(f"{network.name} {n}" if n >= of else f"{network.name} {n} of {of} so far")
    seeds = "seed 0" if len(plan.seeds) == 1 else f"{len(plan.seeds)} seeds"
    return f"*n ({what}): {'; '.join(each)}. {_presets(plan)}{seeds}.*\n"


def _presets(plan: Plan) -> str:
    """The presets of a plan's rows of FEI."""
    used = {
        row.options.get("preset", FAST if row.name != "fei" else "fei") for row in plan.methods if _is_fei(row.name)
    }
    names = ", ".join(f"`{preset}`" for preset in sorted(used))
    return f"FEI's preset{'s' if len(used) > 1 else ''}: {names}; " if used else ""


def _is_fei(name: str) -> bool:
    return name == "fei" or name.startswith(("fei-", "studies."))


def plan_section(found: Found, name: str, title: str, *layouts: str, text: str = "") -> Iterator[str]:
    """A plan's tables, folded, below its caption; a sentence with the command where there are no scores yet."""
    yield f"### {title}\n"
    if text:
        yield text
    if name not in found.stores:
        yield not_computed(name)
        return
    numbers = found.study[name]
    yield caption(numbers)
    for layout in layouts:
        heading, metric = _LAYOUTS[layout]
        known = [pair for pair, each in enumerate(numbers.quantities) if metric in {one.metric for one in each}]
        for pair in known if layout in _PER_NETWORK else known[:1]:
            named = f"{heading}: {numbers.plan.pairs[pair].name}" if layout in _PER_NETWORK else heading
            yield folded(named, bench_table(found.stores[name], layout, pair))


def not_computed(*plans: str) -> str:
    """What stands where plans have no scores yet."""
    return f"Not computed yet; `python -m studies.run --only {' '.join(plans)}` computes it.\n"


def bench_table(store: Store, layout: str, pair: int = 0) -> str:
    """A table of the benchmark, its notes, and its paired tests folded away, where any could be significant.

    It has intervals over the photographs; with several seeds it shows the spread over these and folds the intervals.
    """
    made = table(store, layout, pair)
    seeds = len(store.plan.seeds) > 1
    parts = [made.markdown(intervals=not seeds), "\n".join(f"- {in_markdown(note)}" for note in _notes(made))]
    if seeds:
        parts.append(folded("95 % intervals", made.markdown(intervals=True)))
    if _could_tell_apart(made):
        parts.append(folded("Paired tests", made.tests()))
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


def localization_table(numbers: Numbers, pair: int = 0) -> str:
    """Whether maps point at the object: means over the photographs with 95 % intervals; scores of before marked."""
    heads = {"pointing-2": "pointing game ↑", "pointing": "pointing game ↑ (raster order)", "energy": "energy in box ↑"}
    found = {quantity.metric for quantity in numbers.quantities[pair]}
    names = [name for name in heads if name in found and not (name == "pointing" and "pointing-2" in found)]
    return _plain_means(numbers, pair, {name: heads[name] for name in names}, 3)


def sanity_table(numbers: Numbers, pair: int = 0) -> str:
    """Similarity to the original map after the first of the cascade's stages, and along the rest of it."""
    stages = numbers.layers(pair, "sanity", "ssim")
    few = sorted({max(1, len(stages) * eighths // 8) for eighths in (0, 1, 2, 4, 6, 8)})
    heads = [f"{name}<br>{number} of {len(stages)}" for name in ("SSIM", "Spearman") for number in few]
    lines = [f"| method | {' | '.join(heads)} |", "| :-- |" + " --: |" * len(heads)]
    for row in numbers.rows:
        found = [
            numbers.estimate(pair, row, Quantity("sanity", metric, "", stages[number - 1]))
            for metric in ("ssim", "spearman")
            for number in few
        ]
        cells = ["–" if each is None else f"{each.mean:.2f}" for each in found]
        if any(found):
            lines.append(f"| {in_markdown(numbers.plan.methods[row].label)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def sensitivity_table(numbers: Numbers, pair: int) -> str:
    """How alike the maps of two seeds and of two classes are: means over the photographs with 95 % intervals."""
    return _plain_means(
        numbers, pair, {name: known(name).title for name in ("stability", "random_class", "runner_up")}, 2
    )


def _plain_means(numbers: Numbers, pair: int, heads: dict[str, str], places: int) -> str:
    """Metrics of maps that have neither protocol nor layer, as means with 95 % intervals."""
    lines = [f"| method | {' | '.join(heads.values())} |", "| :-- |" + " --: |" * len(heads)]
    for row in numbers.rows:
        each = [numbers.estimate(pair, row, Quantity("map", name)) for name in heads]
        cells = ["–" if e is None else f"{e.mean:.{places}f} [{e.low:.{places}f}, {e.high:.{places}f}]" for e in each]
        if any(each):
            lines.append(f"| {in_markdown(numbers.plan.methods[row].label)} | {' | '.join(map(in_markdown, cells))} |")
    return "\n".join(lines) + "\n"


def summary_table(found: Found) -> str:
    """Every claim of the paper with its verdict."""
    lines = ["| | claim | verdict | comparisons: yes, no, open |", "| :-- | :-- | :-- | --: |"]
    for claim in HYPOTHESES:
        compared = found.comparisons(claim.name)
        lines.append(f"| {claim.name} | {claim.claim} | **{verdict(compared)}** | {counts(compared)} |")
    return "\n".join(lines) + "\n"


def claim_section(found: Found, name: str) -> str:
    """A claim: how it was tested, what the paper reports, our numbers, the verdict and what we make of it."""
    claim, compared = found.claims[name], found.comparisons(name)
    parts = [
        f'<a id="{name.lower()}"></a>\n',
        f"### {name}: {verdict(compared)}\n",
        f"*{claim.claim}* {claim.tested}\n",
        f"- The paper: {claim.paper}",
        f"- Here: {len(compared)} comparisons; {counts(compared)} (yes, no, open){_by_preset(found.compared[name])}.",
    ]
    if name in found.prose["why"]:
        parts.append(f"- Why we think so: {words(found.prose['why'], name)}")
    else:
        parts.append("")
    if effects := effects_table(name, found.study):
        parts.append(folded("Effect sizes, beside the paper's", f"{effects}\n{_RATIOS}"))
    if compared:
        parts.append(folded(f"The {len(compared)} comparisons", _comparisons(compared)))
    return "\n".join(parts)


_RATIOS = (
    "Ratios of means over photographs, with 95 % bootstrap intervals over these; over several networks the geometric "
    "mean. The paper's ratios are of the means in its tables; without its photographs they have no interval."
)


def _by_preset(compared: Mapping[str, list[Comparison]]) -> str:
    """The verdict with each preset, where both were used."""
    told = "; ".join(f"`{preset}` {verdict(each)} ({counts(each)})" for preset, each in compared.items())
    return f". By preset: {told}" if len(compared) > 1 else f", with the preset {told.split()[0]}" if told else ""


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


def counts(found: list[Comparison]) -> str:
    answers = [each.answer for each in found]
    return ", ".join(str(answers.count(answer)) for answer in (YES, NO, OPEN))


def variants_table(study: Study) -> str:
    """The variants of FEI side by side: mean places among them over all networks, and how often they fire on black."""
    names = [f"FEI-{name}" for name in ("VM", "IVM", "AVM", "IBM", "NONE")]
    metrics = {"insertion": True, "deletion": False, "mse": False, "cosine": True}
    ranked: dict[str, dict[str, list[int]]] = {name: {metric: [] for metric in metrics} for name in names}
    networks = variants(study, FAST)
    for place in networks:
        for metric, higher in metrics.items():
            means = _means(place.numbers, place.pair, names, metric)
            for number, name in enumerate(sorted(means, key=means.__getitem__, reverse=higher)):
                ranked[name][metric].append(number + 1)
    heads = " | ".join(f"place in {known(metric).title}" for metric in metrics)
    lines = [
        f"| variant | {heads} | fires on black |",
        "| :-- |" + " --: |" * (len(metrics) + 1),
    ]
    for name in names:
        cells = [_mean_place(ranked[name][metric]) for metric in metrics]
        lines.append(f"| {name} | {' | '.join(cells)} | {fires(study, name)} |")
    sizes = ", ".join(f"{place.network} {measured(place.numbers, place.pair)}" for place in networks)
    note = (
        f"Mean place among these five (1 is best) over {len(networks)} networks, preset `fast`; trials on black images "
        f"added up. Photographs: {sizes}.\n"
    )
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


def fires(study: Study, name: str, preset: str = FAST) -> str:
    """In how many trials on black images a variant fires, on all networks together."""
    found = [place.values(name, "fired") for place in black_places(study, preset)]
    fired = [value for each in found if each is not None for value in each.ravel() if not math.isnan(value)]
    return f"{sum(fired):.0f} of {len(fired)}" if fired else "–"
