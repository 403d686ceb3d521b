"""A network of two convolutions, as a file that a worker process can load: ``reliability/_tiny.py:tiny``."""

import torch
from torch import nn

SIZE = 32


def tiny() -> nn.Module:
    """Convolution, BatchNorm, in-place ReLU, convolution, ReLU and a linear head; weights from a seed of their own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)),
            *(nn.MaxPool2d(2), nn.Conv2d(8, 12, 3, padding=1), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5)),
        ).eval()
    network.input_size = SIZE
    network.feature_layers = ["2", "5"]
    return network
