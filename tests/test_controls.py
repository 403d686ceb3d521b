"""Controls: maps that never look at the network, checked by hand and against scipy."""

import math

import pytest
import torch
from networks import pictures, small_cnn
from scipy.ndimage import gaussian_filter, sobel
from torch import nn

import fei
from fei.metrics.perturbation import tie_fraction
from fei.models import Classifier

CONTROLS = ("random", "smooth-noise", "centre", "brightness", "edges")
every_control = pytest.mark.parametrize("name", CONTROLS)


def maps_of(name, x, model=None, seed=0):
    method = fei.methods.create(name)
    return method(model or small_cnn(channels=x.shape[1]), x, generator=torch.Generator().manual_seed(seed))[:, 0]


@every_control
def test_controls_ignore_the_network_and_the_target(name):
    x = pictures(2)
    assert torch.equal(maps_of(name, x, small_cnn(seed=5)), maps_of(name, x))
    method = fei.methods.create(name)
    assert torch.equal(method(small_cnn(), x, 3), method(small_cnn(), x, 0))


@every_control
def test_only_those_that_draw_depend_on_the_seed(name):
    x = pictures(2)
    assert torch.equal(maps_of(name, x, seed=1), maps_of(name, x)) == (name not in {"random", "smooth-noise"})


@every_control
def test_no_map_of_noise_has_many_ties(name):
    assert tie_fraction(maps_of(name, pictures(1, (224, 224)))).item() < 0.02


def test_centre_is_a_gaussian_around_the_middle():
    (found,) = maps_of("centre", pictures(1, (41, 81)))
    assert divmod(found.argmax().item(), 81) == (20, 40)
    assert found[20, 40].item() == pytest.approx(1, abs=1e-4)
    quarter = 81 / 4
    assert found[0, 0].item() == pytest.approx(math.exp(-(20**2 + 40**2) / quarter**2 / 2), rel=0.03)
    assert found[20, 60].item() == pytest.approx(math.exp(-((20 / quarter) ** 2) / 2), rel=0.01)


def test_brightness_is_luma_where_there_are_colours_and_else_the_mean():
    x = torch.zeros(1, 3, 2, 2)
    x[0, 0, 0, 0], x[0, 1, 0, 1], x[0, 2, 1, 0], x[0, :, 1, 1] = 1, 1, 1, 0.5
    known = maps_of("brightness", x, Classifier(small_cnn(), input_size=2).eval())
    assert known.flatten().tolist() == pytest.approx([0.299, 0.587, 0.114, 0.5])
    assert maps_of("brightness", x).flatten().tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.5])
    four = pictures(1, (2, 2), channels=4)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)).eval()
    assert torch.allclose(maps_of("brightness", four, network), four.mean(1))


def test_edges_are_sobels_blurred():
    x = pictures(1, (20, 30), channels=1).double()
    plane = x[0, 0].numpy()
    size = sum((sobel(plane, axis, mode="nearest") / 8) ** 2 for axis in (0, 1)) ** 0.5
    expected = torch.from_numpy(gaussian_filter(size, 1.0, mode="nearest", truncate=3))
    assert torch.allclose(maps_of("edges", x, small_cnn(channels=1).double())[0], expected)


def test_edges_of_a_step_are_at_the_step():
    x = torch.zeros(1, 3, 9, 9)
    x[..., 5:] = 1
    (found,) = maps_of("edges", x)
    assert found[4].argsort(descending=True, stable=True)[:2].sort().values.tolist() == [4, 5]
    assert found[4, 0] == 0


def test_smooth_noise_is_smooth_and_each_images_own():
    x = pictures(2, (224, 112))
    one, two = maps_of("smooth-noise", x)
    assert not torch.equal(one, two)
    assert torch.equal(maps_of("smooth-noise", x.flip(0))[0], two)
    far, near = one.double()[:, ::32].diff(dim=1).std(), one.double().diff(dim=1).std()
    assert near < far / 10  # of white noise both are the same
    rough = fei.metrics.rank_total_variation(maps_of("random", x)[:, None])
    assert (fei.metrics.rank_total_variation(torch.stack([one, two])[:, None]) < rough / 10).all()
