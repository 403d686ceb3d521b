"""Measuring attributions: from outside, inside the network, and with diagnostics that catch gaming.

Every metric is a function; what a larger number means is data (`HIGHER_IS_BETTER`).
"""

from fei.metrics.curve import Curve
from fei.metrics.evaluation import HIGHER_IS_BETTER, Evaluation, deletion, evaluate, insertion, internal
from fei.metrics.similarity import Similarity

__all__ = ["HIGHER_IS_BETTER", "Curve", "Evaluation", "Similarity", "deletion", "evaluate", "insertion", "internal"]
