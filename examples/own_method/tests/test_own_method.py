"""What is known of the method and the metric without running them: values by hand, and that fei finds them."""

import pytest
import torch
from own_method import peak_share
from torch import nn

import fei


@pytest.fixture
def model():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    return fei.models.Classifier(network.eval(), input_size=16)


def test_fei_finds_them():
    assert "standing-out" in fei.methods.available()
    assert fei.methods.describe("standing-out").source == "own-method 0.1.0"
    assert fei.metrics.describe("peak-share").title == "share of the peak"


def test_a_bright_pixel_stands_out_by_what_its_surroundings_lack(model):
    image = torch.zeros(1, 3, 16, 16)
    image[:, :, 8, 8] = 1
    found = fei.methods.create("standing-out", window=3)(model, image)
    assert found[0, 0, 8, 8] == pytest.approx(8 / 9)
    assert found[0, 0, 7, 7] == pytest.approx(1 / 9)
    assert found[0, 0, 0, 0] == 0


def test_options_are_checked():
    with pytest.raises(ValueError, match="`window` is 4; give an odd number of at least 3"):
        fei.methods.create("standing-out", window=4)


def test_the_peak_of_a_map_with_one_strong_pixel_in_a_hundred(model):
    maps = torch.ones(1, 1, 10, 10)
    maps[0, 0, 3, 3] = -101
    subject = fei.metrics.Subject(model, torch.rand(1, 3, 10, 10), maps, 0, (), None, 0, None)
    assert peak_share(subject).tolist() == pytest.approx([101 / 200])
