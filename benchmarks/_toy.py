"""A network that takes images of any size and no time, for `--toy`."""

import torch
from torch import nn


def toy() -> nn.Module:
    """Two convolutions and a linear head on RGB in [0, 1]; its weights come from a seed of their own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
            *(nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)),
        ).eval()
    network.input_size = 28
    network.feature_layers = ["2", "5"]
    return network
