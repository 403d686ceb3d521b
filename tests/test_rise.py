"""RISE against its exact expectation, from all grids and offsets there are."""

import itertools

import numpy as np
import pytest
import torch
from networks import pictures, small_cnn
from torch import nn

from fei.errors import InputError
from fei.methods.masking import RISE
from fei.models import Classifier

SIZE, CELL, P = (4, 5), (2, 3), 0.3  # a 2×2 grid; 5 columns make cells of 3, rounded up


def interpolation(cells, length):
    """Weights (length, cells) of linear interpolation between the centres of cells, the ends repeated."""
    weights = np.zeros((length, cells))
    for i in range(length):
        place = min(max((i + 0.5) * cells / length - 0.5, 0), cells - 1)
        low = min(int(place), cells - 2)
        weights[i, low], weights[i, low + 1] = low + 1 - place, place - low
    return weights


def every_mask():
    """All masks with their probabilities."""
    rows, columns = interpolation(2, 3 * CELL[0]), interpolation(2, 3 * CELL[1])
    masks, chances = [], []
    for cells in itertools.product([0, 1], repeat=4):
        enlarged = rows @ np.reshape(cells, (2, 2)) @ columns.T
        for top, left in itertools.product(range(CELL[0]), range(CELL[1])):
            masks.append(enlarged[top : top + SIZE[0], left : left + SIZE[1]])
            chances.append(P ** sum(cells) * (1 - P) ** (4 - sum(cells)) / (CELL[0] * CELL[1]))
    return torch.tensor(np.array(masks)).float()[:, None], torch.tensor(chances).float()


class Recorder(nn.Module):
    """Keeps what the network is shown."""

    def __init__(self, network):
        super().__init__()
        self.network, self.seen = network, []
        self.eval()

    def forward(self, x):
        self.seen.append(x.detach().clone())
        return self.network(x)


def linear_head(seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 5, 8), nn.ReLU(), nn.Linear(8, 3))
    net[1].weight.data *= 4
    net[3].weight.data *= 4
    return net.eval()


def test_converges_to_the_expectation():
    model, x = linear_head(), pictures(1, SIZE)
    masks, chances = every_mask()
    assert chances.sum().item() == pytest.approx(1)
    scores = model(x * masks).softmax(1)[:, 1].detach()
    expected = torch.einsum("m,m,mhw->hw", chances, scores, masks[:, 0]) / P
    estimate = RISE(samples=40000, grid=2, probability=P)(model, x, 1, batch_size=5000)[0, 0]
    deviation = (torch.einsum("m,m,mhw->hw", chances, scores**2, masks[:, 0] ** 2) / P**2 - expected**2).sqrt()
    assert ((estimate - expected).abs() < 5 * deviation / 200).all()
    assert (expected.max() - expected.min()) > 20 * deviation.max() / 200  # or chance would explain it


def test_masks_are_those_of_the_paper_and_each_is_as_likely_as_it_should_be():
    """Of a white image over a fill of zero, a network sees nothing but the masks."""
    model, x = Recorder(linear_head()), torch.ones(1, 3, *SIZE)
    RISE(samples=6000, grid=2, probability=P)(model, x, 1, batch_size=3000)
    drawn = torch.cat([batch for batch in model.seen if len(batch) == 3000])[:, 0].flatten(1)
    masks, chances = every_mask()
    masks = masks.flatten(1)
    distance, which = torch.cdist(drawn, masks, compute_mode="donot_use_mm_for_euclid_dist").min(1)
    assert distance.max() < 1e-5
    # identical masks (an all-dark grid at any offset, say) are counted together
    same = torch.cdist(masks, masks, compute_mode="donot_use_mm_for_euclid_dist") < 1e-5
    found = same.float() @ torch.bincount(which, minlength=len(masks)).float() / 6000
    expected = same.float() @ chances
    assert ((found - expected).abs() < 5 * (expected / 6000).sqrt()).all()
    assert abs(drawn.mean().item() - P) < 5 * 0.5 / 6000**0.5


@pytest.mark.parametrize("size", [(12, 16), (7, 7), (5, 23), (30, 8)])
def test_masks_of_any_size_lie_in_the_unit_range_with_mean_p(size):
    model, x = Recorder(small_cnn()), torch.ones(1, 3, *size)
    RISE(samples=400, probability=0.25)(model, x, 1, batch_size=200)
    drawn = torch.cat([batch for batch in model.seen if len(batch) == 200])[:, 0]
    assert drawn.shape == (400, *size)
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    assert abs(drawn.mean().item() - 0.25) < 0.02


def test_rows_of_a_pass_are_bounded_and_do_not_change_the_estimate():
    model, x = Recorder(small_cnn()), pictures(1)
    maps = [RISE(samples=50)(model, x, 1, batch_size=size) for size in (7, 50)]
    assert {len(batch) for batch in model.seen} == {1, 7, 50}
    torch.testing.assert_close(*maps, atol=1e-5, rtol=1e-4)


def test_images_and_seeds_have_masks_of_their_own():
    x = torch.ones(2, 3, 12, 16)
    x[1] *= 0.5
    model = Recorder(small_cnn())
    method = RISE(samples=20)
    for seed in (0, 1):
        method(model, x, 1, batch_size=20, generator=torch.Generator().manual_seed(seed))
    a, b, c, d = (batch[:, 0] for batch in model.seen if len(batch) == 20)
    assert not torch.equal(a, b * 2)
    assert not torch.equal(a, c)
    assert not torch.equal(c, d * 2)


def test_fills():
    """With next to nothing shown, the network sees the fill."""
    seen = Recorder(small_cnn())
    model = Classifier(seen, input_size=16).eval()
    for fill, colour in (("mean", [0.485, 0.456, 0.406]), ("black", [0.0] * 3), ("reference", [0.7] * 3)):
        seen.seen.clear()
        RISE(samples=4, probability=1e-9, fill=fill)(model, pictures(1), 1, reference=0.7, batch_size=4)
        expected = torch.tensor(colour).view(1, 3, 1, 1).expand(4, 3, 12, 16)
        torch.testing.assert_close(seen.seen[-1], expected)


def test_refusals():
    with pytest.raises(InputError, match="`samples` must be a whole number of at least 1; got 0"):
        RISE(samples=0)
    with pytest.raises(InputError, match="`grid` must be a whole number of at least 1; got 1.5"):
        RISE(grid=1.5)
    with pytest.raises(InputError, match="`probability` must be a number strictly between 0 and 1; got 1"):
        RISE(probability=1)
    with pytest.raises(InputError, match="Unknown fill 'grey'; choose one of mean, black, reference"):
        RISE(fill="grey")
