"""Write docs/results.md, the pages below docs/results, their figures, and the study's numbers in other pages.

    python -m studies.page [--check] [--scores FOLDER] [--docs FOLDER]

Everything is made from the committed scores. `--check` changes nothing and fails where a page differs from them.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from studies import _sections as sections
from studies import _steps
from studies._editions import measured, planned
from studies._figures import drawn
from studies._hypotheses import HYPOTHESES
from studies._numbers import spoken
from studies._pages import PAGES
from studies._plans import FOLDER, ORDER, SCORES, SECOND
from studies._questions import Extra, questions
from studies._scores import committed, opened
from studies._summary import claims_table
from studies._verdicts import __doc__ as RULE
from studies.photographs import ROOT

from fei.bench.report.numbers import Numbers
from fei.bench.report.style import picture

RESULTS = "results.md"
# Pages that have words or numbers of the study between comments.
BY_HAND = ("which-variant.md", "performance.md", "concepts/gaming.md", "../README.md")
_HEAD = "<!-- Written by `python -m studies.page`; the words are in studies/prose.toml. -->\n"
_LINK = re.compile(r"(\]\()(?![a-z]+:|#)")  # to a file, as a page in docs/ writes it


@contextmanager
def found_in(folder: Path, docs: Path = ROOT / "docs") -> Iterator[sections.Found]:
    """All scores of a folder.

    Args:
        folder: Where they are.
        docs: Where the pages are.
    """
    prose = tomllib.loads((FOLDER / "prose.toml").read_text(encoding="utf-8"))
    with ExitStack() as stack:
        every = (*SECOND, *ORDER)
        stores = {name: stack.enter_context(opened(name, folder)) for name in every if committed(name, folder)}
        study = {name: Numbers(store) for name, store in stores.items()}
        extra = Extra.read(folder)
        yield sections.Found(stores, study, extra, spoken(prose, study, extra), docs)


def results(found: sections.Found) -> dict[str, str]:
    """The pages of the results, by their names in docs/."""
    summary = "\n".join(_summary(found)).rstrip() + "\n"
    pages = {RESULTS: f"# Results\n\n{_HEAD}\n" + _contents(summary) + summary}
    for name, page in PAGES.items():
        text = "\n".join(part for part in page.parts(found) if part).rstrip() + "\n"
        top = f"# {page.title}\n\n{_HEAD}\n*{page.question}* [All claims and questions](results.md).\n\n"
        pages[f"results/{name}.md"] = _LINK.sub(r"\1../", top + _contents(text) + text)
    return pages


def _summary(found: sections.Found) -> Iterator[str]:
    yield sections.words(found.prose, "intro")
    yield _state(found)
    if in_short := sections.later(found.prose, "in_short"):
        yield f"## In short\n\n{in_short}"
    yield "## What the paper claims\n"
    yield claims_table(found, HYPOTHESES)
    yield "## What it does not ask\n"
    yield claims_table(found, questions(found.extra))
    yield sections.words(found.prose, "legend")
    yield "## Question by question\n"
    yield "\n".join(f"- [{page.title}](results/{name}.md): {page.question}" for name, page in PAGES.items()) + "\n"
    yield "## How a claim is judged\n"
    yield (RULE or "").partition("\n\n")[2]


def _state(found: sections.Found) -> str:
    """How much of the second edition is there."""
    there = [name for name in SECOND if name in found.stores]
    if not there:
        return (
            f"**None of the {len(SECOND)} plans of the second edition has scores yet**: all numbers below are of the "
            "first; `python -m studies.run --only second-paper …` computes the second.\n"
        )
    whole = [
        name for name in there if all(_is_whole(found, name, pair) for pair in range(len(found.study[name].plan.pairs)))
    ]
    if len(whole) == len(SECOND):
        return f"All {len(SECOND)} plans of the second edition are computed.\n"
    return (
        f"Of the {len(SECOND)} plans of the second edition {len(whole)} {'is' if len(whole) == 1 else 'are'} computed, "
        f"{len(there) - len(whole)} in part. Every table says on how many photographs or trials it rests, and of how "
        "many; where the second edition has fewer than the first, the first stands in.\n"
    )


def _is_whole(found: sections.Found, name: str, pair: int) -> bool:
    numbers = found.study[name]
    return measured(numbers, pair) >= planned(numbers, pair)


def _contents(page: str) -> str:
    """Links to the sections of a page."""
    titles = re.findall(r"^## (.+)$", page, flags=re.MULTILINE)
    anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
    links = " ·\n".join(f"[{title}](#{anchor})" for title, anchor in zip(titles, anchors, strict=True))
    return f"{links}\n\n" if links else ""


def blocks_of(found: sections.Found) -> dict[str, str]:
    """What stands between comments in pages written by hand, by name."""
    study = found.study
    return {
        "variants": sections.variants_table(study),
        "steps": _steps.steps_table(study["steps"]) if "steps" in study else "",
        "steps-differences": _steps.differences_table(study["steps"]) if "steps" in study else "",
        "verdicts": sections.summary_table(found),
        **{name: f"\n{text.strip()}\n\n" for name, text in found.prose["elsewhere"].items()},
    }


def with_numbers(blocks: Mapping[str, str], page: str) -> str:
    """A page written by hand, with the numbers between ``begin study-NAME`` and ``end study-NAME`` comments."""

    def block(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in blocks:
            raise SystemExit(f"there is no block 'study-{name}'; the blocks are {', '.join(blocks)}")
        return f"<!-- begin study-{name} -->\n{blocks[name]}<!-- end study-{name} -->"

    return re.sub(r"<!-- begin study-(\S+) -->\n.*?<!-- end study-\1 -->", block, page, flags=re.DOTALL)


def written(found: sections.Found) -> dict[str, str]:
    """Every page with numbers of the study, by its name in docs/."""
    pages, blocks = results(found), blocks_of(found)
    for name in BY_HAND:
        if (found.docs / name).is_file():
            pages[name] = with_numbers(blocks, (found.docs / name).read_text(encoding="utf-8"))
    return pages


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or compare them; 1 if one is not up to date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a page is not up to date")
    parser.add_argument("--scores", type=Path, default=SCORES)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = parser.parse_args(arguments)
    with found_in(options.scores, options.docs) as found:
        pages = written(found)
        if options.check:
            old = [name for name, text in pages.items() if not _is(options.docs / name, text)]
            old += [name for name in linked_images(pages) if not (options.docs / name).is_file()]
            for name in old:
                print(f"docs/{name} is not what the scores say; run: python -m studies.page", file=sys.stderr)
            return 1 if old else 0
        for folder in ("images", "results"):
            (options.docs / folder).mkdir(parents=True, exist_ok=True)
        for name, figure in drawn(options.scores, found.study):
            (options.docs / "images" / f"results-{name}.png").write_bytes(picture(figure, "png"))
    for name, text in pages.items():
        (options.docs / name).write_text(text, encoding="utf-8")
    return 0


def linked_images(pages: dict[str, str]) -> list[str]:
    """The pictures that the pages of the results show, by their names in docs/."""
    own = [text for name, text in pages.items() if name.startswith("results")]
    shown = [file for page in own for file in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page)]
    return [file.removeprefix("../") for file in shown]


def _is(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
