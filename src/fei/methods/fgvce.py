"""Shapley saliency after FG-VCE: what each point of the feature map adds to the logit."""

from __future__ import annotations

import torch
from torch import Tensor

from fei.core.scoring import Score, check_score
from fei.errors import InputError
from fei.methods._baseline import Baseline, Task
from fei.methods._head import Head
from fei.methods.cam import cam_site, upsample


class FGVCE(Baseline):
    """Shapley value of each position of the last feature map: φ_p = E over orders of s(A_{S∪p}) − s(A_S).

    The saliency part of Zhang, Yin & Lee (CVPR 2025), labelled "Shapley saliency after FG-VCE": their counterfactual
    search needs a partner image and is not part of it, and their own code is not public. S are the positions before p
    in a random order, absent positions hold the zero vector. Sampled with antithetic permutations (each order and its
    reverse), exactly complete: every permutation's contributions sum to s(A) − s(0). One forward pass, and
    permutations × positions forward passes of the head. Written from the definition of the Shapley value.

    Args:
        permutations: Orders to sample, an even number.
        layer: Module whose output is A; by default the last spatial feature map.
        score: s, "logit" or "softmax".
    """

    one_by_one = True
    parts = 100

    def __init__(self, *, permutations: int = 64, layer: str | None = None, score: Score = "logit") -> None:
        check_score(score)
        if not isinstance(permutations, int) or permutations < 2 or permutations % 2:
            raise InputError(f"`permutations` must be an even whole number of at least 2; got {permutations!r}")
        self.permutations, self.layer, self.score = permutations, layer, score

    @torch.no_grad()
    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        head = Head(task.model, task.images, cam_site(task, self.layer))
        size = head.features.shape[2:]
        points = size[0] * size[1]
        generator = task.generator("permutations")
        values = torch.zeros(points, device=task.images.device)
        for pair in range(self.permutations // 2):
            order = torch.randperm(points, generator=generator).to(task.images.device)
            for one in (order, order.flip(0)):
                values[one] += self._contributions(task, head, one) / self.permutations
            task.advance(2 * (pair + 1) / self.permutations)
        return upsample(values.view(1, *size), task.images)

    def _contributions(self, task: Task, head: Head, order: Tensor) -> Tensor:
        """What each point in an order adds to the score of those before it."""
        points = len(order)
        rank = torch.empty_like(order).scatter_(0, order, torch.arange(points, device=order.device))
        scores = []
        for present in torch.arange(points + 1, device=order.device).split(task.rows):
            mask = (rank < present[:, None]).view(-1, 1, *head.features.shape[2:])
            scores.append(task.phi(head(head.features * mask), copies=len(present)))
        return torch.cat(scores).diff().to(torch.float32)
