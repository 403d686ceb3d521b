"""Every option of FEI in one frozen record, with the presets, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fei.core.checks import check_choice, check_count, check_shares, check_size, is_number
from fei.core.clipgrad import get_rule
from fei.core.scoring import Score, check_score
from fei.core.sites import RESIDUALS, SiteSelection, check_kind
from fei.errors import InputError
from fei.references import Reference

PAPER_QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
_FLAGSHIP: dict[str, Any] = {
    "variant": "ibm",
    "constraint": "projection",
    "steps": 20,
    "focus": 1.0,
    "prior": 0.5,
    "smooth": 3.0,
    "reference": "color+clouds:resample",
}
PRESETS: dict[str, dict[str, Any]] = {
    "fei": _FLAGSHIP,
    "preview": _FLAGSHIP | {"nesting": "shared", "tries": 3, "coarse": 24.0, "steps": 3},
    "fast": {"constraint": "projection", "steps": 20},
    "paper": {"constraint": "penalty", "steps": 100},
}
FLAGSHIP, PREVIEW = "fei", "preview"
# What suits the constraint where neither the caller nor the preset says otherwise: the step size and the start.
_ADAM = {"lr": 1.0, "init": "zero"}
_CONSTRAINTS = {"penalty": _ADAM, "projection": {"lr": 0.3, "init": "area"}, "l1": _ADAM, "none": _ADAM}
_CHOICES = {
    "reduction": ("sum", "mean"),
    "nesting": ("independent", "cumulative", "shared"),
    "objective": ("insertion", "deletion", "both"),
    "residual": RESIDUALS,
}


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
    contrast: float = 0.0
    focus: float = 0.0
    prior: float = 0.0
    smooth: float = 0.0
    reference: str = "color"
    coarse: float | None = None
    tries: int | None = None

    @property
    def one_mask(self) -> bool:
        """Whether there is a single mask without an area (the ablations), instead of one per quantile."""
        return self.constraint in {"l1", "none"}

    @property
    def masks(self) -> int:
        """How many masks there are for each image."""
        return 1 if self.one_mask else len(self.quantiles)

    def smoothing(self, step: int) -> float:
        """σ of the smoothing at a step: from `coarse` at the first to `smooth` at the last, by the same factor each."""
        if not self.coarse or self.steps == 1:
            return self.smooth
        return self.coarse * math.pow(self.smooth / self.coarse, step / (self.steps - 1))

    @property
    def tried(self) -> int:
        """How many masks of an image are tried at each step; all where the steps would not reach each of them."""
        if self.tries is None or self.tries >= self.masks or self.steps * self.tries < self.masks:
            return self.masks
        return self.tries

    @property
    def areas(self) -> tuple[float, ...]:
        """The area asked of each mask: 1 − q, or q where the mask says what to delete."""
        if self.objective == "deletion":
            return self.quantiles
        return tuple(1 - q for q in self.quantiles)


# What came after version 0.1, with the value at which it does nothing.
LATER: dict[str, Any] = {
    "contrast": 0.0,
    "focus": 0.0,
    "prior": 0.0,
    "smooth": 0.0,
    "reference": "color",
    "coarse": None,
    "tries": None,
}


def as_stored(config: Mapping[str, Any], attends: bool) -> dict[str, Any]:
    """Settings as results keep them, on a network with or without attention.

    Without it `sites="auto"` does what "activation", the default of version 0.1, did and does; it is called that, so
    that results from before keep their keys.
    """
    if config.get("sites") == "auto" and not attends:
        return {**config, "sites": "activation"}
    return dict(config)


_COMMON = {"variant": "vm", "quantiles": PAPER_QUANTILES, "early_stop": None, "nesting": "independent"} | LATER


def make_settings(preset: str | None, **given: Any) -> Settings:
    """Settings from a preset and what the caller gave; an option that is ``None`` follows the preset.

    Without a preset a variant by itself is the paper's, and no variant means the flagship.
    """
    preset = preset or (FLAGSHIP if given["variant"] is None else "fast")
    check_choice("preset", preset, PRESETS)
    chosen = _COMMON | PRESETS[preset]
    chosen |= {name: value for name, value in given.items() if value is not None}
    check_choice("constraint", chosen["constraint"], _CONSTRAINTS)
    chosen = dict.fromkeys(given) | _CONSTRAINTS[chosen["constraint"]] | chosen
    # a preset's way of sharing gives way to what the caller asked for
    if given.get("nesting") is None and (chosen["constraint"] != "projection" or chosen["early_stop"] is not None):
        chosen["nesting"] = "independent"
    if given.get("tries") is None and chosen["nesting"] != "shared":
        chosen["tries"] = None
    chosen["variant"] = chosen["variant"].lower() if isinstance(chosen["variant"], str) else chosen["variant"]
    chosen["quantiles"] = check_shares("quantiles", chosen["quantiles"], increasing=True)
    settings = Settings(preset=preset, **chosen)
    _check(settings)
    return settings


def previewed(settings: Settings) -> Settings | None:
    """The same in fewer passes, with preset "preview"; ``None`` where that would be another map, or no quicker."""
    if (settings.preset, settings.variant) != (FLAGSHIP, PRESETS[FLAGSHIP]["variant"]):
        return None
    quicker = {name for name, value in PRESETS[PREVIEW].items() if value != PRESETS[FLAGSHIP].get(name)}
    kept = {name: value for name, value in vars(settings).items() if name not in {"preset", *quicker}}
    preview = make_settings(PREVIEW, **kept)
    return preview if preview.steps * preview.tried < settings.steps * settings.tried else None


def _check(s: Settings) -> None:
    get_rule(s.variant)
    for name, allowed in _CHOICES.items():
        check_choice(name, getattr(s, name), allowed)
    if isinstance(s.sites, str):
        check_kind(s.sites)
    elif not callable(s.sites) and not (isinstance(s.sites, Sequence) and all(isinstance(n, str) for n in s.sites)):
        raise InputError(f"`sites` must be a word, a list of module names or a predicate; got {s.sites!r}.")
    check_score(s.score)
    check_count("steps", s.steps)
    check_size("beta", s.beta)
    check_size("lr", s.lr)
    check_size("smooth", s.smooth)
    if s.coarse is not None:
        check_size("coarse", s.coarse)
        if not s.smooth:
            raise InputError("`coarse` is where the smoothing starts; give `smooth`, where it ends, above 0.")
    for name in ("contrast", "focus", "prior"):
        if not (is_number(getattr(s, name)) and 0 <= getattr(s, name) <= 1):
            raise InputError(f"`{name}` is {getattr(s, name)!r}; give a number from 0 (the paper) to 1.")
    if not isinstance(s.reference, str):
        raise InputError(f"`reference` must be a name, such as 'color:resample'; got {s.reference!r}.")
    Reference.of(s.reference)  # refuses what does not exist
    if s.contrast and not get_rule(s.variant).constrains:
        raise InputError("`contrast` does nothing but rescale where nothing is clipped; give it with another variant.")
    if s.early_stop is not None:
        check_size("early_stop", s.early_stop)
    if isinstance(s.seed, bool) or not isinstance(s.seed, int):
        raise InputError(f"`seed` must be a whole number; got {s.seed!r}.")
    if isinstance(s.init, str):
        check_choice("init", s.init, ("zero", "area"))
    elif not (is_number(s.init) and 0 <= s.init <= 1):
        raise InputError(f"`init` must be 'zero', 'area' or a number in [0,1]; got {s.init!r}.")
    if s.one_mask and s.init == "area":
        raise InputError(f"`init='area'` needs an area; constraint={s.constraint!r} has none, pass 'zero' or a number.")
    if s.one_mask and s.nesting != "independent":
        raise InputError(f"`nesting={s.nesting!r}` needs several masks; constraint={s.constraint!r} has only one.")
    _check_shared(s)


def _check_shared(s: Settings) -> None:
    if s.nesting == "shared":
        if s.constraint != "projection":
            raise InputError(f"`nesting='shared'` needs constraint='projection'; got {s.constraint!r}.")
        if s.early_stop is not None:
            raise InputError("`early_stop` freezes masks one by one, and shared ones move together; leave it out.")
    if s.tries is not None:
        check_count("tries", s.tries)
        if s.nesting != "shared":
            raise InputError(f"`tries` needs nesting='shared', where masks learn from each other; got {s.nesting!r}.")


def described(settings: Settings) -> dict[str, Any]:
    """Settings as plain data; a callable is known by its name."""

    def plain(value: Any) -> Any:
        if callable(value):
            return getattr(value, "__qualname__", repr(value))
        return list(value) if isinstance(value, (tuple, list)) else value

    told = {name: plain(value) for name, value in vars(settings).items()}
    # they are told only where they do something, so that results from before keep their keys
    return {name: value for name, value in told.items() if name not in LATER or value != LATER[name]}
