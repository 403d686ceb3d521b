"""Write docs/results.md, its figures, and the study's numbers in other pages from the committed scores.

    python -m studies.page [--check] [--scores FOLDER] [--docs FOLDER]

`--check` changes nothing and fails where a page differs from the scores.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from studies import _sections as sections
from studies import _steps, other_class
from studies._confidence import insertions, lead_table, overshoot_table
from studies._figures import CAPTIONS, drawn
from studies._hypotheses import HYPOTHESES
from studies._plans import FOLDER, ORDER, SCORES
from studies._scores import committed, opened
from studies._verdicts import __doc__ as RULE
from studies._what_was_run import accuracy_table, photographs_table, plans_table, versions
from studies.photographs import ROOT

from fei.bench.report.numbers import Numbers
from fei.bench.report.style import picture
from fei.bench.store import Store

RESULTS = "results.md"
BY_HAND = ("which-variant.md", "performance.md")  # have numbers of the study between comments
_HEAD = "<!-- Written by `python -m studies.page`; the words are in studies/prose.toml. -->\n"


def results(folder: Path, docs: Path = ROOT / "docs") -> str:
    """The page of the results.

    Args:
        folder: Where the scores are.
        docs: Where the page is; it shows the gallery that is there.
    """
    with ExitStack() as stack:
        stores = {name: stack.enter_context(opened(name, folder)) for name in ORDER if committed(name, folder)}
        text = "\n".join(_results(stores, other_class.rows(folder), docs)).rstrip() + "\n"
    return text.replace(_HEAD, f"{_HEAD}\n{_contents(text)}", 1)


def _contents(page: str) -> str:
    """Links to the sections of a page."""
    titles = re.findall(r"^## (.+)$", page, flags=re.MULTILINE)
    anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
    return " ·\n".join(f"[{title}](#{anchor})" for title, anchor in zip(titles, anchors, strict=True)) + "\n"


def with_numbers(folder: Path, page: str) -> str:
    """A page written by hand, with the numbers between ``begin study-NAME`` and ``end study-NAME`` comments."""
    with ExitStack() as stack:
        study = {name: Numbers(stack.enter_context(opened(name, folder))) for name in ORDER if committed(name, folder)}
        blocks = {
            "variants": sections.variants_table(study),
            "steps": _steps.steps_table(study["steps"]) if "steps" in study else "",
            "steps-differences": _steps.differences_table(study["steps"]) if "steps" in study else "",
            "verdicts": sections.summary_table(study),
        }

    def block(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in blocks:
            raise SystemExit(f"there is no block 'study-{name}'; the blocks are {', '.join(blocks)}")
        return f"<!-- begin study-{name} -->\n{blocks[name]}<!-- end study-{name} -->"

    return re.sub(r"<!-- begin study-(\S+) -->\n.*?<!-- end study-\1 -->", block, page, flags=re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or compare them; 1 if one is not up to date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a page is not up to date")
    parser.add_argument("--scores", type=Path, default=SCORES)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = parser.parse_args(arguments)
    pages = {RESULTS: results(options.scores, options.docs)}
    for name in BY_HAND:
        if (options.docs / name).is_file():
            pages[name] = with_numbers(options.scores, (options.docs / name).read_text(encoding="utf-8"))
    if options.check:
        old = [name for name, text in pages.items() if not _is(options.docs / name, text)]
        old += [name for name in linked_images(pages[RESULTS]) if not (options.docs / name).is_file()]
        for name in old:
            print(f"docs/{name} is not what the scores say; run: python -m studies.page", file=sys.stderr)
        return 1 if old else 0
    (options.docs / "images").mkdir(parents=True, exist_ok=True)
    for name, _, figure in drawn(options.scores):
        (options.docs / "images" / f"results-{name}.png").write_bytes(picture(figure, "png"))
    for name, text in pages.items():
        (options.docs / name).write_text(text, encoding="utf-8")
    return 0


def linked_images(page: str) -> list[str]:
    """The pictures that a page shows."""
    return re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page)


def _is(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8") == text


def _results(stores: dict[str, Store], asked: list[other_class.Row], docs: Path) -> Iterator[str]:
    prose = tomllib.loads((FOLDER / "prose.toml").read_text(encoding="utf-8"))
    study = {name: Numbers(store) for name, store in stores.items()}
    yield "# Results\n\n" + _HEAD
    yield sections.words(prose, "intro")
    yield "## The claims\n"
    yield sections.summary_table(study)
    yield "[Below](#the-claims-one-by-one) is what the verdicts mean, and the numbers behind each of them.\n"
    yield "## What was run\n"
    if missing := [name for name in ORDER if name not in stores]:
        yield f"Not computed yet: {', '.join(missing)}.\n"
    if not stores:
        return
    yield plans_table(stores)
    yield (
        "Passes are rows through a network for maps and trials, each counted in the plan that computed it first; those "
        "of the metrics are not included. "
        f"Versions: {versions(stores)}.\n"
    )
    yield accuracy_table(stores)
    if "main" in stores:
        yield f"<details><summary>The photographs</summary>\n\n{photographs_table(stores['main'])}\n</details>\n"
    yield sections.words(prose, "selection")
    yield from _methods(stores, study, prose)
    yield from _inside_fei(stores, study, asked, prose)
    yield "## The claims, one by one\n"
    yield (RULE or "").partition("\n\n")[2]
    for hypothesis in HYPOTHESES:
        yield sections.hypothesis_section(hypothesis, study, prose)
    yield "## Gallery\n"
    yield sections.words(prose, "gallery")
    for file in sorted((docs / "images").glob("gallery-*.jpg")):
        yield f"![All methods on {file.stem.removeprefix('gallery-')}](images/{file.name})\n"


def _methods(stores: dict[str, Store], study: dict[str, Numbers], prose: sections.Prose) -> Iterator[str]:
    if "main" in stores:
        yield "## All methods\n"
        yield sections.words(prose, "external")
        yield sections.bench_table(stores["main"], "external")
        yield "### Inside the networks\n"
        yield sections.words(prose, "internal")
        yield sections.bench_table(stores["main"], "internal")
        yield _image("cost")
        yield (
            "<details><summary>How concentrated and how rough the maps are</summary>\n\n"
            f"{sections.shape_table(study['main'])}\n</details>\n"
        )
    for name, title in (
        ("twenty", "Twenty photographs"),
        ("resnet50", "ResNet50"),
        ("seeds", "Three seeds"),
        ("cub", "Birds"),
        ("googlenet", "GoogLeNet"),
        ("paper", "The paper's preset"),
    ):
        if name in stores:
            yield f"### {title}\n"
            yield sections.words(prose, name)
            yield sections.bench_table(stores[name], "external")
            yield sections.bench_table(stores[name], "internal")
            if name == "twenty":
                yield _image("faithfulness")
            if name == "cub":
                yield sections.words(prose, "localization")
                yield sections.localization_table(study[name])
    if found := insertions(stores):
        yield "### More than the network gives the photograph\n"
        yield sections.words(prose, "overshoot")
        yield overshoot_table(found)
        yield "### Where the network is unsure\n"
        yield sections.words(prose, "unsure")
        yield lead_table(found)
    if "main" in stores:
        yield "### Layer by layer\n"
        yield sections.words(prose, "layers")
        for plan in ("main", "resnet50"):
            for pair in stores[plan].plan.pairs if plan in stores else ():
                yield _image(f"layers-{pair.name.lower()}", f"{CAPTIONS['layers']}: {pair.name}.")
    if "protocols" in study:
        yield "## What the protocol does to the ranking\n"
        yield sections.words(prose, "protocols")
        yield from sections.protocol_section(study["protocols"])


def _inside_fei(
    stores: dict[str, Store], study: dict[str, Numbers], asked: list[other_class.Row], prose: sections.Prose
) -> Iterator[str]:
    if "steps" in study:
        yield "## Quality against passes\n"
        yield sections.words(prose, "steps")
        yield _steps.steps_table(study["steps"])
        yield (
            "± is the standard deviation over the seeds. ✓ means: not worse than the preset `paper` by more than the "
            "standard deviation of `paper`; ✗ means: worse.\n"
        )
        yield (
            "<details><summary>Differences from the preset paper, photograph by photograph</summary>\n\n"
            f"{_steps.differences_table(study['steps'])}\nAbove 0 is better; with 95 % bootstrap intervals.\n\n"
            "</details>\n"
        )
        yield _image("steps")
    for name, title, layout in (
        ("black-image", "Black images", "black-image"),
        ("ablation", "The choices inside FEI", "ablation"),
        ("residual", "Residual additions", "ablation"),
    ):
        if name in stores:
            yield f"## {title}\n"
            yield sections.words(prose, name.replace("-", "_"))
            yield sections.bench_table(stores[name], layout)
            if name in CAPTIONS:
                yield _image(name)
            for more in (f"{name}-more", f"{name}-penalty", f"{name}-chain"):
                if more in stores:
                    yield sections.bench_table(stores[more], layout)
    if "sanity" in study:
        yield "## Cascading randomisation\n"
        yield sections.words(prose, "sanity")
        yield sections.sanity_table(study["sanity"])
        yield _image("sanity")
        yield "![Maps of one photograph as SqueezeNet loses its weights.](images/results-sanity-strips.jpg)\n"
    if asked:
        yield "## Is the map about the class?\n"
        yield sections.words(prose, "other_class")
        yield other_class.table(asked)


def _image(name: str, caption: str = "") -> str:
    text = caption or CAPTIONS[name]
    return f"![{text}](images/results-{name}.png)\n\n{text}\n"


if __name__ == "__main__":
    sys.exit(main())
