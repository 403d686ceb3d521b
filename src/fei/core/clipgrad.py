r"""Selective gradient clipping: the seven rules (paper, section 3.6 and appendix "Derivation").

Let γ be the gradient of the loss with respect to a unit's activation h̃ on the perturbed image, and h the unit's
activation on the original image. Gradient descent *raises* h̃ where γ ≤ 0 and *lowers* it where γ > 0. Every rule
splits units into those that must not rise and those that must not fall, and zeroes the gradients that would. A unit
must not rise where h̃ > h (value matching) or h ≤ 0 (binary matching), and must not fall elsewhere; a rule blocks the
one, the other or both:

    γ̃ = max(γ, 0)  where the unit must not rise  [rules that block rises],
        min(γ, 0)  where it must not fall        [rules that block falls],        γ elsewhere.

Which units these are depends on the forward pass alone and is kept as the sign of a number, the *margin*: where its
sign bit is clear the unit must not rise. Comparisons, selections and booleans cost several times as much on a CPU as
the few passes of plain arithmetic over memory that are used here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fei.errors import InputError


@dataclass(frozen=True)
class Matching:
    """What a rule compares.

    Attributes:
        keep: What is kept of the original activation h.
        margin: The margin from that and h̃, with memory it may use for it; ``None`` where `keep` gives the margin
            itself, as h̃ plays no part.
    """

    keep: Callable[[Tensor], Tensor]
    margin: Callable[[Tensor, Tensor, Tensor | None], Tensor] | None = None


@dataclass(frozen=True)
class Block:
    """What a rule forbids.

    Attributes:
        guard: What the gradient is held against, from the margin, which may be overwritten.
        clip: The clipped gradient from the gradient and the guard, in the given memory or in new one.
    """

    guard: Callable[[Tensor], Tensor]
    clip: Callable[[Tensor, Tensor, Tensor | None], Tensor]


def _excess(reference: Tensor, activation: Tensor, memory: Tensor | None) -> Tensor:
    # not h̃ − h: where both are equal the sign bit must be set, and a difference of zero has it clear
    return torch.sub(reference, activation, out=memory).neg_()


def _was_inactive(h: Tensor) -> Tensor:
    return 0 - h  # not −h: the sign bit of zero must be clear


def _lowest(margin: Tensor) -> Tensor:
    """0 where the unit must not rise, −∞ elsewhere."""
    return _infinite(margin).clamp_(max=0)


def _highest(margin: Tensor) -> Tensor:
    """0 where the unit must not fall, ∞ elsewhere."""
    return _infinite(margin).clamp_(min=0)


def _infinite(margin: Tensor) -> Tensor:
    return torch.copysign(margin.new_tensor(torch.inf), margin, out=margin)


def _agreeing(grad: Tensor, margin: Tensor, memory: Tensor | None) -> Tensor:
    """γ where it has the sign of the margin, else 0: halfway between γ and ±|γ|, which is exact."""
    return torch.copysign(grad, margin, out=memory).lerp_(grad, 0.5)


def _at_least(grad: Tensor, lowest: Tensor, memory: Tensor | None) -> Tensor:
    return torch.maximum(grad, lowest, out=memory)


def _at_most(grad: Tensor, highest: Tensor, memory: Tensor | None) -> Tensor:
    return torch.minimum(grad, highest, out=memory)


VALUE = Matching(torch.clone, _excess)
BINARY = Matching(_was_inactive)
RISE = Block(_lowest, _at_least)
FALL = Block(_highest, _at_most)
BOTH = Block(lambda margin: margin, _agreeing)


@dataclass(frozen=True)
class Rule:
    """One row of the table: what is compared, and what is blocked."""

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
        return self.matching is not None and self.matching.margin is not None

    def keep(self, reference: Tensor) -> Tensor:
        """What is kept of h, in memory of its own, for all the passes to come."""
        assert self.matching is not None  # noqa: S101  # asked of rules that constrain only
        kept = self.matching.keep(reference)
        return self.block.guard(kept) if self.matching.margin is None else kept

    def guard(self, kept: Tensor, activation: Tensor, memory: Tensor | None = None) -> Tensor:
        """What the gradient of this activation will be held against, perhaps in the given memory."""
        if self.matching is None or self.matching.margin is None:
            return kept
        return self.block.guard(self.matching.margin(kept, activation, memory))

    def clip(self, grad: Tensor, guard: Tensor, *, spend: bool = False) -> Tensor:
        """The gradient without what this rule forbids; a new tensor, or with `spend` the guard's memory."""
        guard = guard.to(grad.dtype)
        return self.block.clip(grad, guard, guard if spend else None)


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
    rule = RULES.get(name.lower()) if isinstance(name, str) else None
    if rule is None:
        raise InputError(f"unknown clipping rule {name!r}; choose one of {', '.join(RULES)}")
    return rule


def clip_gradient(grad: Tensor, reference: Tensor, activation: Tensor, rule: str) -> Tensor:
    """ClipGrad(γ, h, h̃, rule): the gradient with the forbidden directions set to zero.

    Args:
        grad: γ, the gradient of the loss with respect to `activation`.
        reference: h, the activation on the original image.
        activation: h̃, the activation on the perturbed image.
        rule: "vm", "ivm", "avm", "ibm", "bm", "abm" or "none".

    Returns:
        A new tensor shaped like `grad`; with "none", `grad` itself.
    """
    chosen = get_rule(rule)
    if not grad.shape == reference.shape == activation.shape:
        raise InputError(
            "`grad`, `reference` and `activation` must have one shape; "
            f"got {tuple(grad.shape)}, {tuple(reference.shape)} and {tuple(activation.shape)}"
        )
    if not chosen.constrains:
        return grad
    return chosen.clip(grad, chosen.guard(chosen.keep(reference), activation))
