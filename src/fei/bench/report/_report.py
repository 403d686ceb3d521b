"""All tables and figures of a run in a folder, and a page in Markdown that shows them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fei.bench.report._notes import failure_notes
from fei.bench.report._written import document
from fei.bench.report.figures import figures
from fei.bench.report.numbers import Numbers
from fei.bench.report.style import FORMATS, picture
from fei.bench.report.tables import Table, tables
from fei.common.files import prepare_folder, refuse_link, write_files
from fei.common.words import in_markdown

if TYPE_CHECKING:
    from fei.bench.store import Store

REPORT = "report.md"
# What a layout shows first: tables and figures, by the beginning of their names.
_FIRST: dict[str, tuple[str, ...]] = {
    "external": ("tables/external", "figures/faithfulness", "figures/curves"),
    "internal": ("tables/internal", "figures/layerwise"),
    "layerwise": ("tables/layerwise", "figures/layerwise"),
    "black-image": ("tables/black-image", "figures/black-image"),
    "ablation": ("tables/ablation",),
    "sanity": ("tables/sanity", "figures/sanity"),
    "figure-1": ("figures/visual", "figures/faithfulness"),
    "figure-2": ("figures/layerwise", "figures/visual"),
    "visual": ("figures/visual",),
    "clipping-scope": ("figures/visual", "tables/ablation"),
    "plain": ("tables/plain",),
}


def write_report(store: Store, folder: Path | str, numbers: Numbers | None = None) -> list[Path]:
    r"""Write the tables and figures of a run.

    The same run gives the same files, byte by byte; each appears whole, and the page that shows them comes last.

    Args:
        store: The run; it may be unfinished.
        folder: Where to: report.md; tables as .tex (all.tex is a document of all), .csv; figures as .png, .svg.
        numbers: Its numbers, if they were read already.

    Returns:
        The files, report.md first.

    Raises:
        InputError: If the folder cannot be written to.
        DataError: If the disk refuses.

    Examples:
        >>> from pathlib import Path
        >>> from fei.bench.report import write_report
        >>> _ = fei.bench.run(fei.bench.load_plan("plan.toml"), "run")
        >>> with fei.bench.Store.open(Path("run"), readonly=True) as store:
        ...     "report.md" in [file.name for file in write_report(store, "report")]
        True
    """
    folder = Path(folder)
    for part in (folder, folder / "tables", folder / "figures"):
        if part != folder:
            refuse_link(part)
        prepare_folder(part, what="report")
    numbers = numbers or Numbers(store)
    files: dict[str, bytes] = {}
    blocks: dict[str, str] = {}
    remarks: list[str] = []
    for table in tables(numbers):
        name = f"tables/{table.name}"
        files[f"{name}.csv"] = table.csv().encode()
        # all numbers side by side are too wide for a page, unless someone asks for them
        if table.name != "plain" or numbers.plan.layout == "plain":
            files[f"{name}.tex"] = table.latex().encode()
            blocks[name] = _table(table)
    if printed := [Path(name).name for name in files if name.endswith(".tex")]:
        files["tables/all.tex"] = document(printed).encode()
    for figure in figures(store, numbers):
        if isinstance(figure, str):
            remarks.append(figure)
            continue
        name = f"figures/{figure.name}"
        files |= {f"{name}.{form}": picture(figure.figure, form) for form in FORMATS}
        blocks[name] = f"![{in_markdown(figure.caption)}]({name}.png)\n\n{in_markdown(figure.caption)}\n"
    page = "\n".join(_page(store, numbers, blocks, remarks, list(files)))
    write_files(folder, files | {REPORT: page.encode()}, what="report")
    return [folder / REPORT, *(folder / name for name in files)]


def _page(
    store: Store, numbers: Numbers, blocks: dict[str, str], remarks: list[str], files: list[str]
) -> Iterator[str]:
    yield f"# {in_markdown(numbers.plan.name)}\n"
    total, failed, waiting = (
        sum(count for (_, status), count in numbers.counts.items() if wanted in ("", status))
        for wanted in ("", "failed", "waiting")
    )
    yield f"{total} units: {total - failed - waiting} done, {failed} failed, {waiting} not computed yet.\n"
    prefixes = _FIRST[numbers.plan.layout]
    first = [name for prefix in prefixes for name in blocks if name.startswith(prefix)]
    rest = [name for name in blocks if name not in first]
    for name in first:
        yield blocks[name]
    yield from (blocks[name] for name in rest if name.startswith("tables/"))
    if drawn := [name for name in rest if name.startswith("figures/")]:
        yield "## Figures\n"
        yield from (blocks[name] for name in drawn)
    if not blocks:
        yield "There are no numbers yet.\n"
    for remark in remarks:
        yield f"{in_markdown(remark)}\n"
    if "tables/plain.csv" in files:
        yield "All numbers are in [tables/plain.csv](tables/plain.csv).\n"
    yield from _what_was_run(store, numbers)


def _table(table: Table) -> str:
    parts = [
        f"## {in_markdown(table.title)}",
        table.markdown(),
        "\n".join(f"- {in_markdown(note)}" for note in table.notes),
    ]
    if any(math.isfinite(cell.estimate.low) for _, _, cell in table.filled()):
        parts.append(f"<details><summary>95 % intervals</summary>\n\n{table.markdown(intervals=True)}\n</details>")
    if tests := table.tests():
        parts.append(f"<details><summary>Paired tests</summary>\n\n{tests}\n</details>")
    parts.append(f"[LaTeX](tables/{table.name}.tex), [CSV](tables/{table.name}.csv)")
    return "\n\n".join(parts) + "\n"


def _what_was_run(store: Store, numbers: Numbers) -> Iterator[str]:
    plan = numbers.plan
    yield "## What was run\n"
    yield "| pair | network | data | images | sample seed |\n| :-- | :-- | :-- | --: | --: |"
    for index, pair in enumerate(plan.pairs):
        seed = pair.sample_seed if pair.sample is not None else "–"
        images = len(numbers.items(index, "map")) or "–"
        cells = [pair.name, pair.model, pair.data or "–", str(images), str(seed)]
        yield f"| {' | '.join(map(in_markdown, cells))} |"
    yield "\n| method | name | group | options |\n| :-- | :-- | :-- | :-- |"
    for method in plan.methods:
        options = json.dumps(method.options, sort_keys=True, default=str) if method.options else "–"
        yield f"| {' | '.join(map(in_markdown, [method.label, method.name, method.group or '–', options]))} |"
    target = "the predicted class" if plan.target == "predicted" else "the class that the data set names"
    versions = store.versions
    yield f"\n- Seeds: {', '.join(map(str, plan.seeds))}."
    yield f"- Explained: {target}."
    yield f"- Protocols: {in_markdown(', '.join(plan.metrics.protocols))}."
    if plan.black_image is not None:
        yield f"- Black-image test: {plan.black_image.trials} trials a seed."
    if plan.sanity is not None:
        yield f"- Sanity check: {plan.sanity.images} images."
    yield f"- Versions: {in_markdown(', '.join(f'{name} {version}' for name, version in sorted(versions.items())))}."
    yield "\n| units | done | failed | not computed yet |\n| :-- | --: | --: | --: |"
    for kind in dict.fromkeys(kind for kind, _ in numbers.counts):
        counts = [numbers.counts.get((kind, status), 0) for status in ("done", "failed", "waiting")]
        yield f"| {in_markdown(kind)} | {' | '.join(map(str, counts))} |"
    yield ""
    for note in failure_notes(numbers, numbers.failures):
        yield f"- {in_markdown(note)}"
