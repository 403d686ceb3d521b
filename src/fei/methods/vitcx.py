"""ViT-CX: the channels of tokens as masks, merged where they are alike, each weighted by what is left of the class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fei.common.packages import need
from fei.core.checks import check_between, check_size
from fei.core.scoring import Score
from fei.core.stream import attention_in
from fei.methods._baseline import Baseline, Task, checked
from fei.methods.cam import features_at, upsample
from fei.methods.masking import unit_range
from fei.references import normalised_zero

_LEVELS = 1e9  # of distances that are told apart


@dataclass(eq=False, kw_only=True)
class ViTCX(Baseline):
    """ViT-CX: Σ_i w_i·m_i / Σ_i m_i over N merged masks m_i, divided by N, w_i = s(x⊙m_i + z) − s(x + z) + s(x).

    Xie, Li, Cao & Zhang 2023, "ViT-CX: causal explanation of vision transformers". Masks are the channels of the last
    tokens whose patches matter (the first norm of the last block), upsampled and scaled to [0,1] each. Those whose
    cosine distance is at most `distance` (complete linkage) are added up and scaled again. z is Gaussian noise of 0.1,
    in units of the network's normalised input, times 1 − m_i: what is masked away is the mean colour with noise, and
    s(x + z) takes off what the noise itself does. Two rows for each merged mask, no gradient. Written from the paper;
    linkage and noise as in the authors' code (CC0).

    Args:
        distance: Up to which masks are merged.
        noise: Deviation of the noise.
        layer: Module whose output has the channels; by default the deepest tokens whose patches matter.
        score: s, the "softmax" probability as in the original, or "logit".
    """

    distance: float = checked(0.1, check_between)
    noise: float = checked(0.1, check_size)
    layer: str | None = None
    score: Score = "softmax"

    observes = True
    one_by_one = True
    parts = 100

    @torch.no_grad()
    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        attention_in(task.model, task.survey.flow)  # refuses a network that has none
        masks = self._masks(task)
        if not len(masks):  # all channels are constant
            return torch.zeros_like(task.images[:, 0])
        rows = self._perturbed(task, masks)
        scores = [task.phi(task.run(task.images.clone()))]
        for first in range(0, 2 * len(masks), task.rows):
            index = torch.arange(first, first + task.rows).clamp(max=2 * len(masks) - 1)
            scores.append(task.phi(task.run(rows(index)), copies=len(index)))
            task.advance(min(1.0, (first + task.rows) / (2 * len(masks))))
        own, found = scores[0], torch.cat(scores[1:])[: 2 * len(masks)]
        weights = (found[: len(masks)] - found[len(masks) :] + own).to(masks)
        shares = masks / masks.sum(0).clamp(min=torch.finfo(masks.dtype).tiny)
        return (weights.view(-1, 1, 1) * shares).sum(0, keepdim=True) / len(masks)

    def _masks(self, task: Task) -> Tensor:
        """The merged masks (N, H, W)."""
        features = features_at(task, self.layer)[0]
        flat = features.flatten(1)
        features = features[flat.amin(1) < flat.amax(1)].to(torch.promote_types(features.dtype, torch.float32))
        if not len(features):
            return features
        masks = unit_range(upsample(features, task.images))
        groups = _clusters(masks.flatten(1), self.distance)
        merged = torch.stack([masks[groups == number].sum(0) for number in range(int(groups.max()) + 1)])
        return unit_range(merged)

    def _perturbed(self, task: Task, masks: Tensor) -> Callable[[Tensor], Tensor]:
        """Makes some of the 2·N rows: the masked images with noise, then the whole ones with the same noise."""
        zero, unit = normalised_zero(task.images, task.model), getattr(task.model, "std", None)
        scale = self.noise if not isinstance(unit, Tensor) else self.noise * unit.to(task.images)
        generator = task.generator("vit-cx")
        noise = torch.stack([torch.randn(task.images.shape[1:], generator=generator) for _ in range(len(masks))])

        def rows(index: Tensor) -> Tensor:
            which, masked = index % len(masks), (index < len(masks)).to(masks.device)
            mask = masks[which][:, None].to(task.images)
            added = noise[which].to(task.images) * scale * (1 - mask)
            shown = torch.where(masked.view(-1, 1, 1, 1), torch.lerp(zero, task.images, mask), task.images)
            return shown + added

        return rows


def _clusters(vectors: Tensor, distance: float) -> Tensor:
    """The number of the cluster of each row, from 0: cosine distance, complete linkage, cut at `distance`."""
    need("The method vit-cx", "bench", "scipy")
    from scipy.cluster.hierarchy import fcluster, linkage

    if len(vectors) == 1:
        return torch.zeros(1, dtype=torch.long)
    unit = F.normalize(vectors.double().cpu(), dim=1)
    above = torch.triu_indices(len(unit), len(unit), offset=1)
    apart = (1 - (unit @ unit.T)[above[0], above[1]]).clamp(min=0)
    apart = (apart * _LEVELS).round() / _LEVELS  # the same on every processor
    tree = linkage(apart.numpy(), method="complete")
    return torch.from_numpy(fcluster(tree, distance, criterion="distance")).long() - 1
