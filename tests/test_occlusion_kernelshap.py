"""Occlusion and KernelSHAP on models whose answer is known."""

import itertools
import math
import sys

import pytest
import torch
from networks import pictures, small_cnn
from torch import nn

from fei.errors import InputError, PackageError
from fei.methods.regions import KernelShap, Occlusion, segment

REFERENCE = torch.tensor([0.2, 0.4, 0.6]).view(3, 1, 1)


def linear_model(size):
    """One logit, Σ w·x; and w."""
    weights = torch.randn(3, *size, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Flatten(), nn.Linear(weights.numel(), 1)).eval()
    model[1].weight.data.copy_(weights.flatten()[None])
    return model, weights


def smooth_picture(size=(16, 16)):
    """A picture with four plain quarters, so that segments are where one would put them."""
    image = torch.rand(3, 2, 2, generator=torch.Generator().manual_seed(3))
    return nn.functional.interpolate(image[None], size)


# Occlusion


@pytest.mark.parametrize(("window", "stride"), [((3, 4), (2, 3)), ((2, 2), (2, 2)), ((7, 8), (1, 1)), ((4, 5), (3, 3))])
def test_occlusion_of_a_linear_model_by_hand(window, stride):
    """Also where the last windows stick out: they are cut off."""
    (height, width), x = (7, 8), pictures(1, (7, 8))
    model, weights = linear_model((height, width))
    lost = (weights * (x[0] - REFERENCE)).sum(0)
    total, count = torch.zeros(height, width), torch.zeros(height, width)
    for top, left in itertools.product(
        range(0, (math.ceil((height - window[0]) / stride[0]) + 1) * stride[0], stride[0]),
        range(0, (math.ceil((width - window[1]) / stride[1]) + 1) * stride[1], stride[1]),
    ):
        here = (slice(top, top + window[0]), slice(left, left + window[1]))
        total[here] += lost[here].sum()
        count[here] += 1
    maps = Occlusion(window=window, stride=stride)(model, x, 0, reference=REFERENCE, batch_size=3)
    torch.testing.assert_close(maps[0, 0], total / count, atol=1e-4, rtol=1e-4)


def test_occlusion_of_a_pixel_is_what_the_score_loses():
    model, x = small_cnn(), pictures(1)
    maps = Occlusion(window=1, stride=1)(model, x, 2, reference=0.5)
    for row, column in ((0, 0), (5, 9), (11, 15)):
        painted = x.clone()
        painted[..., row, column] = 0.5
        expected = (model(x) - model(painted))[0, 2].detach()
        torch.testing.assert_close(maps[0, 0, row, column], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("size", "window", "stride"),
    [((224, 224), (32, 32), (16, 16)), ((12, 16), (2, 2), (1, 1)), ((3, 2), (1, 1), (1, 1))],
)
def test_occlusion_scales_its_window_to_the_image(size, window, stride):
    assert Occlusion()._geometry(size) == (window, stride)


def test_occlusion_refusals():
    with pytest.raises(InputError, match="`window` must be a whole number of pixels of at least 1, or two of them"):
        Occlusion(window=0)
    with pytest.raises(InputError, match="`stride` must be"):
        Occlusion(stride=(1, 2, 3))
    with pytest.raises(InputError, match=r"`stride` \(5, 5\) is larger than the window \(4, 4\)"):
        Occlusion(window=4, stride=5)
    with pytest.raises(InputError, match=r"`stride` \(5, 5\) is larger than the window \(2, 2\)"):
        Occlusion(stride=5)(small_cnn(), pictures(1))
    with pytest.raises(InputError, match=r"`window` \(13, 4\) is larger than the image \(12, 16\)"):
        Occlusion(window=(13, 4))(small_cnn(), pictures(1))


# KernelSHAP


@pytest.mark.parametrize("batch_size", [1, 16])
def test_kernel_shap_of_a_linear_model_recovers_the_segment_sums(batch_size):
    x = smooth_picture() + 0.1 * pictures(1, (16, 16))
    model, weights = linear_model((16, 16))
    labels = segment(x[0], 9)
    assert 5 <= len(labels.unique()) <= 18
    lost = (weights * (x[0] - REFERENCE)).sum(0)
    sums = torch.stack([lost[labels == i].sum() for i in labels.unique()])
    maps = KernelShap(samples=80, segments=9)(model, x, 0, reference=REFERENCE, batch_size=batch_size)
    torch.testing.assert_close(maps[0, 0], sums[labels], atol=1e-2, rtol=1e-3)


def test_kernel_shap_approaches_shapley_values():
    """Four segments of a network that is not linear: all 16 coalitions are weighed by hand."""
    model, x = small_cnn(), smooth_picture()
    labels = segment(x[0], 4)
    players = labels.unique().tolist()
    assert len(players) == 4

    def score(coalition):
        kept = torch.isin(labels, torch.tensor(coalition, dtype=torch.long))
        return model(torch.where(kept, x, torch.tensor(0.5)))[0, 1].item()

    shapley = torch.zeros(4)
    for player in players:
        others = [p for p in players if p != player]
        for size in range(4):
            for group in itertools.combinations(others, size):
                weight = math.factorial(size) * math.factorial(3 - size) / math.factorial(4)
                shapley[player] += weight * (score([*group, player]) - score(list(group)))
    maps = KernelShap(samples=1500, segments=4)(model, x, 1, reference=0.5, batch_size=64)
    torch.testing.assert_close(maps[0, 0], shapley[labels], atol=0.03 * shapley.abs().max().item(), rtol=0)


def test_kernel_shap_is_efficient():
    """The values of the segments sum to s(x) − s(R)."""
    model, x = small_cnn(), smooth_picture()
    labels = segment(x[0], 9)
    maps = KernelShap(samples=100, segments=9)(model, x, 1, reference=0.5)
    total = sum(maps[0, 0][labels == i][0] for i in labels.unique())
    expected = (model(x) - model(torch.full_like(x, 0.5)))[0, 1].detach()
    torch.testing.assert_close(total, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    "image", [pictures(1, (40, 40))[0], torch.zeros(3, 40, 40), pictures(1, (40, 40), 1)[0] * 9 - 3]
)
def test_segments_are_many_even_where_there_is_nothing_to_find(image):
    labels = segment(image, 20)
    assert labels.shape == (40, 40)
    assert 10 <= len(labels.unique()) <= 40
    assert labels.unique().tolist() == list(range(int(labels.max()) + 1))


def test_kernel_shap_refusals(monkeypatch):
    with pytest.raises(InputError, match="`samples` must be a whole number of at least 2; got 1"):
        KernelShap(samples=1)
    with pytest.raises(InputError, match="`segments` must be a whole number of at least 2"):
        KernelShap(segments=1.5)
    with pytest.raises(InputError, match=r"`samples` is 5, too few to solve for \d+ segments; raise it or lower"):
        KernelShap(samples=5, segments=20)(small_cnn(), pictures(1))
    with pytest.raises(InputError, match=r"An image of \(1, 1\) pixels cannot be cut into segments"):
        segment(torch.zeros(3, 1, 1), 5)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(
        PackageError, match=r'needs scikit-learn, which is not installed; run pip install "fei\[shap\]"'
    ):
        KernelShap()
