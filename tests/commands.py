"""The command line in tests: a folder to work in, and a command run in this process."""

import numpy as np
import pytest
from PIL import Image

from fei.cli import main

NETWORK = """
import torch
from torch import nn


def net():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        body = [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 6, 3, padding=1), nn.ReLU()]
        model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
    model.input_size, model.labels = 16, ["dark", "bright", "striped"]
    return model
"""


def run(*words):
    """Run a command; its exit code."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code


def furnish(folder, network, *images, size=(20, 20)):
    """Write a network and images of noise (the same ones every time) into a folder."""
    (folder / "net.py").write_text(network, encoding="utf-8")
    rng = np.random.default_rng(0)
    for name in images:
        (folder / name).parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (*size, 3), dtype=np.uint8)).save(folder / name)
    return folder
