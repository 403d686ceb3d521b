"""The pages about what the paper does not ask, and about what was run."""

from __future__ import annotations

from collections.abc import Iterator

from studies import _beside, _protocols, other_class
from studies._editions import FAST, PAPER, VARIANTS, measured
from studies._page_parts import FIRST, claims, second, show
from studies._plans import ORDER, SECOND
from studies._sections import Found, caption, folded, later, plan_section, sanity_table, words
from studies._what_was_run import accuracy_table, photographs_table, plans_table, reading_table, versions
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
        text = "Not computed yet; `python -m studies.run --only second-cheap second-paper` computes it.\n"
        yield folded(f"With the preset `{preset}`", made) if made else f"With the preset `{preset}`: {text}"
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
    yield from second(found, "trust")
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
    yield from plan_section(found, "second-seeds", "Three seeds", "external", "internal")
    yield "### Mosaics, seeds and classes of the default\n"
    yield words(found.prose, "mosaics")
    yield folded("`fei` and Grad-CAM", "\n".join(flagship.depends()) + "\n")
    yield FIRST
    yield from plan_section(found, "sanity", "Cascading randomisation", text=words(found.prose, "sanity"))
    if "sanity" in found.study:
        yield folded("Similarity to the original map", sanity_table(found.study["sanity"]))
        yield from show(found, "sanity")
        yield "![Maps of one photograph as SqueezeNet loses its weights.](images/results-sanity-strips.jpg)\n"
    if found.extra.asked:
        yield "### Is the map about the class?\n"
        yield words(found.prose, "other_class")
        yield folded(
            "Rank correlation of the maps of two classes (preset `fast`)", other_class.table(found.extra.asked)
        )
    yield from plan_section(
        found, "seeds", "Three seeds, ten photographs", "external", "internal", text=words(found.prose, "seeds")
    )


def rankings(found: Found) -> Iterator[str]:
    """Protocols."""
    yield "## The question\n"
    yield from claims(found, "Q8")
    for head, name, block in (("## The second edition\n", "second-protocols", ""), (FIRST, "protocols", "protocols")):
        yield head
        yield words(found.prose, block) if block else later(found.prose, "protocols")
        if name not in found.study:
            yield f"Not computed yet; `python -m studies.run --only {name}` computes it.\n"
            continue
        yield caption(found.study[name])
        yield "Rank correlation of the methods' means between two protocols, and the range over single photographs.\n"
        yield folded("Between each two protocols", _protocols.correlation_table(found.study[name]))
        yield folded("The places of the methods", _protocols.rank_table(found.study[name]))


def cost(found: Found) -> Iterator[str]:
    """The Pareto front, cost and the trade-off."""
    for head, names, drawing in (
        ("## The front\n", ("second-cheap", "second-resnet50", "second-cub", "second-expensive"), "second-cost"),
        (FIRST, ("main",), "cost"),
    ):
        yield head
        yield words(found.prose, "front") if head != FIRST else ""
        for name in (name for name in names if name in found.study):
            yield caption(found.study[name])
            yield folded(found.study[name].plan.name, _beside.pareto_table(found.study[name]))
        if missing := [name for name in names if name not in found.study]:
            yield f"Not computed yet; `python -m studies.run --only {' '.join(missing)}` computes it.\n"
        yield from show(found, drawing)
    yield "## The trade-off as a curve\n"
    yield words(found.prose, "tradeoff")
    yield from show(found, "tradeoff")
    yield folded("Every setting", flagship.tradeoff() + "\n")


def run(found: Found) -> Iterator[str]:
    """What was run, and when."""
    for head, plans in (("## The second edition\n", SECOND), (FIRST, ORDER)):
        yield head
        stores = {name: found.stores[name] for name in plans if name in found.stores}
        if missing := [name for name in plans if name not in stores]:
            yield f"Not computed yet: {', '.join(missing)}.\n"
        if stores:
            yield folded("Plans, units and passes", plans_table(stores))
            yield (
                "Passes are rows through a network for maps and trials, each counted in the plan that computed it "
                f"first; those of the metrics are not included. Versions: {versions(stores)}.\n"
            )
            yield folded("How many photographs each network gets right", accuracy_table(stores))
    if "main" in found.stores:
        yield folded("The photographs of the first edition", photographs_table(found.stores["main"]))
    yield words(found.prose, "selection")
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
