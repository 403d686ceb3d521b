"""How large an effect is: ratios of two rows' means with bootstrap intervals, beside the paper's own ratio."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from studies import _paper
from studies._editions import ABLATIONS, FAST, PAPER, PRESETS, SCOPES, Place, Study, places, variants
from studies._hypotheses import without_skips

_RESAMPLES, _SEED, _TINY = 2000, 0, 1e-12
Sampled = NDArray[np.float64]


class Ratio(NamedTuple):
    """A ratio with its 95 % interval (NaN where there is none), the photographs, and how many networks they are of."""

    ratio: float
    low: float
    high: float
    photographs: int
    networks: int = 1


@dataclass(frozen=True)
class Effect:
    """The effect that a claim is about: one row's mean over another's.

    Attributes:
        top: Label of the row above the line.
        bottom: Of the row below it.
        metric: What is compared.
        protocol: How the protocol's name begins; the paper's without.
    """

    top: str
    bottom: str
    metric: str
    protocol: str = ""

    @property
    def what(self) -> str:
        """The effect in words."""
        title = {"mse": "MSE"}.get(self.metric, self.metric) + (f" (`{self.protocol}`)" if self.protocol else "")
        return f"{title}: {self.top} / {self.bottom}"

    def at(self, place: Place) -> Ratio | None:
        """The ratio on a network."""
        each = self._both(place)
        return None if each is None else pooled([each])

    def over(self, found: Sequence[Place]) -> Ratio | None:
        """The geometric mean of the ratios of all networks."""
        both = [each for place in found if (each := self._both(place)) is not None]
        return pooled(both) if both else None

    def paper(self, network: str) -> float | None:
        """The paper's ratio on a network; None where it has none."""
        top, bottom = (_paper.number(network, row, self.metric) for row in (self.top, self.bottom))
        return None if top is None or bottom is None or self.protocol else top / bottom

    def ablated(self) -> float | None:
        """The ratio in the paper's ablation (VGG16)."""
        top, bottom = (_paper.ablated(row, self.metric) for row in (self.top, self.bottom))
        return None if top is None or bottom is None else top / bottom

    def _both(self, place: Place) -> Sampled | None:
        """The two rows' numbers, photographs × 2, of photographs that both have."""
        found = [place.values(row, self.metric, self.protocol) for row in (self.top, self.bottom)]
        if any(each is None for each in found):
            return None
        means = np.stack([over_seeds(each) for each in found if each is not None], 1)
        known = means[np.isfinite(means).all(1)]
        return known if len(known) else None


def over_seeds(values: Sampled) -> Sampled:
    """Over the seeds, of each photograph."""
    known = np.isfinite(values)
    count = known.sum(1)
    total = np.where(known, values, 0).sum(1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def pooled(samples: Sequence[Sampled]) -> Ratio:
    """The geometric mean over networks of the ratio of two means, with a bootstrap over the photographs of each."""
    count, networks = sum(map(len, samples)), len(samples)
    ratio = math.exp(np.mean([_log_ratio(each.mean(0)) for each in samples]))
    if min(map(len, samples)) < 2:
        return Ratio(ratio, math.nan, math.nan, count, networks)
    draw = np.random.default_rng(_SEED)
    drawn = [each[draw.integers(len(each), size=(_RESAMPLES, len(each)))].mean(1) for each in samples]
    low, high = np.exp(np.quantile(np.mean([_log_ratio(each) for each in drawn], 0), [0.025, 0.975]))
    return Ratio(ratio, float(low), float(high), count, networks)


def _log_ratio(means: Sampled) -> Sampled:
    """The logarithm of the first over the second, along the last axis; numbers here are above 0, or nearly so."""
    logs: Sampled = np.log(np.maximum(means, _TINY))
    return logs[..., 0] - logs[..., 1]


Finder = Callable[[Study], list[Place]]


# The effects of each claim, the first being that of the summary.
EFFECTS: Mapping[str, tuple[Effect, ...]] = {
    "H1": (Effect("FEI-NONE", "FEI-IBM", "insertion"), Effect("FEI-NONE", "FEI-VM", "insertion")),
    "H2": (
        Effect("FEI-NONE", "FEI-VM", "mse"),
        Effect("FEI-NONE", "FEI-IBM", "mse"),
        Effect("FEI-NONE", "Random", "mse"),
    ),
    "H3": (Effect("Grad-CAM++", "FEI-VM", "mse"), Effect("Grad-CAM", "FEI-VM", "mse")),
    "H4": (Effect("FEI-IBM", "FEI-VM", "insertion"), Effect("FEI-IBM", "FEI-AVM", "insertion")),
    "H7": (
        Effect("last 6/13 of the sites", "first 7/13 of the sites", "mse"),
        Effect("last 6/13 of the sites", "first 2/13 of the sites", "mse"),
    ),
    "H8": (
        Effect("preset=paper", "L1 from 1, β = 0.003", "insertion"),  # the better of the two weights on both networks
        Effect("preset=paper", "L1 from 1, β = 0.01", "insertion"),
        Effect("L1 from 1, β = 0.003", "preset=paper", "mse"),
    ),
    "H9": (
        Effect("200 steps", "preset=paper", "insertion"),
        Effect("300 steps", "preset=paper", "insertion"),
        Effect("200 steps", "preset=paper", "mse"),
    ),
    "H10": (
        Effect("9: .1 .2 … .9", "FEI-VM", "insertion"),
        Effect("3: .1 .5 .9", "FEI-VM", "insertion"),
        Effect("9: .1 .2 … .9", "FEI-VM", "mse"),
    ),
    "Q1": (Effect("Centre", "FEI-VM", "mse"), Effect("Smooth noise", "FEI-VM", "mse")),
    "Q2": (Effect("FEI-VM", "Centre", "insertion"), Effect("FEI-VM", "Smooth noise", "insertion")),
    "Q7": (
        Effect("FEI-NONE", "FEI-IBM", "insertion", "held-out"),
        Effect("FEI-NONE", "FEI-VM", "insertion", "held-out"),
    ),
}
# Where an effect is looked for, by preset.
_BOTH: Mapping[str, Finder] = {preset: partial(variants, preset=preset) for preset in PRESETS}
WHERE: Mapping[str, Mapping[str, Finder]] = {
    **dict.fromkeys(("H1", "H2", "H4", "Q1", "Q2", "Q7"), _BOTH),
    "H3": {preset: partial(without_skips, preset=preset) for preset in PRESETS},
    "H7": {FAST: partial(places, editions=SCOPES)},
    "H8": {PAPER: partial(places, editions=ABLATIONS)},
    "H9": {PAPER: partial(places, editions=ABLATIONS)},
    "H10": {FAST: partial(places, editions=ABLATIONS)},
}
ABLATED = ("H7", "H8", "H9", "H10")


def told(found: Ratio | None) -> str:
    """A ratio with its interval in words."""
    if found is None:
        return "–"
    interval = "" if math.isnan(found.low) else f" [{found.low:.2f}, {found.high:.2f}]"
    return f"{found.ratio:.2f}{interval}"


def papers(effect: Effect, claim: str) -> str:
    """The paper's ratios on its networks."""
    if claim in ABLATED:
        value = effect.ablated()
        return "–" if value is None else f"{value:.2f} (VGG16; table 4)"
    networks = [(name, value) for name in _paper.OUTSIDE if (value := effect.paper(name)) is not None]
    cells = ", ".join(f"{value:.2f} ({name})" for name, value in networks)
    return f"{cells}; {_paper.SOURCES[effect.metric]}" if cells else "–"


def effects_table(claim: str, study: Study) -> str:
    """Each effect of a claim on each network, and over all of them, beside the paper's on the same network."""
    lines = [
        "| effect | network | preset | here | the paper | n | edition |",
        "| :-- | :-- | :-- | --: | --: | --: | :-- |",
    ]
    for effect in EFFECTS.get(claim, ()):
        for preset, find in WHERE[claim].items():
            found = find(study)
            rows = [(place, ratio) for place in found if (ratio := effect.at(place)) is not None]
            for place, ratio in rows:
                value = effect.ablated() if claim in ABLATED else effect.paper(place.network)
                theirs = "–" if value is None else f"{value:.2f}" + (" (VGG16)" if claim in ABLATED else "")
                edition = "second" if place.is_second else "first"
                cells = [
                    effect.what,
                    place.network,
                    f"`{preset}`",
                    told(ratio),
                    theirs,
                    str(ratio.photographs),
                    edition,
                ]
                lines.append(f"| {' | '.join(cells)} |")
            if len(rows) > 1 and (over := effect.over(found)) is not None:
                cells = [
                    effect.what,
                    f"**all {over.networks}**",
                    f"`{preset}`",
                    f"**{told(over)}**",
                    "",
                    str(over.photographs),
                ]
                lines.append(f"| {' | '.join(cells)} | |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""
