r"""Selective gradient clipping: the seven rules (paper, section 3.6 and appendix "Derivation").

Let γ be the gradient of the loss with respect to a unit's activation h̃ on the perturbed image, and h the unit's
activation on the original image. Gradient descent moves h̃ along ρ = −γ: it rises where γ ≤ 0 and falls where γ > 0.
Every rule splits units into those that must not rise, h̃ > h (value matching) or h ≤ 0 (binary matching), and those that
must not fall, the others, and it blocks the one, the other or both:

    ρ̃ = min(ρ, 0)  where the unit must not rise  [rules that block rises],
        max(ρ, 0)  where it must not fall        [rules that block falls],        ρ elsewhere.

Which unit is which depends on the forward pass alone and is kept as the sign of a number that points the unit's way
*home*: h − h̃ for value matching. Where its sign bit is clear the unit may rise, where it is set it may fall; a rule
that blocks both lets ρ pass where it points home. Comparisons, selections and booleans cost several times as much on a
CPU as the few passes of plain arithmetic over memory that are used here, and so ρ is what is back-propagated, not γ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fei.core.checks import FLOATING, check_choice, kind_of
from fei.errors import InputError


@dataclass(frozen=True)
class Matching:
    """What a rule compares.

    Attributes:
        keep: What is kept of the original activation h.
        home: The way home from that and h̃, with memory it may use for it; ``None`` where `keep` gives it already, as
            h̃ plays no part.

    Examples:
        >>> from fei.core.clipgrad import VALUE
        >>> VALUE.home(torch.tensor([2.0]), torch.tensor([3.0]), None)  # from 3 back to 2
        tensor([-1.])
    """

    keep: Callable[[Tensor], Tensor]
    home: Callable[[Tensor, Tensor, Tensor | None], Tensor] | None = None


@dataclass(frozen=True)
class Block:
    """What a rule forbids.

    Attributes:
        guard: What ρ is held against, from the way home, which may be overwritten.
        clip: What is left of ρ, from ρ and the guard, in the given memory or in new one.

    Examples:
        >>> from fei.core.clipgrad import RISE
        >>> guard = RISE.guard(torch.tensor([-1.0, 1.0]))  # the first must not rise
        >>> RISE.clip(torch.tensor([5.0, 5.0]), guard, None)
        tensor([0., 5.])
    """

    guard: Callable[[Tensor], Tensor]
    clip: Callable[[Tensor, Tensor, Tensor | None], Tensor]


def _value(h: Tensor) -> Tensor:
    return h + 0  # a copy in which no zero is negative: −0 − 0 would be −0, and −0 is not below 0


def _back(reference: Tensor, activation: Tensor, memory: Tensor | None) -> Tensor:
    return torch.sub(reference, activation, out=memory)  # the difference of equal numbers is +0: it may rise


def _activity(h: Tensor) -> Tensor:
    return (0 - h).neg_()  # not h itself: a zero, of either sign, was inactive and may fall


def _highest(home: Tensor) -> Tensor:
    """0 where the unit must not rise, ∞ elsewhere."""
    return _infinite(home).clamp_(min=0)


def _lowest(home: Tensor) -> Tensor:
    """0 where the unit must not fall, −∞ elsewhere."""
    return _infinite(home).clamp_(max=0)


def _infinite(home: Tensor) -> Tensor:
    return torch.copysign(home.new_full((), torch.inf), home, out=home)


def _homeward(rho: Tensor, home: Tensor, memory: Tensor | None) -> Tensor:
    """ρ where it has the sign of the way home, else 0: halfway between ρ and ±|ρ|, which is exact."""
    return torch.copysign(rho, home, out=memory).lerp_(rho, 0.5)


def _at_most(rho: Tensor, highest: Tensor, memory: Tensor | None) -> Tensor:
    return torch.minimum(rho, highest, out=memory)


def _at_least(rho: Tensor, lowest: Tensor, memory: Tensor | None) -> Tensor:
    return torch.maximum(rho, lowest, out=memory)


VALUE = Matching(_value, _back)
BINARY = Matching(_activity)
RISE = Block(_highest, _at_most)
FALL = Block(_lowest, _at_least)
BOTH = Block(lambda home: home, _homeward)


@dataclass(frozen=True)
class Rule:
    """One row of the table: what is compared, and what is blocked.

    Examples:
        >>> from fei.core.clipgrad import BINARY, RULES, BOTH, Rule
        >>> Rule(BINARY, BOTH).constrains, RULES["none"].constrains
        (True, False)
    """

    matching: Matching | None = None
    block: Block = BOTH

    @property
    def constrains(self) -> bool:
        """Whether the rule ever zeroes a gradient."""
        return self.matching is not None

    @property
    def binary(self) -> bool:
        """Whether the rule looks at h alone, as active or inactive."""
        return self.matching is BINARY

    @property
    def follows(self) -> bool:
        """Whether guards are made anew in each pass."""
        return self.matching is not None and self.matching.home is not None

    @property
    def local(self) -> bool:
        """Whether each unit is surely clipped for itself, so that some of them can be without the others."""
        return self.matching in (VALUE, BINARY) and self.block in (RISE, FALL, BOTH)

    def keep(self, reference: Tensor) -> Tensor:
        """What is kept of h, in memory of its own, for all the passes to come."""
        assert self.matching is not None  # noqa: S101  # asked of rules that constrain only
        kept = self.matching.keep(reference)
        return self.block.guard(kept) if self.matching.home is None else kept

    def guard(self, kept: Tensor, activation: Tensor, memory: Tensor | None = None) -> Tensor:
        """What the direction of this activation will be held against, perhaps in the given memory."""
        if self.matching is None or self.matching.home is None:
            return kept
        return self.block.guard(self.matching.home(kept, activation, memory))

    def clip(self, rho: Tensor, guard: Tensor) -> Tensor:
        """What this rule leaves of ρ = −γ; a new tensor."""
        return self.block.clip(rho, guard.to(rho.dtype), None)


RULES: dict[str, Rule] = {
    "vm": Rule(VALUE, BOTH),
    "ivm": Rule(VALUE, RISE),
    "avm": Rule(VALUE, FALL),
    "bm": Rule(BINARY, BOTH),
    "ibm": Rule(BINARY, RISE),
    "abm": Rule(BINARY, FALL),
    "none": Rule(),
}


def get_rule(name: str) -> Rule:
    """The rule of that name, in any letter case."""
    chosen = name.lower() if isinstance(name, str) else name
    check_choice("clipping rule", chosen, RULES)
    return RULES[chosen]


def clip_gradient(grad: Tensor, reference: Tensor, activation: Tensor, rule: str) -> Tensor:
    """ClipGrad(γ, h, h̃, rule): the gradient with the forbidden directions set to zero.

    Args:
        grad: γ, the gradient of the loss with respect to `activation`. As are the others, finite and at most half the
            largest number of its precision.
        reference: h, the activation on the original image.
        activation: h̃, the activation on the perturbed image.
        rule: "vm", "ivm", "avm", "ibm", "bm", "abm" or "none".

    Returns:
        A new tensor shaped like `grad`, without a graph of its own; with "none", `grad` itself.

    Examples:
        >>> gradient, original = torch.tensor([-1.0, -1.0]), torch.tensor([0.0, 2.0])
        >>> now = torch.tensor([1.0, 1.0])  # the first neuron is above what it was, the second below
        >>> fei.clip_gradient(gradient, original, now, "vm")  # this gradient would raise both: only the second may
        tensor([-0., -1.])
    """
    chosen = get_rule(rule)
    for name, value in (("grad", grad), ("reference", reference), ("activation", activation)):
        if not isinstance(value, Tensor) or value.dtype not in FLOATING:
            raise InputError(f"`{name}` must be a floating-point tensor; got {kind_of(value)}.")
        if not (value.abs() <= torch.finfo(value.dtype).max / 2).all():
            raise InputError(f"`{name}` holds NaN, infinite or too large values; scale the loss down.")
    if not grad.shape == reference.shape == activation.shape:
        raise InputError(
            "`grad`, `reference` and `activation` must have one shape; "
            f"got {tuple(grad.shape)}, {tuple(reference.shape)} and {tuple(activation.shape)}."
        )
    if not chosen.constrains:
        return grad
    return -chosen.clip(-grad.detach(), chosen.guard(chosen.keep(reference.detach()), activation.detach()))
