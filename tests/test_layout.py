"""Rows channels last on a CPU: the same numbers to rounding, and networks that refuse them are served as before."""

from unittest import mock

import pytest
import torch
from networks import pictures, small_cnn
from torch import nn
from torch.nn import functional as F

from fei import methods, metrics
from fei.common.layout import Layout
from fei.errors import ModelError

FORWARD_ONLY = ("rise", "scorecam", "occlusion")
OPTIONS = {"rise": {"samples": 20}, "smoothgrad": {"samples": 3}, "integrated-gradients": {"steps": 4}}


class Listening(nn.Module):
    """A network that notes how the rows it was given lie in memory."""

    def __init__(self):
        super().__init__()
        self.net, self.layouts = small_cnn(), []

    def forward(self, x):
        self.layouts.append(x.is_contiguous(memory_format=torch.channels_last))
        return self.net(x)


class Viewing(nn.Module):
    """Reshapes with ``view``: rows that are channels last are refused, with `merging` only where there are several."""

    def __init__(self, merging):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head, self.merging = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 3), merging

    def forward(self, x):
        features = F.relu(self.conv(x))
        count, channels, height, width = features.shape
        if self.merging:
            flat = features.view(count * channels, height, width).mean((1, 2)).reshape(count, channels)
        else:
            flat = features.view(count, channels, height * width).mean(2)
        return self.head(flat)


def contiguous(_, network, rows):
    return network(rows.contiguous())


def evaluated(model):
    x = pictures()
    maps = torch.rand(2, 1, 12, 16, generator=torch.Generator().manual_seed(1))
    return metrics.evaluate(model, x, maps, batch_size=4)


def numbers(result):
    inside = [similar.numbers for similar in result.internal.values()]
    return torch.cat(
        [result.insertion.scores.flatten(), result.deletion.scores.flatten()]
        + [value.flatten().to(torch.float32) for similar in inside for value in similar.values()]
    )


def test_rows_reach_the_network_channels_last():
    model = Listening().eval()
    evaluated(model)
    finding, *measuring = model.layouts[1:]  # two passes find the layers
    assert finding is False
    assert measuring
    assert all(measuring)


@pytest.mark.parametrize("network", [small_cnn, lambda: Viewing(False).eval(), lambda: Viewing(True).eval()])
def test_metrics_are_those_of_contiguous_rows(network):
    found = evaluated(network())
    with mock.patch.object(Layout, "run", contiguous):
        expected = evaluated(network())
    torch.testing.assert_close(numbers(found), numbers(expected), rtol=1e-5, atol=1e-6)
    assert found.forwards == expected.forwards


@pytest.mark.parametrize("name", [*FORWARD_ONLY, "smoothgrad", "integrated-gradients", "gradient-shap"])
@pytest.mark.parametrize("network", [small_cnn, lambda: Viewing(False).eval(), lambda: Viewing(True).eval()])
def test_maps_are_those_of_contiguous_rows(name, network):
    method, x = methods.create(name, **OPTIONS.get(name, {})), pictures()
    found = method(network(), x, 1)
    with mock.patch.object(Layout, "run", contiguous):
        expected = method(network(), x, 1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_a_refusal_is_remembered_and_other_errors_are_raised():
    calls = []

    def refusing(rows):
        calls.append(rows.is_contiguous())
        return rows.view(-1)

    layout, rows = Layout(), pictures()
    assert torch.equal(layout.run(refusing, rows), rows.flatten())
    layout.run(refusing, rows)
    assert calls == [False, True, True]

    def broken(rows):
        raise RuntimeError("out of something")

    with pytest.raises(RuntimeError, match="out of something"):
        layout.run(broken, rows)
    taken = Layout()
    taken.run(lambda rows: rows.sum(), rows)
    with pytest.raises(RuntimeError, match="out of something"):
        taken.run(broken, rows)
    taken.run(lambda rows: calls.append(rows.is_contiguous()), rows)
    assert calls[-1] is False  # what broke did not break for its layout


def test_a_network_that_cannot_take_the_image_says_so():
    with pytest.raises(ModelError, match="The model failed on an input of shape"):
        metrics.insertion(small_cnn(channels=1), pictures(), torch.rand(2, 1, 12, 16))
