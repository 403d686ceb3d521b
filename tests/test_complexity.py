"""Sparseness and raggedness: by hand, by an independent formula, by expectation."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from fei.errors import InputError
from fei.metrics.complexity import METRICS, gini, rank_total_variation


def random_maps(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_gini_by_hand():
    # [0, 0, 0, 1]: 1 − 2 · 1 · ½/4; [1, 2, 3, 4]: 1 − 2 (1·3.5 + 2·2.5 + 3·1.5 + 4·.5)/(10·4)
    maps = torch.tensor([[[0.0, 0], [1, 0]], [[3, -1], [-4, 2]]])
    assert gini(maps).tolist() == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("value", [0, 1, -7.3, 1e-300, 1e300])
def test_gini_of_a_constant_map_is_zero(value):
    assert gini(torch.full((2, 1, 3, 5), value, dtype=torch.float64)).tolist() == pytest.approx([0, 0], abs=1e-12)
    assert gini(torch.full((1, 1, 1), value, dtype=torch.float64)).tolist() == [0]


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6))
def test_gini_is_the_mean_absolute_difference(seed, height, width):
    maps = random_maps(seed, 2, 1, height, width)
    for value, m in zip(gini(maps), maps, strict=True):
        c = m.abs().flatten().numpy()
        # the other definition of the Gini index: E|a − b| / (2 E a)
        assert value.item() == pytest.approx(np.abs(c[:, None] - c).mean() / (2 * c.mean()), abs=1e-12)


@given(st.integers(0, 10**6), st.floats(1e-200, 1e200))
def test_gini_knows_no_scale_sign_or_place(seed, scale):
    m = random_maps(seed, 1, 5, 4)
    for other in (m * scale, -m, m.flip(1), m.transpose(1, 2)):
        torch.testing.assert_close(gini(other), gini(m))


def test_rank_total_variation_by_hand():
    # ranks of [[10, 40], [20, 30]] are [[0, 1], [1/3, 2/3]]: horizontal 1 and 1/3, vertical 1/3 and 1/3
    maps = torch.tensor([[[10.0, 40.0], [20.0, 30.0]], [[-1.0, 2.0], [-0.5, 0.0]], [[0.0, 0.0], [0.0, 5.0]]])
    # [[0, 0], [0, 5]]: the three zeros share rank 2 of 1 … 4, scaled 1/3: 0, 2/3, 0, 2/3
    assert rank_total_variation(maps).tolist() == pytest.approx([0.5, 0.5, 1 / 3])


def test_a_ramp_has_the_steps_of_its_grid():
    height, width = 4, 5
    ramp = torch.arange(height * width).view(1, height, width).double()
    horizontal, vertical = height * (width - 1), (height - 1) * width
    expected = (horizontal * 1 + vertical * width) / (horizontal + vertical) / (height * width - 1)
    assert rank_total_variation(ramp).tolist() == pytest.approx([expected])
    assert rank_total_variation(ramp[:, :1]).tolist() == pytest.approx([1 / 4])  # one row
    assert rank_total_variation(ramp[:, :, :1]).tolist() == pytest.approx([1 / 3])  # one column


def test_constant_and_single_pixel_maps_have_none():
    assert rank_total_variation(torch.full((2, 1, 3, 4), 7.0)).tolist() == [0, 0]
    assert rank_total_variation(torch.rand(2, 1, 1, 1)).tolist() == [0, 0]


def test_over_all_orders_the_mean_is_exactly_that_of_random_ranks():
    orders = torch.tensor(list(itertools.permutations(range(6)))).view(-1, 2, 3).double()
    assert len(orders) == math.factorial(6)
    assert rank_total_variation(orders).mean().item() == pytest.approx(7 / (3 * 5))  # (P + 1) / (3 (P − 1))


def test_random_maps_are_at_one_third_and_smooth_ones_below():
    noise = random_maps(0, 20, 64, 64)
    values = rank_total_variation(noise)
    assert values.mean().item() == pytest.approx(4097 / (3 * 4095), abs=1e-3)
    smooth = torch.nn.functional.avg_pool2d(noise[:, None], 9, 1, 4)
    assert (rank_total_variation(smooth) < 0.15).all()


@given(st.integers(0, 10**6), st.booleans())
def test_rank_total_variation_against_loops(seed, ties):
    m = random_maps(seed, 1, 4, 6)
    m = m.round() if ties else m
    ranks = (rankdata(m[0].numpy()).reshape(4, 6) - 1) / 23
    steps = [abs(ranks[y, x] - ranks[y + 1, x]) for y in range(3) for x in range(6)]
    steps += [abs(ranks[y, x] - ranks[y, x + 1]) for y in range(4) for x in range(5)]
    assert rank_total_variation(m).item() == pytest.approx(np.mean(steps))


@given(st.integers(0, 10**6))
def test_rank_total_variation_reads_the_order_alone(seed):
    m = random_maps(seed, 1, 5, 5)
    for other in (m.exp(), -m, m * 1e-9, m.transpose(1, 2)):
        torch.testing.assert_close(rank_total_variation(other), rank_total_variation(m))


@pytest.mark.parametrize("metric", [gini, rank_total_variation])
def test_refusals(metric):
    with pytest.raises(InputError, match="`maps` holds NaN or infinite values"):
        metric(torch.tensor([[[1.0, float("inf")]]]))
    with pytest.raises(InputError, match=r"a pixel at least; got \(2, 1, 0, 3\)"):
        metric(torch.empty(2, 1, 0, 3))
    with pytest.raises(InputError, match=r"got \(2, 3, 4, 4\)"):
        metric(torch.rand(2, 3, 4, 4))
    with pytest.raises(InputError, match="got ndarray"):
        metric(np.zeros((1, 2, 2)))


def test_directions():
    assert {metric.name: metric.higher_is_better for metric in METRICS} == {"gini": True, "rank_total_variation": False}
