"""The pages about what the paper does not ask, and about what was run."""

from __future__ import annotations

from collections.abc import Iterator

from studies import _beside, mosaics, other_class
from studies._editions import FAST, PAPER, VARIANTS, measured
from studies._page_parts import claims, numbers, plans_run, protocol_tables, show
from studies._plans import SECOND
from studies._sections import (
    Found,
    caption,
    folded,
    later,
    not_computed,
    plan_section,
    sanity_table,
    sensitivity_table,
    words,
)
from studies._what_was_run import reading_table
from studies.flagship import page as flagship


def controls(found: Found) -> Iterator[str]:
    """Controls and fragmentation."""
    yield "## The questions\n"
    yield from claims(found, "Q1", "Q2", "Q4")
    yield "## Against the best control\n"
    yield later(found.prose, "controls")
    yield (
        "[Controls](terms.md#control) are maps that never look at the network. Above 0 the variant does better than "
        "the control that does best on that network, which is named. n is photographs.\n"
    )
    for preset in (FAST, PAPER):
        made = _beside.controls_table(found.study, VARIANTS[preset], preset)
        head = f"With the preset `{preset}`"
        yield folded(head, made) if made else f"{head}: {not_computed('second-cheap', 'second-paper')}"
    yield "## At equal fragmentation\n"
    yield words(found.prose, "fragmentation")
    if found.extra.fragments:
        yield folded("Maps as they are, smoothed, and shuffled", _beside.fragments_table(found.extra))
    else:
        yield (
            "Not computed yet; `python -m studies.fragmentation ../shared/assets/zoo.py:squeezenet "
            "../shared/assets/imagenet --name SqueezeNet --count 20 --scores studies/scores/fragmentation.jsonl` "
            "computes it.\n"
        )


def trust(found: Found) -> Iterator[str]:
    """Class, weights, seeds and references."""
    yield "## The questions\n"
    yield from claims(found, "Q5", "Q6", "Q7")
    yield from numbers(found, "trust")
    yield "### Another class\n"
    if found.extra.asked_again:
        yield "Rank correlation of the maps of two classes, means with 95 % intervals; both presets, as the rows say.\n"
        yield folded("Another class", other_class.table(found.extra.asked_again))
    else:
        yield "Not computed yet; `python -m studies.other_class --second` computes it.\n"
    yield from plan_section(found, "second-sanity", "Weights drawn at random")
    if "second-sanity" in found.study:
        for pair, network in enumerate(found.study["second-sanity"].plan.pairs):
            if measured(found.study["second-sanity"], pair):
                yield folded(network.name, sanity_table(found.study["second-sanity"], pair))
    yield from plan_section(found, "second-trust", "Another class, the runner-up and another seed")
    if "second-trust" in found.study:
        for pair, network in enumerate(found.study["second-trust"].plan.pairs):
            if measured(found.study["second-trust"], pair):
                yield folded(network.name, sensitivity_table(found.study["second-trust"], pair))
    yield "### Mosaics\n"
    if found.extra.mosaics:
        yield words(found.prose, "grid")
        yield folded("Does a map lie on the photograph it was asked for?", mosaics.table(found.extra.mosaics))
    else:
        yield "Not computed yet; `python -m studies.mosaics` computes it.\n"
    yield from plan_section(found, "second-seeds", "Three seeds", "external", "internal")
    yield "### Mosaics, seeds and classes of the default\n"
    yield words(found.prose, "mosaics")
    yield folded("`fei` and Grad-CAM", "\n".join(flagship.depends()) + "\n")


def rankings(found: Found) -> Iterator[str]:
    """Protocols."""
    yield "## The question\n"
    yield from claims(found, "Q8")
    yield from numbers(found, "protocols")
    yield from protocol_tables(found, "second-protocols")


def cost(found: Found) -> Iterator[str]:
    """The Pareto front, cost and the trade-off."""
    yield "## The front\n"
    yield words(found.prose, "front")
    plans = ("second-cheap", "second-resnet50", "second-cub", "second-expensive")
    for name in (name for name in plans if name in found.study):
        yield caption(found.study[name])
        yield folded(found.study[name].plan.name, _beside.pareto_table(found.study[name]))
    if missing := [name for name in plans if name not in found.study]:
        yield not_computed(*missing)
    yield from show(found, "second-cost")
    yield "## The trade-off as a curve\n"
    yield words(found.prose, "tradeoff")
    yield from show(found, "tradeoff")
    yield folded("Every setting", flagship.tradeoff() + "\n")


def run(found: Found) -> Iterator[str]:
    """What was run, and when."""
    yield "## Plans and photographs\n"
    yield from plans_run(found, SECOND)
    yield later(found.prose, "selection")
    yield "## When the photographs of imagenet_test were read\n"
    yield words(found.prose, "reading")
    read = {
        name: found.stores[name]
        for name in SECOND
        if name in found.stores and any("imagenet_test" in (pair.data or "") for pair in found.stores[name].plan.pairs)
    }
    yield reading_table(read) if read else "No plan of the second edition has read them yet.\n"


def gallery(found: Found) -> Iterator[str]:
    """Pictures of maps."""
    yield words(found.prose, "gallery")
    for file in sorted((found.docs / "images").glob("gallery-*.jpg")):
        yield f"![All methods on {file.stem.removeprefix('gallery-')}](images/{file.name})\n"
