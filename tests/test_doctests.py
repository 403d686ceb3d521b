"""The examples in the docstrings: each public function and class has one, and it gives what it says."""

import doctest

import pytest
import torch
from commands import furnish
from networks import small_cnn
from PIL import Image
from public_names import is_code, public_names
from tiny_vit import tiny_vit

import fei
import fei.auditing
import fei.bench
import fei.errors
import fei.service
from fei.models import Classifier

pytestmark = pytest.mark.slow

CODE = {f"{value.__module__}.{value.__qualname__}": value for value in public_names().values() if is_code(value)}
NETWORK = """
import torch
from torch import nn


def net():
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        body = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2),
        )
        for layer in (body[0], body[2]):
            layer.weight.abs_()
            layer.bias.zero_()
        middle = body[:-1](torch.full((1, 3, 16, 16), 0.4)).sum()
        body[-1].weight.copy_(torch.tensor([[20.0], [-20.0]]).expand(2, 4))
        body[-1].bias.copy_(torch.tensor([-20.0, 20.0]) * middle)
    body.input_size, body.labels = 16, ["bright", "dark"]
    return body
"""
PLAN = """
name = "tiny"
[[pairs]]
model = "net.py:net"
data = "photos"
[[methods]]
name = "saliency"
[metrics]
protocols = ["fei-paper"]
internal = false
"""
FINDER = doctest.DocTestFinder(recurse=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where examples find a network that tells bright from dark, a plan, photographs, and bright and dark pictures."""
    folder = furnish(tmp_path_factory.mktemp("examples"), NETWORK, "photos/a.png", "photos/b.png")
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    for label, level in (("bright", 200), ("dark", 20)):
        (folder / "classes" / label).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (16, 16), (level + number,) * 3).save(folder / "classes" / label / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def names():
    """What examples take for granted."""
    drawn = torch.Generator().manual_seed(0)
    labels = ["dark", "bright", "striped", "spotted"]
    return {
        "fei": fei,
        "torch": torch,
        "model": Classifier(small_cnn(), input_size=16, labels=labels).eval(),
        "transformer": tiny_vit(),  # of pictures of 12 × 16
        "images": torch.rand(2, 3, 16, 16, generator=drawn),
        "maps": torch.rand(2, 1, 16, 16, generator=drawn),
    }


@pytest.mark.parametrize("name", CODE)
def test_the_example_gives_what_it_says(name, names, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (example,) = FINDER.find(CODE[name], name, globs=dict(names))
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    told = []
    runner.run(example, out=told.append)
    assert runner.failures == 0, "".join(told)
    assert example.examples, f"{name} has no example; write one into its docstring, under Examples:"
