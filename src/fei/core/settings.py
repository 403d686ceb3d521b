"""Every option of FEI in one frozen record, with the presets, checked once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fei.core.checks import check_count, check_size, is_number
from fei.core.clipgrad import get_rule
from fei.core.scoring import Score, check_score
from fei.core.sites import RESIDUALS, SiteSelection, check_kind
from fei.errors import InputError

CONSTRAINTS = ("penalty", "projection", "l1", "none")
PAPER_QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"constraint": "penalty", "steps": 100},
    "fast": {"constraint": "projection", "steps": 20},
}
# What suits the constraint where neither the caller nor the preset says otherwise.
_LEARNING_RATE = {"penalty": 1.0, "l1": 1.0, "none": 1.0, "projection": 0.3}
_FROM_PRESET = frozenset({"quantiles", "steps", "lr", "constraint", "init", "early_stop"})
_INIT = {"penalty": "zero", "l1": "zero", "none": "zero", "projection": "area"}


@dataclass(frozen=True)
class Settings:
    """The options of `fei.FEI`; see there for what they mean."""

    variant: str
    preset: str
    quantiles: tuple[float, ...]
    steps: int
    beta: float
    lr: float
    constraint: str
    reduction: str
    init: str | float
    nesting: str
    sites: SiteSelection
    residual: str
    objective: str
    score: Score
    early_stop: float | None
    seed: int

    @property
    def one_mask(self) -> bool:
        """Whether there is a single mask without an area (the ablations), instead of one a quantile."""
        return self.constraint in {"l1", "none"}

    @property
    def areas(self) -> tuple[float, ...]:
        """The area asked of each mask: 1 − q, or q where the mask says what to delete."""
        if self.objective == "deletion":
            return self.quantiles
        return tuple(1 - q for q in self.quantiles)


def make_settings(preset: str, **given: Any) -> Settings:
    """Settings from a preset and what the caller gave; options that may be ``None`` follow the preset then."""
    _choice("preset", preset, tuple(PRESETS))
    chosen = dict(PRESETS[preset])
    chosen.update({name: value for name, value in given.items() if value is not None or name not in _FROM_PRESET})
    chosen.setdefault("quantiles", PAPER_QUANTILES)
    chosen.setdefault("early_stop", None)
    _choice("constraint", chosen["constraint"], CONSTRAINTS)
    chosen.setdefault("lr", _LEARNING_RATE[chosen["constraint"]])
    chosen.setdefault("init", _INIT[chosen["constraint"]])
    chosen["variant"] = chosen["variant"].lower() if isinstance(chosen["variant"], str) else chosen["variant"]
    chosen["quantiles"] = _quantiles(chosen["quantiles"])
    settings = Settings(preset=preset, **chosen)
    _check(settings)
    return settings


def _check(s: Settings) -> None:
    get_rule(s.variant)
    _choice("reduction", s.reduction, ("sum", "mean"))
    _choice("nesting", s.nesting, ("independent", "cumulative"))
    _choice("objective", s.objective, ("insertion", "deletion", "both"))
    _choice("residual", s.residual, RESIDUALS)
    if isinstance(s.sites, str):
        check_kind(s.sites)
    elif not callable(s.sites) and not (isinstance(s.sites, Sequence) and all(isinstance(n, str) for n in s.sites)):
        raise InputError(f"`sites` must be a word, a list of module names or a predicate; got {s.sites!r}")
    check_score(s.score)
    check_count("steps", s.steps)
    check_size("beta", s.beta)
    check_size("lr", s.lr)
    if s.early_stop is not None:
        check_size("early_stop", s.early_stop)
    if isinstance(s.seed, bool) or not isinstance(s.seed, int):
        raise InputError(f"`seed` must be a whole number; got {s.seed!r}")
    if isinstance(s.init, str):
        _choice("init", s.init, ("zero", "area"))
    elif not (is_number(s.init) and 0 <= s.init <= 1):
        raise InputError(f"`init` must be 'zero', 'area' or a number in [0,1]; got {s.init!r}")
    if s.one_mask and s.init == "area":
        raise InputError(f"init='area' needs an area; constraint={s.constraint!r} has none, pass 'zero' or a number")
    if s.one_mask and s.nesting == "cumulative":
        raise InputError(f"nesting='cumulative' needs one mask a quantile; constraint={s.constraint!r} has only one")


def _quantiles(values: Any) -> tuple[float, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str) or not values or not all(map(is_number, values)):
        raise InputError(f"`quantiles` must be a non-empty sequence of numbers; got {values!r}")
    quantiles = tuple(float(q) for q in values)
    if not all(0 < 1 - q < 1 for q in quantiles):
        raise InputError(f"`quantiles` must lie strictly between 0 and 1; got {list(quantiles)}")
    if any(a >= b for a, b in itertools.pairwise(quantiles)):
        raise InputError(f"`quantiles` must be in increasing order without repeats; got {list(quantiles)}")
    return quantiles


def _choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InputError(f"unknown {name} {value!r}; choose one of {', '.join(allowed)}")
