"""``fei reproduce``: does a result come out again?"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fei.cli import _options as opt
from fei.cli._common import FAILURE, print_json, say
from fei.common.consent import trusting

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Hard clipping amplifies round-off: what maps and scores keep across thread counts, formats and versions.
SPEARMAN, SCORE = 0.95, 0.02
WEIGHTS = "weights"
_MOST_OF_DIGEST = 12


def reproduce(
    result: Annotated[
        str,
        typer.Argument(
            metavar="RESULT",
            help="A record of 'fei explain' (.json), RUN#KEY for a unit of a run, or what 'fei bench show' printed.",
            show_default=False,
        ),
    ],
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Torch's threads; as many as then if not given.", show_default=False),
    ] = None,
    device: opt.Device = "auto",
    trust_code: opt.TrustCode = False,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Compute a result again and tell whether it came out the same; the exit code is 1 if not.

    Where thread count, memory format or versions differ from then, maps need a rank correlation of 0.95, and insertion
    may differ by 0.02: single bits do not survive that. Where none of them differs, all bits must be the same.
    """
    from fei.cli._bench_reproduce import repeat

    with trusting(trust_code):
        again = repeat(result, threads, device, progress=not as_json and sys.stderr.isatty())
    if as_json:
        print_json({"schema": 1, "result": result, **again.document()})
    else:
        say(f"{result}: {again.sentence()}")
    raise typer.Exit(0 if again.matched else FAILURE)


@dataclass(frozen=True)
class Repetition:
    """A result then and now.

    Attributes:
        identical: Whether all bits are the same.
        conditions: What was otherwise, by name: then and now.
        spearman: Rank correlation of the two maps, where there are both.
        scores: The scores that tolerance is about, by name: then and now.
    """

    identical: bool
    conditions: dict[str, tuple[Any, Any]]
    spearman: float | None
    scores: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def close(self) -> bool:
        """Whether the difference is one that round-off explains."""
        alike = self.spearman is None or self.spearman >= SPEARMAN
        known = self.spearman is not None or bool(self.scores)
        return known and alike and all(abs(then - now) <= SCORE for then, now in self.scores.values())

    @property
    def matched(self) -> bool:
        """The same bits, or close where other conditions explain it; other weights are another network."""
        return self.identical or (bool(self.conditions) and self.close and WEIGHTS not in self.conditions)

    def document(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "matched": self.matched,
            "verdict": "identical" if self.identical else "within tolerance" if self.close else "different",
            "conditions": {name: list(pair) for name, pair in self.conditions.items()},
            "spearman": self.spearman,
            "scores": {name: list(pair) for name, pair in self.scores.items()},
            "tolerance": {"spearman": SPEARMAN, "score": SCORE},
        }

    def sentence(self) -> str:
        """The verdict in words, with what it rests on."""
        pairs = ((name, *map(_brief, pair)) for name, pair in self.conditions.items())
        changed = ", ".join(f"{name} {then}, now {now}" for name, then, now in pairs)
        if self.identical:
            return f"the same bits{f', although the conditions differ ({changed})' if changed else ''}."
        facts = [] if self.spearman is None else [f"rank correlation of the maps {self.spearman:.4f}"]
        worst = sorted(self.scores.items(), key=lambda entry: -abs(entry[1][0] - entry[1][1]))[:3]
        facts += [f"{name} {then:.4f}, now {now:.4f}" for name, (then, now) in worst]
        how = f" ({'; '.join(facts)})" if facts else ""
        if WEIGHTS in self.conditions:
            return f"not the same network{how}; the conditions differ: {changed}."
        if self.close and changed:
            return f"not the same bits, but within tolerance{how}; the conditions differ: {changed}."
        if self.close:
            return f"not the same bits{how}, although nothing that is recorded differs; another processor may be why."
        return f"not the same: outside of tolerance{how}{f'; the conditions differ: {changed}' if changed else ''}."


def _brief(value: Any) -> str:
    """A condition as it is told: a digest by its beginning."""
    text = str(value)
    return f"{text[:_MOST_OF_DIGEST]}…" if isinstance(value, str) and len(text) == 64 else text


def rank_correlation(first: NDArray[np.float32], second: NDArray[np.float32]) -> float | None:
    """Spearman's ρ of two maps; None where one of them is constant or their sizes differ."""
    from scipy.stats import spearmanr

    if first.shape != second.shape or first.min() == first.max() or second.min() == second.max():
        return None
    return float(spearmanr(first.ravel(), second.ravel()).statistic)
