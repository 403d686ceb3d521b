"""No step waits for its device: run on one that has no values, where to ask for one is an error."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import fei
from fei.core import quantiles
from fei.core.clipgrad import get_rule
from fei.core.optimization import Group, Optimization
from fei.core.pathway import Pathway
from fei.core.quantiles import project
from fei.core.sites import Site

pytestmark = pytest.mark.slow

SITE = Site("1", 0, ("relu", 0), activation=True)


def network():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))


def test_a_value_that_is_asked_for_is_an_error():
    value = torch.zeros(1, device="meta")
    for ask in (bool, float, torch.Tensor.tolist, torch.Tensor.item, torch.Tensor.nonzero, torch.Tensor.cpu):
        with pytest.raises((NotImplementedError, RuntimeError)):
            ask(value)


@pytest.mark.parametrize("preset", ["fei", "preview", "fast", "paper"])
@pytest.mark.parametrize("nesting", ["independent", "cumulative", "shared"])
def test_no_step_asks_the_device(preset, nesting, monkeypatch):
    """In few rounds of a projection: each round runs the same operations, which are slow where there are no values."""
    if preset == "paper" and nesting == "shared":
        pytest.skip("masks that share a field are projected")
    monkeypatch.setattr(quantiles, "_UNASKED", 2)
    settings = fei.FEI(network(), preset=preset, nesting=nesting, steps=2, focus=0.0, prior=0.0).settings
    with torch.device("meta"):
        model, images = network(), torch.zeros(2, 3, 70, 70)
        pathway = Pathway(model, [SITE], get_rule("vm"))
        group = Group(images, lambda step, rows: images[[row % 2 for row in rows]], None, torch.zeros(2).long(), 4)
        steps = []
        result = Optimization(pathway, group, settings).run(lambda: steps.append(1))
    assert len(steps) == 2
    assert result.alphas.device.type == "meta"


class Rounds(TorchDispatchMode):
    """Counts the rounds of a projection, each of which moves all values once, into the same memory."""

    made = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.made += func is torch.ops.aten.sub.out
        return func(*args, **kwargs or {})


def test_where_nobody_asks_sixteen_rounds_are_made():
    values, areas = torch.zeros(3, 50, device="meta"), torch.full((3,), 0.5, device="meta")
    with Rounds() as rounds:
        project(values, areas)
    assert rounds.made == 16


def test_rounds_that_nobody_asks_for_change_nothing(monkeypatch):
    """Where the device is not asked whether it is done, there are more rounds; the masks are the same."""
    values = torch.rand(5, 9000, generator=torch.Generator().manual_seed(0)) * 3 - 1
    areas = torch.tensor([0.9, 0.7, 0.5, 0.3, 0.1])
    asked = project(values, areas)
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda self: False))
    unasked = project(values, areas)
    torch.testing.assert_close(unasked, asked, rtol=0, atol=1e-6)
