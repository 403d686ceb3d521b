"""Measuring attributions: from outside, inside the network, and with diagnostics that catch gaming.

Every metric is a function, with a declaration in the same file: `describe` tells its title and what a larger number
means, `declared` lists all.
"""

from fei.metrics.agreement import agreement_matrix, iou_at, rank_correlation
from fei.metrics.attention import Divergence, attention_divergence
from fei.metrics.black_image import BlackImage, black_image, wilson_interval
from fei.metrics.complexity import gini, rank_total_variation
from fei.metrics.confidence import average_drop, average_increase, road
from fei.metrics.cost import Cost, measure_cost
from fei.metrics.curve import Curve
from fei.metrics.declaration import Metric, Subject, declared, describe, group_of, groups, own
from fei.metrics.evaluation import Evaluation, deletion, evaluate, insertion, internal
from fei.metrics.grid import GridPointing, grid_pointing_game
from fei.metrics.localization import energy_pointing_game, pointing_game
from fei.metrics.randomization import Randomization, cascading_randomization, map_similarity
from fei.metrics.reliance import Reliance, reliance
from fei.metrics.sensitivity import infidelity, max_sensitivity
from fei.metrics.similarity import Similarity
from fei.metrics.summary import Mean, Summary, bootstrap_interval
from fei.metrics.trust import (
    ClassSensitivity,
    ComplexityRise,
    Likeness,
    Stability,
    WeightSensitivity,
    class_sensitivity,
    classifier_randomization,
    emprt,
    stability,
    weight_sensitivity,
)

HIGHER_IS_BETTER = {name: metric.higher_is_better for name, metric in own().items()}

__all__ = [
    "HIGHER_IS_BETTER",
    "BlackImage",
    "ClassSensitivity",
    "ComplexityRise",
    "Cost",
    "Curve",
    "Divergence",
    "Evaluation",
    "GridPointing",
    "Likeness",
    "Mean",
    "Metric",
    "Randomization",
    "Reliance",
    "Similarity",
    "Stability",
    "Subject",
    "Summary",
    "WeightSensitivity",
    "agreement_matrix",
    "attention_divergence",
    "average_drop",
    "average_increase",
    "black_image",
    "bootstrap_interval",
    "cascading_randomization",
    "class_sensitivity",
    "classifier_randomization",
    "declared",
    "deletion",
    "describe",
    "emprt",
    "energy_pointing_game",
    "evaluate",
    "gini",
    "grid_pointing_game",
    "group_of",
    "groups",
    "infidelity",
    "insertion",
    "internal",
    "iou_at",
    "map_similarity",
    "max_sensitivity",
    "measure_cost",
    "pointing_game",
    "rank_correlation",
    "rank_total_variation",
    "reliance",
    "road",
    "stability",
    "weight_sensitivity",
    "wilson_interval",
]
