"""Methods that read the attention patterns A of a vision transformer: how much each token takes from each other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fei.core.scoring import Score
from fei.methods._baseline import Baseline, Task
from fei.methods._head import Head
from fei.methods._patterns import Patterns, patterns_of, rows_read
from fei.methods.cam import upsample


@dataclass(eq=False, kw_only=True)
class Rollout(Baseline):
    """Attention rollout: the row that is read of Â_L ⋯ Â_1, Â = (mean over heads of A + I), its rows summing to 1.

    Abnar & Zuidema 2020, "Quantifying attention flow in transformers", as vit-explain (MIT) has it for images. The row
    is that of the class token; of a network that pools its tokens, the mean over the rows that it pools. It asks for no
    class: the map is the same for all of them. One forward pass, and a backward pass to the last block that tells which
    rows are read. Written from the paper.
    """

    observes = True

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        seen = patterns_of(task)
        (gradient,) = seen.gradients(task.phi(seen.output), [-1])
        row = rows_read(gradient)
        for pattern in reversed(seen.values):
            mixed = pattern.mean(1)
            mixed = mixed + torch.eye(mixed.shape[-1], dtype=mixed.dtype, device=mixed.device)
            row = _times(row, mixed / mixed.sum(-1, keepdim=True))
        return _map(task, seen, row)


@dataclass(eq=False, kw_only=True)
class GenericAttention(Baseline):
    """Generic attention: the row that is read of R, where R ← R + mean_h((∂s/∂A ⊙ A)⁺)·R from block to block, R_0 = I.

    Chefer, Gur & Wolf 2021, "Generic attention-model explainability for interpreting bi-modal and encoder-decoder
    transformers", the rule for self-attention. The row is that of the class token; of a network that pools its tokens,
    the mean over the rows that it pools. One forward and one backward pass. Written from the paper (the authors' code
    is under MIT).

    Args:
        score: s, "logit" as in the original, or "softmax".
    """

    score: Score = "logit"

    observes = True

    def maps(self, task: Task) -> Tensor:
        """Maps of a chunk."""
        seen = patterns_of(task)
        gradients = seen.gradients(task.phi(seen.output))
        row = rows_read(gradients[-1])
        for pattern, gradient in zip(reversed(seen.values), reversed(gradients), strict=True):
            row = row + _times(row, (gradient * pattern).relu().mean(1))
        return _map(task, seen, row)


@dataclass(eq=False, kw_only=True)
class LeGrad(Baseline):
    """LeGrad: mean over blocks, heads and queries of (∂s_l/∂A_l)⁺, s_l being the score of the tokens behind block l.

    Bousselham et al. 2025, "LeGrad: an explainability method for vision transformers via feature formation
    sensitivity". s_l is what the network's own last norm and head make of the tokens that come out of block l. The
    authors (MIT) scale the map to [0,1] in the end; here it is left as it is. One forward pass, and for each block a
    pass through the head and a backward pass to the block's own attention. Written from the paper.

    Args:
        score: s, "logit" as in the original, or "softmax".
    """

    score: Score = "logit"

    one_by_one = True

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        seen = patterns_of(task, tokens=True)
        head = Head(task.model, task.images, seen.stream.output)
        total = torch.zeros((), device=task.images.device)
        for block, tokens in enumerate(seen.tokens):
            (gradient,) = seen.gradients(task.phi(head(tokens)), [block], again=True)
            total = total + gradient.relu().mean((1, 2)) / len(seen.tokens)
        return _map(task, seen, total)


def _times(row: Tensor, matrix: Tensor) -> Tensor:
    """Rows (n, T) by matrices (n, T, T)."""
    return (row[:, None] @ matrix)[:, 0]


def _map(task: Task, seen: Patterns, row: Tensor) -> Tensor:
    """Numbers of tokens (n, T) as a map of the images' size."""
    return upsample(seen.stream.grid.to_map(row[..., None])[:, 0], task.images)
