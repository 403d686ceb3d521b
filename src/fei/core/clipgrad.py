r"""Selective gradient clipping: the seven rules (paper, section 3.6 and appendix "Derivation").

Let γ be the gradient of the loss with respect to a unit's activation h̃ on the perturbed image, and h the unit's
activation on the original image. Gradient descent *raises* h̃ where γ ≤ 0 and *lowers* it where γ > 0. Every rule
splits units into those that must not rise and those that must not fall, and zeroes the gradients that would:

    γ̃ = 0   where  (γ ≤ 0 and ceiling)  [rules that block rises]
              or    (γ > 0 and not ceiling)  [rules that block falls],        γ̃ = γ elsewhere,

with the *ceiling* ``h̃ > h`` for value matching and ``h ≤ 0`` for binary matching. The ceiling depends on the forward
pass alone, so one boolean per unit is all that has to be kept until the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fei.errors import InputError

Ceiling = Callable[[Tensor, Tensor], Tensor]


def exceeds_reference(reference: Tensor, activation: Tensor) -> Tensor:
    """Value matching: the unit is above its original value, ``h̃ > h``."""
    return activation > reference


def was_inactive(reference: Tensor, activation: Tensor) -> Tensor:
    """Binary matching: the unit was inactive on the original image, ``h ≤ 0``; h̃ plays no part."""
    return reference <= 0


# Which gradients survive, as a comparison of the booleans (γ > 0) and (ceiling): for a unit under the ceiling only a
# fall (True) survives where rises are blocked, for one that is not only a rise (False) where falls are blocked.
BLOCK_BOTH, BLOCK_RISE, BLOCK_FALL = torch.eq, torch.ge, torch.le


@dataclass(frozen=True)
class Rule:
    """One row of the table: which ceiling, and what is blocked there."""

    ceiling: Ceiling | None = None
    survives: Callable[[Tensor, Tensor], Tensor] = BLOCK_BOTH

    @property
    def constrains(self) -> bool:
        """Whether the rule ever zeroes a gradient."""
        return self.ceiling is not None

    @property
    def binary(self) -> bool:
        """Whether the rule looks at h alone, as active or inactive."""
        return self.ceiling is was_inactive

    def clip(self, grad: Tensor, ceiling: Tensor, *, owned: bool = False) -> Tensor:
        """Zero the gradients this rule forbids; a new tensor, unless `grad` is the caller's own to change."""
        kept = self.survives(grad > 0, ceiling)
        return grad.mul_(kept) if owned else grad * kept


RULES: dict[str, Rule] = {
    "vm": Rule(exceeds_reference, BLOCK_BOTH),
    "ivm": Rule(exceeds_reference, BLOCK_RISE),
    "avm": Rule(exceeds_reference, BLOCK_FALL),
    "bm": Rule(was_inactive, BLOCK_BOTH),
    "ibm": Rule(was_inactive, BLOCK_RISE),
    "abm": Rule(was_inactive, BLOCK_FALL),
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
    if chosen.ceiling is None:
        return grad
    return chosen.clip(grad, chosen.ceiling(reference, activation))
