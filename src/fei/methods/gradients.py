"""Methods that read the input gradient: Saliency and Integrated Gradients, computed by captum."""

from __future__ import annotations

from collections.abc import Callable

from captum.attr import IntegratedGradients as CaptumIntegratedGradients
from captum.attr import Saliency as CaptumSaliency
from torch import Tensor

from fei.core.scoring import Score, check_score, evaluate
from fei.errors import InputError
from fei.methods._baseline import Baseline, Task


def _scored(task: Task) -> Callable[[Tensor], Tensor]:
    """The network as captum wants it: one number a row, also for images that captum has repeated along the batch."""

    def forward(rows: Tensor) -> Tensor:
        chosen = task.chosen.repeat(-(-len(rows) // len(task.chosen)))[: len(rows)]
        return evaluate(task.model(rows), task.target, chosen, task.score)

    return forward


class Saliency(Baseline):
    """Saliency: the largest absolute gradient over the colour channels, max_c |∂s/∂x_c|.

    Simonyan, Vedaldi & Zisserman 2013, "Deep inside convolutional networks". One forward and one backward pass.

    Args:
        score: s, "logit" as in the original, or "softmax".
    """

    def __init__(self, *, score: Score = "logit") -> None:
        check_score(score)
        self.score = score

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        gradient: Tensor = CaptumSaliency(_scored(task)).attribute(task.images.requires_grad_(), abs=True)
        return gradient.amax(1)


class IntegratedGradients(Baseline):
    """Integrated gradients: Σ_c (x − R)_c · ∫₀¹ ∂s(R + t(x − R))/∂x_c dt, by the Gauss-Legendre rule.

    Sundararajan, Taly & Yan 2017, "Axiomatic attribution for deep networks". `steps` forward and backward passes. The
    path starts at the reference R of the call; zero in a normalised input space would be the mean colour, not black.

    Args:
        steps: Points of the integral.
        score: s, "logit" or "softmax".
    """

    def __init__(self, *, steps: int = 50, score: Score = "logit") -> None:
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise InputError(f"`steps` must be a whole number of at least 1; got {steps!r}")
        check_score(score)
        self.steps, self.score = steps, score

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        attribution: Tensor = CaptumIntegratedGradients(_scored(task)).attribute(
            task.images,
            baselines=task.reference.expand_as(task.images),
            n_steps=self.steps,
            internal_batch_size=max(len(task.images), task.rows),
        )
        return attribution.sum(1)
