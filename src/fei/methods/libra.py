"""FullGrad on balanced gradients: a transformer made linear around what it computes, biases and all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fei.core.balance import balanced_relevance
from fei.core.checks import explained_failure
from fei.core.scoring import Score
from fei.methods._baseline import Baseline, Task
from fei.methods.cam import upsample


@dataclass(eq=False, kw_only=True)
class Libra(Baseline):
    """Libra FullGrad+: Σ over blocks of Σ_c x·∂s/∂x at the tokens x that go in, plus Σ over biases b of Σ_c b·∂s/∂y.

    Mehri, Baghshah & Pilehvar 2025, "LibraGrad: balancing gradient flow for universally better vision transformer
    attributions". The gradient is balanced: attention patterns softmax(QKᵀ), the gate f(z)/z of an activation (Φ(z) of
    GELU) and the scale 1/σ of LayerNorm are held fixed. Then x·∂s/∂x of all tokens before any block and b·∂s/∂y of all
    biases y = … + b behind it add up to the logit, which plain gradients do not. Decided here, where the paper leaves
    room: biases are those of linear layers and of LayerNorm on tokens; an activation that multiplies another value (as
    in SwiGLU) is held fixed as a whole; patches keep their sign and nothing is scaled. One forward and one backward
    pass. Written from the paper.

    Args:
        score: s, "logit" as in the original, or "softmax".
    """

    score: Score = "logit"

    observes = True

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        stream, flow = task.survey.stream, task.survey.flow

        def score(output: Any) -> Tensor:
            return task.phi(task.observe(lambda: output))

        with explained_failure(task.images):
            tokens = balanced_relevance(task.model, flow, stream, task.images, score)
        return upsample(stream.grid.to_map(tokens[..., None])[:, 0], task.images)
