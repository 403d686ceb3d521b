"""The paper's own numbers, by its tables: what ours stand beside."""

from __future__ import annotations

from collections.abc import Mapping

Rows = Mapping[str, tuple[float, ...]]
# Networks as the plans name them: photographs of ImageNet where nothing else is said.
# Table 1, "Quantitative Faithfulness Evaluation": insertion and deletion.
OUTSIDE: Mapping[str, Rows] = {
    "CUB, VGG16": {
        "FEI-IBM": (0.753, 0.051), "FEI-AVM": (0.732, 0.055), "FEI-VM": (0.724, 0.072), "FEI-IVM": (0.713, 0.079),
        "FEI-NONE": (0.778, 0.095), "Grad-CAM": (0.728, 0.079), "Grad-CAM++": (0.718, 0.093),
        "Lift-CAM": (0.724, 0.077), "IIA": (0.709, 0.091), "Saliency": (0.498, 0.043),
        "Integrated Gradients": (0.097, 0.033),
    },
    "CUB, ResNet50": {
        "FEI-IBM": (0.647, 0.044), "FEI-AVM": (0.636, 0.054), "FEI-VM": (0.634, 0.054), "FEI-IVM": (0.615, 0.059),
        "FEI-NONE": (0.772, 0.112), "Grad-CAM": (0.612, 0.098), "Grad-CAM++": (0.610, 0.096),
        "Lift-CAM": (0.610, 0.097), "IIA": (0.607, 0.098), "Saliency": (0.339, 0.082),
        "Integrated Gradients": (0.118, 0.050),
    },
    "VGG16": {
        "FEI-IBM": (0.566, 0.081), "FEI-AVM": (0.557, 0.080), "FEI-VM": (0.512, 0.117), "FEI-IVM": (0.489, 0.130),
        "FEI-NONE": (0.729, 0.185), "Grad-CAM": (0.453, 0.102), "Grad-CAM++": (0.477, 0.119),
        "Lift-CAM": (0.483, 0.097), "IIA": (0.437, 0.109), "Saliency": (0.210, 0.076),
        "Integrated Gradients": (0.098, 0.039),
    },
    "ResNet50": {
        "FEI-IBM": (0.626, 0.093), "FEI-AVM": (0.601, 0.113), "FEI-VM": (0.590, 0.121), "FEI-IVM": (0.561, 0.135),
        "FEI-NONE": (0.849, 0.207), "Grad-CAM": (0.563, 0.139), "Grad-CAM++": (0.553, 0.142),
        "Lift-CAM": (0.554, 0.141), "IIA": (0.549, 0.134), "Saliency": (0.257, 0.125),
        "Integrated Gradients": (0.154, 0.065),
    },
}  # fmt: skip
# Table 3, and for birds the last layers of tables 5 (ResNet50) and 6 (VGG16): MSE and cosine.
INSIDE: Mapping[str, Rows] = {
    "CUB, VGG16": {
        "FEI-VM": (0.349, 0.822), "FEI-IVM": (0.371, 0.807), "FEI-IBM": (0.402, 0.804), "FEI-AVM": (0.649, 0.758),
        "FEI-NONE": (3.437, 0.480), "Grad-CAM": (0.461, 0.759), "Grad-CAM++": (0.355, 0.813),
        "Lift-CAM": (0.410, 0.783), "IIA": (0.491, 0.745), "Saliency": (0.824, 0.588),
        "Integrated Gradients": (1.438, 0.266),
    },
    "CUB, ResNet50": {
        "FEI-VM": (0.267, 0.855), "FEI-IVM": (0.295, 0.840), "FEI-IBM": (0.280, 0.849), "FEI-AVM": (0.261, 0.859),
        "FEI-NONE": (1.058, 0.699), "Grad-CAM": (0.326, 0.822), "Grad-CAM++": (0.320, 0.826),
        "Lift-CAM": (0.322, 0.825), "IIA": (0.326, 0.822), "Saliency": (0.611, 0.648),
        "Integrated Gradients": (0.833, 0.510),
    },
    "VGG16": {
        "FEI-VM": (0.545, 0.688), "FEI-IVM": (0.567, 0.656), "FEI-IBM": (0.629, 0.658), "FEI-AVM": (0.952, 0.628),
        "FEI-NONE": (3.619, 0.344), "Grad-CAM": (0.755, 0.537), "Grad-CAM++": (0.573, 0.640),
        "Lift-CAM": (0.648, 0.594), "IIA": (0.765, 0.531), "Saliency": (0.984, 0.370),
        "Integrated Gradients": (1.173, 0.260),
    },
    "ResNet50": {
        "FEI-VM": (0.412, 0.758), "FEI-IVM": (0.435, 0.743), "FEI-IBM": (0.415, 0.757), "FEI-AVM": (0.399, 0.766),
        "FEI-NONE": (1.494, 0.592), "Grad-CAM": (0.505, 0.701), "Grad-CAM++": (0.495, 0.708),
        "Lift-CAM": (0.500, 0.704), "IIA": (0.514, 0.694), "Saliency": (0.736, 0.546),
        "Integrated Gradients": (0.817, 0.485),
    },
}  # fmt: skip
# Table 2, "Diagnostic test: black image defense": percent of the trials.
BLACK: Mapping[str, Mapping[str, float]] = {
    "AlexNet": {"FGVis": 0.1, "FEI-IBM": 0.4, "FEI-IVM": 0.2, "FEI-AVM": 93.8, "FEI-VM": 0.1, "FEI-NONE": 92.8},
    "ResNet50": {"FGVis": 0.1, "FEI-IBM": 0.1, "FEI-IVM": 0.0, "FEI-AVM": 0.1, "FEI-VM": 0.1, "FEI-NONE": 97.1},
    "VGG16": {"FGVis": 0.1, "FEI-IBM": 0.1, "FEI-IVM": 0.1, "FEI-AVM": 95.2, "FEI-VM": 0.1, "FEI-NONE": 94.7},
    "GoogLeNet": {"FGVis": 0.1, "FEI-IBM": 0.0, "FEI-IVM": 0.2, "FEI-AVM": 0.0, "FEI-VM": 0.0, "FEI-NONE": 97.9},
}  # fmt: skip
# Table 4, "Ablation Study" (VGG16, ImageNet): insertion, deletion, MSE and cosine, by our labels of its rows.
ABLATION: Rows = {
    "FEI-VM": (0.512, 0.117, 0.545, 0.688),
    "preset=paper": (0.512, 0.117, 0.545, 0.688),
    "3: .1 .5 .9": (0.509, 0.107, 0.568, 0.683),
    "9: .1 .2 … .9": (0.532, 0.125, 0.547, 0.690),
    "first 2/13 of the sites": (0.550, 0.114, 0.610, 0.664),
    "first 4/13 of the sites": (0.544, 0.113, 0.584, 0.673),
    "first 7/13 of the sites": (0.525, 0.113, 0.559, 0.681),
    "last 6/13 of the sites": (0.430, 0.069, 0.717, 0.603),
    "L1 from 1, β = 0.01": (0.464, 0.147, 0.576, 0.648),
    "L1 from 1, β = 0.003": (0.464, 0.147, 0.576, 0.648),  # our best weight, beside its best, which is .01
    "no constraint of the area": (0.127, 0.156, 1.118, 0.290),
    "50 steps": (0.491, 0.088, 0.624, 0.663),
    "200 steps": (0.516, 0.125, 0.527, 0.692),
    "300 steps": (0.518, 0.129, 0.521, 0.693),
}
_OUT, _IN, _ALL = ("insertion", "deletion"), ("mse", "cosine"), ("insertion", "deletion", "mse", "cosine")
SOURCES: Mapping[str, str] = {
    "insertion": "table 1", "deletion": "table 1", "mse": "tables 3, 5 and 6", "cosine": "tables 3, 5 and 6",
    "ablation": "table 4", "fired": "table 2",
}  # fmt: skip


def number(network: str, label: str, metric: str) -> float | None:
    """What the paper reports for a row on a network; None where it reports nothing."""
    tables, names = (OUTSIDE, _OUT) if metric in _OUT else (INSIDE, _IN)
    row = tables.get(network, {}).get(label)
    return None if row is None else row[names.index(metric)]


def ablated(label: str, metric: str) -> float | None:
    """What the paper's ablation reports for a row; None where it has none."""
    row = ABLATION.get(label)
    return None if row is None else row[_ALL.index(metric)]
