"""Parts that several pages of the results have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from studies import _protocols
from studies._confidence import insertions, lead_table, overshoot_table
from studies._editions import measured
from studies._figures import CAPTIONS, pictures
from studies._sections import Found, caption, claim_section, folded, later, not_computed
from studies._what_was_run import accuracy_table, plans_table, versions


def claims(found: Found, *names: str) -> Iterator[str]:
    """Claims or questions, one after the other."""
    for name in names:
        yield claim_section(found, name)


def numbers(found: Found, block: str) -> Iterator[str]:
    """The heading of the second edition's numbers, and its words where they are written."""
    yield "## The numbers\n"
    yield later(found.prose, block)


def show(found: Found, name: str, text: str = "") -> Iterator[str]:
    """A figure, where it was drawn."""
    text = text or CAPTIONS[name]
    if name in pictures(found.study):
        yield f"![{text}](images/results-{name}.png)\n\n{text}\n"


def against_probability(found: Found, plans: Sequence[str], above: str, unsure: str) -> Iterator[str]:
    """Insertion against the probability of the whole photograph, each table below its words."""
    stores = {name: found.stores[name] for name in plans if name in found.stores}
    made = insertions(stores)
    if not made:
        return
    sizes = "; ".join(
        f"{pair.name} {measured(found.study[name], place)}"
        for name in stores
        for place, pair in enumerate(found.study[name].plan.pairs)
    )
    noted = f"*n (photographs): {sizes}; preset `fast`.*\n"
    yield f"### More than the network gives the photograph\n\n{above}\n{noted}\n{overshoot_table(made)}"
    yield f"### Where the network is unsure\n\n{unsure}\n{noted}\n{lead_table(made)}"


def protocol_tables(found: Found, name: str) -> Iterator[str]:
    """How far protocols agree on the order of a plan's methods."""
    if name not in found.study:
        yield not_computed(name)
        return
    yield caption(found.study[name])
    yield "Rank correlation of the methods' means between two protocols, and the range over single photographs.\n"
    yield folded("Between each two protocols", _protocols.correlation_table(found.study[name]))
    yield folded("The places of the methods", _protocols.rank_table(found.study[name]))


def plans_run(found: Found, plans: Sequence[str]) -> Iterator[str]:
    """Units, passes, versions and accuracy of some plans."""
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
