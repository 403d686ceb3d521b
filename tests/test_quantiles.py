"""Masks: projection against a sort-based solution and brute force, updates against hand-worked steps."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from fei.core.quantiles import AdamUpdate, ProjectedUpdate, project, project_nested


def projection_by_sorting(values, total, lower):
    """The exact projection on {lower ≤ α ≤ 1, Σα = total}: scan the sorted kinks of τ ↦ Σ clip(v − τ, lower, 1)."""
    kinks = np.sort(np.concatenate([values - 1, values - lower]))
    sums = np.array([np.clip(values - tau, lower, 1).sum() for tau in kinks])  # decreasing in τ
    right = np.searchsorted(-sums, -total, side="left").clip(1, len(kinks) - 1)
    a, b, fa, fb = kinks[right - 1], kinks[right], sums[right - 1], sums[right]
    tau = a if fa == fb else a + (fa - total) * (b - a) / (fa - fb)
    return np.clip(values - tau, lower, 1)


def random_points(seed, size, spread):
    return np.random.default_rng(seed).normal(0.5, spread, size)


@given(seed=st.integers(0, 10**6), size=st.integers(2, 60), area=st.floats(0.01, 0.99), spread=st.floats(1e-3, 30))
def test_projection_is_the_nearest_feasible_point(seed, size, area, spread):
    values = random_points(seed, size, spread)
    got = project(torch.tensor(values)[None], torch.tensor([area], dtype=torch.float64))[0].numpy()
    expected = projection_by_sorting(values, area * size, np.zeros(size))
    np.testing.assert_allclose(got, expected, atol=1e-9)
    assert abs(expected.mean() - area) < 1e-9  # the reference itself is feasible


@given(seed=st.integers(0, 10**6), size=st.integers(2, 40), extra=st.floats(0.05, 0.95))
def test_projection_above_a_lower_bound(seed, size, extra):
    rng = np.random.default_rng(seed)
    lower, values = rng.uniform(0, 0.9, size), rng.normal(0.5, 1, size)
    area = lower.mean() + extra * (1 - lower.mean())
    got = project(torch.tensor(values)[None], torch.tensor([area], dtype=torch.float64), torch.tensor(lower)[None])[0]
    np.testing.assert_allclose(got.numpy(), projection_by_sorting(values, area * size, lower), atol=1e-9)


def test_the_sort_based_reference_agrees_with_root_finding():
    values, lower = random_points(3, 50, 2.0), np.zeros(50)
    tau = brentq(lambda t: np.clip(values - t, lower, 1).sum() - 20, values.min() - 1, values.max())
    np.testing.assert_allclose(projection_by_sorting(values, 20, lower), np.clip(values - tau, 0, 1), atol=1e-8)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), spread=st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 10.0, 1000.0]))
def test_float32_masks_of_a_whole_image_meet_the_area(seed, spread):
    values = torch.tensor(random_points(seed, (1, 5, 50_000), spread), dtype=torch.float32)
    areas = torch.tensor([0.9, 0.7, 0.5, 0.3, 0.1])
    alpha = project(values, areas.expand(1, 5))
    assert alpha.min() >= 0
    assert alpha.max() <= 1
    off = alpha.double().mean(-1) - areas.double()
    assert off.abs().max() <= 1e-6


@pytest.mark.parametrize("value", [0.0, -3.0, 7.0])
def test_equal_values_share_the_area_equally(value):
    alpha = project(torch.full((1, 10), value), torch.tensor([0.3]))
    torch.testing.assert_close(alpha, torch.full((1, 10), 0.3))


def test_already_feasible_points_stay():
    alpha = torch.tensor([[0.2, 0.4, 0.9, 0.5]])
    torch.testing.assert_close(project(alpha, torch.tensor([0.5])), alpha)


@given(seed=st.integers(0, 10**6))
def test_nested_projection(seed):
    rng = np.random.default_rng(seed)
    values, areas = rng.normal(0.5, 1, (2, 3, 30)), np.array([0.8, 0.5, 0.2])
    got = project_nested(torch.tensor(values), torch.tensor(areas)).numpy()
    for image in range(2):
        lower = np.zeros(30)
        for k in (2, 1, 0):  # the smallest area first, each next one on top of it
            lower = projection_by_sorting(values[image, k], areas[k] * 30, lower)
            np.testing.assert_allclose(got[image, k], lower, atol=1e-8)
    assert (np.diff(got, axis=1) <= 1e-12).all()


def masks(*rows):
    return torch.tensor(rows, dtype=torch.float64).view(1, len(rows), 1, 1, -1)


def half(**options):
    return ProjectedUpdate(masks([0.5] * 4), torch.tensor([0.5], dtype=torch.float64), nested=False, **options)


def test_projected_steps_by_hand():
    """Gradient (2, 0, −4, 2), mean magnitude 2, so direction (1, 0, −2, 1), whose mean is already zero.

    First step at the full rate .1. The second of two runs at half of it; with momentum .8 the average of the direction
    and its opposite, .8·.2·d − .2·d, is −.04·d, over 1 − .8² = .36.
    """
    update = half(lr=0.1, steps=2)
    update.step(masks([2.0, 0.0, -4.0, 2.0]), None)
    torch.testing.assert_close(update.alpha, masks([0.4, 0.5, 0.7, 0.4]))
    update.step(masks([-20.0, 0.0, 40.0, -20.0]), None)
    back = 0.05 * 0.04 / 0.36
    torch.testing.assert_close(update.alpha, masks([0.4 + back, 0.5, 0.7 - 2 * back, 0.4 + back]))


def test_projected_step_without_a_gradient_stays():
    update = half(lr=0.1, steps=1)
    update.step(masks([0.0] * 4), None)
    torch.testing.assert_close(update.alpha, masks([0.5] * 4))


def test_adam_step_by_hand():
    """Adam's first step is lr·sign(g). At area 0 of .5 the penalty gradient is −β a pixel, and α stays in [0, 1]."""
    area = torch.tensor([0.5], dtype=torch.float64)
    update = AdamUpdate(masks([0.0] * 4), area, lr=0.2, beta=1.0, reduction="sum", nested=False)
    update.step(masks([0.5, -0.5, 3.0, 0.0]), None)
    torch.testing.assert_close(update.alpha, masks([0.2, 0.2, 0.0, 0.2]), atol=1e-6, rtol=0)


def test_mean_reduction_divides_the_penalty_by_the_pixels():
    """β = 1 over 4 pixels weighs ¼: it loses against a gradient of .3 where the sum would win."""
    area = torch.tensor([0.5], dtype=torch.float64)
    for reduction, expected in (("sum", 0.2), ("mean", 0.0)):
        update = AdamUpdate(masks([0.0] * 4), area, lr=0.2, beta=1.0, reduction=reduction, nested=False)
        update.step(masks([0.3] * 4), None)
        torch.testing.assert_close(update.alpha, masks([expected] * 4), atol=1e-6, rtol=0)


def test_l1_weight_pushes_down_and_no_weight_does_not():
    for beta, expected in ((1.0, 0.3), (0.0, 0.5)):
        update = AdamUpdate(masks([0.5] * 4), None, lr=0.2, beta=beta, reduction="sum", nested=False)
        update.step(masks([0.0] * 4), None)
        torch.testing.assert_close(update.alpha, masks([expected] * 4), atol=1e-6, rtol=0)


@given(seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_nested_adam_keeps_masks_nested_and_in_the_box(seed):
    generator = torch.Generator().manual_seed(seed)
    areas = torch.tensor([0.9, 0.5, 0.1], dtype=torch.float64)
    update = AdamUpdate(masks([0.0] * 6, [0.0] * 6, [0.0] * 6), areas, lr=0.5, beta=0.1, reduction="sum", nested=True)
    for _ in range(6):
        update.step(torch.randn(1, 3, 1, 1, 6, generator=generator, dtype=torch.float64), None)
        assert (update.alpha[:, 0] >= update.alpha[:, 1]).all()
        assert (update.alpha[:, 1] >= update.alpha[:, 2]).all()
        assert update.alpha.min() >= 0
        assert update.alpha.max() <= 1


def test_nested_adam_moves_increments():
    """Only the innermost mask has a gradient, so only δ of the innermost moves, and it lifts all masks with it."""
    areas = torch.tensor([0.9, 0.1], dtype=torch.float64)
    update = AdamUpdate(masks([0.5], [0.2]), areas, lr=0.1, beta=0.0, reduction="sum", nested=True)
    update.step(masks([0.0], [-1.0]), None)
    torch.testing.assert_close(update.alpha, masks([0.6], [0.3]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("make", ["adam", "projected"])
def test_frozen_masks_stay(make):
    areas, start = torch.tensor([0.5, 0.5], dtype=torch.float64), masks([0.5] * 4, [0.5] * 4)
    if make == "adam":
        update = AdamUpdate(start, areas, lr=0.2, beta=0.1, reduction="sum", nested=False)
    else:
        update = ProjectedUpdate(start, areas, lr=0.2, steps=5, nested=False)
    update.step(masks([1.0, -1.0, 0, 0], [1.0, -1.0, 0, 0]), torch.tensor([[True, False]]))
    assert torch.equal(update.alpha[:, 0], masks([0.5] * 4)[:, 0])
    assert not torch.equal(update.alpha[:, 1], masks([0.5] * 4)[:, 0])
