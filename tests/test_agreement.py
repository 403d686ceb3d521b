"""Agreement of maps: against scipy, by hand, and as a matrix."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from fei.errors import InputError
from fei.metrics.agreement import METRICS, agreement_matrix, iou_at, rank_correlation


def random_maps(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_rank_correlation_is_scipys(seed, ties, absolute):
    a, b = random_maps(seed, 2, 3, 1, 4, 5)
    if ties:
        a, b = a.round(), (2 * b).round()
    a[:, :, 0, 0], b[:, :, 0, 1] = 9, 9  # never constant, for which scipy has no answer
    found = rank_correlation(a, b, absolute=absolute)
    for value, m, n in zip(found, a, b, strict=True):
        m, n = (m.abs(), n.abs()) if absolute else (m, n)
        assert value.item() == pytest.approx(spearmanr(m.flatten(), n.flatten()).statistic, abs=1e-12)


def test_rank_correlation_by_hand():
    a = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    assert rank_correlation(a, a.exp()).item() == pytest.approx(1)
    assert rank_correlation(a, -a).item() == pytest.approx(-1)
    assert rank_correlation(a, -a, absolute=True).item() == pytest.approx(1)
    assert rank_correlation(a, a[:, :, [1, 0, 2, 3]]).item() == pytest.approx(1 - 6 * 2 / (4 * 15))


def test_a_constant_map_correlates_with_nothing():
    constant, m = torch.full((1, 3, 3), 0.1), torch.rand(1, 3, 3)
    assert rank_correlation(constant, m).tolist() == [0]
    assert rank_correlation(m, constant).tolist() == [0]
    assert rank_correlation(constant, constant).tolist() == [0]


def test_iou_by_hand():
    a = torch.tensor([[[8.0, 7.0, 6.0, 5.0], [4.0, 3.0, 2.0, 1.0]]])
    b = torch.tensor([[[8.0, 1.0, 7.0, 2.0], [6.0, 3.0, 5.0, 4.0]]])
    assert iou_at(a, b, 1 / 8).item() == 1  # {0} and {0}
    assert iou_at(a, b, 2 / 8).item() == pytest.approx(1 / 3)  # {0, 1} and {0, 2}
    assert iou_at(a, b, 0.5).item() == pytest.approx(2 / 6)  # {0, 1, 2, 3} and {0, 2, 4, 6}
    assert iou_at(a, b, 1).item() == 1
    assert iou_at(a, -a, 0.5).item() == 0


def test_iou_takes_ties_in_raster_order():
    constant = torch.zeros(1, 2, 4)
    assert iou_at(constant, constant, 0.5).item() == 1
    assert iou_at(constant, torch.arange(8.0).view(1, 2, 4), 0.5).item() == 0  # the first four and the last four


@given(st.integers(0, 10**6), st.floats(0.05, 1))
def test_properties(seed, fraction):
    a, b = random_maps(seed, 2, 2, 5, 4)
    for measure in (rank_correlation, partial(iou_at, fraction=fraction)):
        ab = measure(a, b)
        torch.testing.assert_close(ab, measure(b, a))
        torch.testing.assert_close(ab, measure(a.exp() * 3, b + 2))  # ranks alone count
        torch.testing.assert_close(measure(a, a), torch.ones(2, dtype=torch.float64))
    assert ((iou_at(a, b, fraction) >= 0) & (iou_at(a, b, fraction) <= 1)).all()


def test_matrix_over_methods():
    maps = {name: random_maps(seed, 3, 1, 4, 4) for seed, name in enumerate("xyz")}
    found = agreement_matrix(maps)
    assert found.shape == (3, 3, 3)
    assert torch.equal(found, found.transpose(1, 2))
    torch.testing.assert_close(found.diagonal(dim1=1, dim2=2), torch.ones(3, 3, dtype=torch.float64))
    torch.testing.assert_close(found[:, 0, 2], rank_correlation(maps["x"], maps["z"]))
    torch.testing.assert_close(found[:, 2, 1], rank_correlation(maps["y"], maps["z"]))
    overlap = agreement_matrix(maps, partial(iou_at, fraction=0.25))
    torch.testing.assert_close(overlap[:, 1, 0], iou_at(maps["x"], maps["y"], 0.25))


def test_refusals():
    m = torch.rand(1, 1, 4, 4)
    for measure in (rank_correlation, partial(iou_at, fraction=0.5)):
        with pytest.raises(InputError, match=r"same images; got shapes \(1, 1, 4, 4\) and \(1, 1, 2, 2\)"):
            measure(m, m[:, :, :2, :2])
        with pytest.raises(InputError, match="`b` holds NaN"):
            measure(m, m * float("nan"))
        with pytest.raises(InputError, match="`a` must be a tensor"):
            measure(None, m)
    for fraction in (0, -0.1, 1.1, 0.01, float("nan"), "all"):
        with pytest.raises(InputError, match="`fraction` must be above 0, at most 1, and come to at least one of 16"):
            iou_at(m, m, fraction)
    with pytest.raises(InputError, match="`maps` is empty"):
        agreement_matrix({})


def test_directions():
    assert {metric.name: metric.higher_is_better for metric in METRICS} == {"rank_correlation": None, "iou_at": None}
