"""The summary: every claim and question with its verdict, its effect beside the paper's, n, presets and advice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from studies import _effects, other_class
from studies._editions import FAST, PAPER, PRESETS, Place, Study, black_images, places
from studies._hypotheses import HYPOTHESES, SEQUENTIAL, Hypothesis
from studies._questions import SANITY, SMOOTHED, WITHOUT_NORMALISATION, fragment_values, redrawn
from studies._sections import Found, counts
from studies._verdicts import Comparison, verdict

from fei.metrics import bootstrap_interval, wilson_interval

# The page on which a claim's numbers are.
PAGE_OF = {
    **dict.fromkeys(("H1", "H2", "H3", "H4"), "photographs"),
    "H7": "birds",
    **dict.fromkeys(("H5", "H6", "Q3"), "black-images"),
    **dict.fromkeys(("H8", "H9", "H10"), "presets"),
    **dict.fromkeys(("Q1", "Q2", "Q4"), "controls"),
    **dict.fromkeys(("Q5", "Q6", "Q7"), "trust"),
    "Q8": "protocols",
}


def claims_table(found: Found, claims: Iterable[Hypothesis]) -> str:
    """The claims, one a line; the paper's numbers stand beside ours where it has any."""
    claims = list(claims)
    theirs = [_theirs(claim) for claim in claims]
    paper = ["the paper"] if any(each != "–" for each in theirs) else []
    heads = ["", "claim", "verdict (yes, no, open)", "effect here, with 95 % interval", *paper, "n", "advice"]
    lines = [f"| {' | '.join(heads)} |", "|" + " :-- |" * len(heads)]
    for claim, ratios in zip(claims, theirs, strict=True):
        cells = [
            f"[{claim.name}](results/{PAGE_OF[claim.name]}.md#{claim.name.lower()})",
            claim.claim,
            _verdicts(found.compared[claim.name]),
            _effect(claim.name, found),
            *([ratios] if paper else []),
            sizes(found.comparisons(claim.name)),
            found.prose["advice"].get(claim.name, "").strip() or "–",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _verdicts(compared: Mapping[str, list[Comparison]]) -> str:
    """The verdict over everything, and with each preset where both were used."""
    every = [each for made in compared.values() for each in made]
    if len(compared) < 2:
        named = "".join(f", `{preset}`" for preset in compared)
        return f"**{verdict(every)}** ({counts(every)}{named})"
    told = "; ".join(f"`{preset}` {verdict(each)} ({counts(each)})" for preset, each in compared.items())
    return f"**{verdict(every)}**: {told}"


def sizes(compared: list[Comparison]) -> str:
    """How many photographs, or trials, single comparisons rest on: the fewest and the most."""
    found = sorted({comparison.count for comparison in compared})
    return "–" if not found else str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _effect(name: str, found: Found) -> str:
    if name in _EFFECTS:
        return _EFFECTS[name](found) or "–"
    effect = _effects.EFFECTS[name][0]
    cells = []
    for preset, find in _effects.WHERE[name].items():
        ratio = effect.over(find(found.study))
        if ratio is not None:
            networks = f"{ratio.networks} network{'s' if ratio.networks > 1 else ''}"
            cells.append(f"`{preset}` {_effects.told(ratio)} ({networks})")
    return f"{effect.what}: {'; '.join(cells)}" if cells else "–"


def _theirs(claim: Hypothesis) -> str:
    if claim.name in _effects.EFFECTS:
        return _effects.papers(_effects.EFFECTS[claim.name][0], claim.name)
    return claim.paper if claim in HYPOTHESES else "–"


def _rates(study: Study, preset: str, label: str, chosen: Callable[[Place], bool]) -> str:
    """In how many trials a variant fires on some networks, with Wilson's interval."""
    each = [place.values(label, "fired") for place in black_images(study, preset) if chosen(place)]
    fired = np.concatenate([one[np.isfinite(one)] for one in each if one is not None] or [np.zeros(0)])
    if not len(fired):
        return ""
    low, high = wilson_interval(int(fired.sum()), len(fired))
    return f"{fired.sum():.0f} of {len(fired)} [{100 * low:.0f}, {100 * high:.0f}] %"


def _on_black(found: Found) -> str:
    told = []
    for preset in PRESETS:
        rows = ("NONE", "VM", "IVM", "IBM")
        rates = {row: _rates(found.study, preset, f"FEI-{row}", lambda _: True) for row in rows}
        each = ", ".join(f"{row} {rate}" for row, rate in rates.items() if rate)
        told += [f"`{preset}` {each}"] if each else []
    return f"fires: {'; '.join(told)}" if told else ""


def _avm(found: Found, names: tuple[str, ...], inside: str) -> str:
    told = []
    for preset in PRESETS:
        one = _rates(found.study, preset, "FEI-AVM", lambda place: place.network in names)
        two = _rates(found.study, preset, "FEI-AVM", lambda place: place.network not in names)
        told += [f"`{preset}` {inside} {one or '–'}, others {two or '–'}"] if one or two else []
    return f"AVM fires: {'; '.join(told)}" if told else ""


def _fragments(found: Found) -> str:
    samples = []
    for network in dict.fromkeys(row["network"] for row in found.extra.fragments):
        ours = fragment_values(found.extra, network, SMOOTHED[-1], "mse", ("fei-none", "fei-vm"))
        samples += [np.concatenate(ours, 1)] if len(ours[0]) else []
    return f"MSE {SMOOTHED[-1]}: FEI-NONE / FEI-VM {_effects.told(_effects.pooled(samples))}" if samples else ""


def _correlation(what: str, each: Iterator[tuple[str, list[float]]]) -> str:
    cells = []
    for name, values in each:
        if values:
            low, high = bootstrap_interval(values)
            interval = "" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]"
            cells.append(f"{name} {sum(values) / len(values):.2f}{interval}")
    return f"{what}: {'; '.join(cells)}" if cells else ""


def _classes(found: Found) -> str:
    rows = {FAST: "fei-vm", PAPER: "fei-vm, paper"}
    each = (
        (f"{network}, `{preset}`", found.extra.classes(network, row)[0])
        for preset, row in rows.items()
        for network in other_class.NETWORKS
    )
    return _correlation("ρ with a random class", each)


def _weights(found: Found) -> str:
    def each() -> Iterator[tuple[str, list[float]]]:
        for preset in PRESETS:
            for place in places(found.study, SANITY, preset):
                values = redrawn(place, "FEI-VM")
                if values is not None and (preset == FAST or place.label("FEI-VM") != "FEI-VM"):
                    yield f"{place.network}, `{preset}`", values[np.isfinite(values)].tolist()

    return _correlation("ρ, classifier redrawn", each())


def _agreement(found: Found) -> str:
    taus = [each.difference + 0.5 for each in found.comparisons("Q8")]
    return f"τ from {min(taus):.2f} to {max(taus):.2f}" if taus else ""


_EFFECTS: dict[str, Callable[[Found], str]] = {
    "H5": _on_black,
    "H6": lambda found: _avm(found, SEQUENTIAL, "chains"),
    "Q3": lambda found: _avm(found, WITHOUT_NORMALISATION, "without normalisation"),
    "Q4": _fragments,
    "Q5": _classes,
    "Q6": _weights,
    "Q8": _agreement,
}
