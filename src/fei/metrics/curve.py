"""A curve of scores over replaced fractions, and the number it comes to."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Curve:
    """Scores as pixels are replaced.

    Attributes:
        fractions: Share of pixels replaced at each point, (S,).
        scores: φ at each point, (N, S).
        auc: The number each curve comes to under the protocol's area rule, (N,).
        protocol: Id of the protocol.
        ties: Share of pixels whose map value another pixel has too, (N,).
        higher_is_better: Whether a larger `auc` means a more faithful map.

    Examples:
        >>> curve = fei.metrics.insertion(model, images, maps, protocol="fei-paper")
        >>> [round(share, 1) for share in curve.fractions.tolist()]
        [0.1, 0.3, 0.5, 0.7, 0.9]
        >>> curve.higher_is_better, curve.ties.tolist()
        (True, [0.0, 0.0])
    """

    fractions: Tensor
    scores: Tensor
    auc: Tensor
    protocol: str
    ties: Tensor
    higher_is_better: bool

    def __repr__(self) -> str:
        better = "higher" if self.higher_is_better else "lower"
        return (
            f"Curve({len(self.auc)} image(s), mean {float(self.auc.mean()):.3f}, {better} is better, {self.protocol})"
        )
