"""A file with networks, and files of weights: as torch names them, and as one had better not load them."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
import torch

NET = """
from torch import nn


def small():
    network = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    network.input_size, network.labels = 16, ["cat", "dog"]
    return network


def fails():
    raise RuntimeError("no")
"""


def put_weights(weights: Any, content: object, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a file into the cache as the weights of a network, named by its hash as torch names its files."""
    torch.save(content, cache / "file.pth")
    digest = hashlib.sha256((cache / "file.pth").read_bytes()).hexdigest()[:8]
    file = (cache / "file.pth").rename(cache / f"net-{digest}.pth")
    monkeypatch.setattr(weights.value, "url", f"https://example.org/{file.name}")
    return file


class RunsCode:
    """Unpickled carelessly, it makes the folder it names."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.trace),)
