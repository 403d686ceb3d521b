"""The pages below docs/results/, one per question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from studies import _claim_pages, _question_pages
from studies._first_edition import first_edition
from studies._sections import Found


@dataclass(frozen=True)
class Page:
    """A page of the results.

    Attributes:
        title: Its heading.
        question: What it answers, in a sentence.
        parts: Its text, part by part; links are those of a page in docs/.
    """

    title: str
    question: str
    parts: Callable[[Found], Iterator[str]]


PAGES: Mapping[str, Page] = {
    "photographs": Page(
        "Outside and inside on ordinary photographs",
        "Do masks without a constraint score high and change the inside, and do clipped ones not?",
        _claim_pages.photographs,
    ),
    "birds": Page(
        "The paper's own networks",
        "Does its half on birds come out here, and which layers matter?",
        _claim_pages.birds,
    ),
    "black-images": Page(
        "Black images: chains or batch normalisation?",
        "Which methods find a class where there is nothing, and on which networks?",
        _claim_pages.black,
    ),
    "presets": Page(
        "Both presets, steps, area and quantiles",
        "Does it matter whether masks are optimised as the paper does, for how long, and at which areas?",
        _claim_pages.presets,
    ),
    "controls": Page(
        "Controls and fragmentation",
        "Do methods beat maps that never look at the network, and by more than smoothness?",
        _question_pages.controls,
    ),
    "trust": Page(
        "Class, weights, seeds and references",
        "What do maps depend on, and what should they not depend on?",
        _question_pages.trust,
    ),
    "protocols": Page(
        "Protocols",
        "Do protocols agree on which method is better?",
        _question_pages.rankings,
    ),
    "cost": Page(
        "Cost and the Pareto front",
        "Which methods does no other beat outside and inside, and at what cost?",
        _question_pages.cost,
    ),
    "what-was-run": Page(
        "What was run, and when",
        "On which photographs, networks and versions do the numbers rest?",
        _question_pages.run,
    ),
    "first-edition": Page(
        "The first edition",
        "What did the first study find, with fewer photographs and mostly one preset?",
        first_edition,
    ),
    "gallery": Page("Gallery", "What do the maps look like?", _question_pages.gallery),
}
