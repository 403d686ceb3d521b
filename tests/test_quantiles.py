"""Masks: projection against a sort-based solution and brute force, updates against hand-worked steps."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from fei.core import quantiles
from fei.core.quantiles import AdamUpdate, ProjectedUpdate, SharedUpdate, project, project_nested


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


def test_values_of_very_different_sizes_reach_their_area():
    """The way is long there: sixteen rounds end a quarter of the pixels away."""
    values = 1e5 * torch.randn(1, 2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 7
    assert project(values, torch.tensor([0.5])).mean().item() == pytest.approx(0.5, abs=1e-6)


def test_masks_may_lie_at_their_bounds():
    """No pixel is free to take up a rest of the area."""
    alpha = project(torch.tensor([[10.0, 10.0, -10.0, -10.0]]), torch.tensor([0.5]))
    assert alpha.tolist() == [[1, 1, 0, 0]]


def test_what_the_search_left_is_taken_up():
    """The search starts 4e-7 from the area, near enough to end; the one free pixel takes up the rest."""
    values = torch.tensor([[1.5, 0.25 + 2e-6, -0.5]], dtype=torch.float64)
    alpha = project(values, torch.tensor([1.25 / 3], dtype=torch.float64))
    np.testing.assert_allclose(alpha[0].numpy(), [1, 0.25, 0], atol=1e-12)


def test_what_a_bound_leaves_is_taken_up_too():
    """Two free pixels share a rest of 2e-6; the first has room for 1e-7 of it, and the other takes the remainder."""
    first, second = 1 - 1e-7 - 1e-6, 0.5
    area = (1 + first + second) / 4 + 1e-6
    values = torch.tensor([[1.5, -0.5, first, second]], dtype=torch.float64)
    alpha = project(values[None], torch.tensor([[area]], dtype=torch.float64))
    np.testing.assert_allclose(alpha[0, 0].numpy(), [1, 0, 1, 4 * area - 2], atol=1e-10)


def test_masks_keep_their_precision():
    alpha = project(torch.tensor([[0.1, 0.6, 0.9]]), torch.tensor([0.4], dtype=torch.float64))
    assert alpha.dtype == torch.float32
    alpha = project(torch.tensor([[0.1, 0.6, 0.9]], dtype=torch.float64), torch.tensor([0.4]))
    assert alpha.dtype == torch.float64


def test_arguments_of_projections_are_left_alone():
    values, area, lower = torch.tensor([[5.0, -1.0, 0.5]]), torch.tensor([0.5]), torch.tensor([[0.1, 0.1, 0.1]])
    project(values, area)
    project(values, area, lower)
    project_nested(values[None], torch.tensor([0.5]))
    assert values.tolist() == [[5.0, -1.0, 0.5]]
    assert lower.tolist() == [[torch.tensor(0.1).item()] * 3]


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize(
    ("size", "spread", "most"), [(1000, 0.01, 2), (1000, 0.1, 5), (50_000, 0.1, 4), (50_000, 1, 5)]
)
def test_the_search_takes_few_rounds(monkeypatch, size, spread, most, bounded):
    """Each passes over the whole image. Newton's steps need few, and fewer from where a part of the pixels points."""
    sizes, original = [], quantiles._bounded
    monkeypatch.setattr(quantiles, "_bounded", lambda v, lower: sizes.append(v.shape[-1]) or original(v, lower))
    values = torch.tensor(random_points(0, (5, size), spread), dtype=torch.float32)
    lower = torch.linspace(0, 0.09, size).expand(1, 5, size) if bounded else None
    project(values[None], torch.tensor([[0.9, 0.7, 0.5, 0.3, 0.1]]), lower)
    assert sizes.count(size) - 3 <= most  # one more for the mask itself, and two for what is left
    assert len(sizes) - sizes.count(size) <= 12


@pytest.mark.parametrize("area", [0.45, 0.55])
def test_flat_ground_is_crossed_by_halves(monkeypatch, area):
    """Between two far clusters no pixel is free and a Newton step goes nowhere: half the way, ten times over."""
    rounds, original = [], quantiles._bounded
    monkeypatch.setattr(quantiles, "_bounded", lambda v, lower: rounds.append(1) or original(v, lower))
    values = torch.tensor([[0.0] * 5 + [1000.0] * 5], dtype=torch.float64)
    alpha = project(values, torch.tensor([area], dtype=torch.float64))
    low, high = (0.0, 2 * area) if area < 0.5 else (2 * area - 1, 1.0)
    np.testing.assert_allclose(alpha[0].numpy(), [low] * 5 + [high] * 5, atol=1e-9)
    assert len(rounds) - 3 <= 12


@pytest.mark.parametrize("size", [50, 5000])
def test_a_mask_does_not_depend_on_those_beside_it(size):
    """To the bit: masks that are found at once beside hard ones, large and small areas, far from their start."""
    spreads, areas = [1e-7, 1e-3, 0.1, 1, 30, 1e3, 3, 3], torch.tensor([0.5, 0.9, 0.1, 0.3, 0.7, 0.02, 0.97, 0.03])
    values = torch.tensor(random_points(1, (8, size), 1.0) * np.array(spreads)[:, None], dtype=torch.float32)
    lower = torch.linspace(0, 0.01, size).expand(8, size)
    together, bounded = project(values[None], areas[None])[0], project(values[None], areas[None], lower[None])[0]
    for row in range(8):
        assert torch.equal(project(values[row : row + 1], areas[row : row + 1])[0], together[row])
        alone = project(values[row : row + 1], areas[row : row + 1], lower[row : row + 1])[0]
        assert torch.equal(alone, bounded[row])


def test_areas_of_whole_images_are_as_exact_as_single_precision_allows():
    """Sums in single precision would be off by 1e-7."""
    areas = torch.tensor([0.9, 0.7, 0.5, 0.3, 0.1])
    off = []
    for seed, spread in itertools.product(range(6), (0.1, 1.0)):
        values = torch.tensor(random_points(seed, (1, 5, 224 * 224), spread), dtype=torch.float32)
        off.append((project(values, areas.expand(1, 5)).double().mean(-1) - areas.double()).abs().max().item())
    assert max(off) <= 5e-8


def test_whole_images_on_top_of_each_other():
    """Float32 masks of 50,000 pixels, which start from a part of them: areas, order and bounds."""
    values = torch.tensor(random_points(2, (2, 3, 50_000), 2.0), dtype=torch.float32)
    areas = torch.tensor([0.3, 0.9, 0.5])
    got = project_nested(values, areas)
    assert (got.double().mean(-1) - areas.double()).abs().max() <= 1e-6
    assert (got[:, 0] <= got[:, 2]).all()
    assert (got[:, 2] <= got[:, 1]).all()
    expected = np.zeros(50_000)
    for k in (0, 2, 1):
        tau = brentq(
            lambda t, k=k, lower=expected: (
                np.clip(values[1, k].double().numpy() - t, lower, 1).mean() - areas[k].double().item()
            ),
            -20,
            20,
        )
        expected = np.clip(values[1, k].double().numpy() - tau, expected, 1)
        np.testing.assert_allclose(got[1, k].numpy(), expected, atol=2e-5)


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


def stacks(*images):
    """Masks (images, quantiles, 1, 2, 2)."""
    return torch.tensor(images, dtype=torch.float64).view(len(images), -1, 1, 2, 2)


def test_projected_steps_of_several_images_and_quantiles():
    """Every mask moves by the rate over the mean magnitude of its own gradient, whatever that is."""
    areas = torch.tensor([0.5, 0.25], dtype=torch.float64)
    update = ProjectedUpdate(stacks([[0.5] * 4] * 2, [[0.5] * 4] * 2), areas, lr=0.1, steps=3, nested=False)
    # projected at once: the second quantile is a quarter of the area
    torch.testing.assert_close(update.alpha, stacks([[0.5] * 4, [0.25] * 4], [[0.5] * 4, [0.25] * 4]))
    update.step(stacks([[1, -1, 1, -1], [200, 200, -200, -200]], [[-3, 3, 3, -3], [0.4, -0.4, -0.4, 0.4]]), None)
    expected = stacks(
        [[0.4, 0.6, 0.4, 0.6], [0.15, 0.15, 0.35, 0.35]], [[0.6, 0.4, 0.4, 0.6], [0.15, 0.35, 0.35, 0.15]]
    )
    torch.testing.assert_close(update.alpha, expected)


def test_projected_steps_may_be_nested():
    """α of the smaller area is projected first and is then the floor of the other, whichever is named first."""
    areas = torch.tensor([0.25, 0.75], dtype=torch.float64)
    update = ProjectedUpdate(stacks([[0.9, 0.1, 0, 0], [0, 0, 0, 0]]), areas, lr=0.1, steps=1, nested=True)
    torch.testing.assert_close(update.alpha, stacks([[0.9, 0.1, 0, 0], [0.9, 0.7, 0.7, 0.7]]))
    update.step(stacks([[0, 0, 0, 0], [4, 0, 0, 0]]), None)  # the floor holds the first pixel at .9
    torch.testing.assert_close(update.alpha, stacks([[0.9, 0.1, 0, 0], [0.9, 0.7, 0.7, 0.7]]))


def test_projected_steps_do_not_depend_on_the_size_of_the_gradient():
    for size in (1e-100, 1.0, 1e100):
        update = half(lr=0.1, steps=1)
        update.step(masks([2.0 * size, 0.0, -4.0 * size, 2.0 * size]), None)
        torch.testing.assert_close(update.alpha, masks([0.4, 0.5, 0.7, 0.4]))


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


def test_adam_counts_from_the_clamped_mask():
    """Down from 0 and up again: Adam's second step of gradients 1, −1 is lr·.01/.19 upwards, from 0 and not −.2."""
    update = AdamUpdate(masks([0.0]), None, lr=0.2, beta=0.0, reduction="sum", nested=False)
    update.step(masks([1.0]), None)
    assert update.alpha.item() == 0
    update.step(masks([-1.0]), None)
    assert update.alpha.item() == pytest.approx(0.2 * 0.01 / 0.19, abs=1e-6)
    update = AdamUpdate(masks([1.0]), None, lr=0.2, beta=0.0, reduction="sum", nested=False)
    update.step(masks([-1.0]), None)
    assert update.alpha.item() == 1


def test_the_penalty_pulls_each_mask_to_its_area():
    areas = torch.tensor([0.5, 0.25], dtype=torch.float64)
    start = stacks([[0.9, 0.7, 0.9, 0.7], [0.1, 0.2, 0.1, 0.2]], [[0.2, 0.2, 0.9, 0.2], [0.4, 0.4, 0.4, 0.1]])
    update = AdamUpdate(start, areas, lr=0.1, beta=1.0, reduction="sum", nested=False)
    update.step(torch.zeros_like(start), None)
    torch.testing.assert_close(
        update.alpha - start, stacks([[-0.1] * 4, [0.1] * 4], [[0.1] * 4, [-0.1] * 4]), atol=1e-6, rtol=0
    )


def test_at_its_area_a_mask_is_not_pulled():
    area = torch.tensor([0.5], dtype=torch.float64)
    update = AdamUpdate(masks([0.25, 0.75]), area, lr=0.2, beta=1.0, reduction="sum", nested=False)
    update.step(masks([0.0, 0.0]), None)
    assert torch.equal(update.alpha, masks([0.25, 0.75]))


def test_masks_without_areas_have_no_order_to_nest_in():
    update = AdamUpdate(masks([0.5], [0.2]), None, lr=0.1, beta=0.0, reduction="sum", nested=True)
    update.step(masks([1.0], [-1.0]), None)
    torch.testing.assert_close(update.alpha, masks([0.4], [0.3]), atol=1e-6, rtol=0)


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


def test_three_nested_masks_stay_without_a_gradient():
    """Their increments, .3, .4 and .2, add up to them again."""
    areas, start = torch.tensor([0.9, 0.6, 0.2], dtype=torch.float64), masks([0.9], [0.6], [0.2])
    update = AdamUpdate(start, areas, lr=0.1, beta=0.0, reduction="sum", nested=True)
    update.step(torch.zeros_like(start), None)
    torch.testing.assert_close(update.alpha, start)


def test_nested_adam_with_the_smallest_area_first():
    """δ between the masks falls from .3 by lr where the outer one alone has a gradient; both stay above 0, below 1."""
    areas = torch.tensor([0.1, 0.9], dtype=torch.float64)
    update = AdamUpdate(masks([0.2, 0.95], [0.5, 0.98]), areas, lr=0.1, beta=0.0, reduction="sum", nested=True)
    update.step(masks([0.0, 0.0], [1.0, 0.0]), None)
    torch.testing.assert_close(update.alpha, masks([0.1, 0.95], [0.3, 0.98]), atol=1e-6, rtol=0)
    update = AdamUpdate(masks([0.2, 0.95], [0.5, 0.98]), areas, lr=0.1, beta=0.0, reduction="sum", nested=True)
    update.step(masks([-1.0, -1.0], [1.0, 1.0]), None)  # δ falls, the inner one has no gradient left: −1 + 1
    torch.testing.assert_close(update.alpha, masks([0.2, 0.95], [0.4, 0.95]), atol=1e-6, rtol=0)


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


def test_the_bits_of_a_mask_depend_on_nothing_but_its_values():
    values = torch.rand(2, 4097, generator=torch.Generator().manual_seed(0))
    areas = torch.tensor([0.375, 0.5])
    transposed = values.t().contiguous().t()
    assert torch.equal(project(transposed, areas), project(values, areas))
    assert torch.equal(project(values[1:], areas[1:]), project(values, areas)[1:])


def shared_step(*gradients):
    areas = torch.tensor([0.75, 0.25], dtype=torch.float64)
    update = SharedUpdate(areas.view(1, 2, 1, 1, 1).expand(1, 2, 1, 1, 4).clone(), areas, lr=0.2, steps=4)
    torch.testing.assert_close(update.alpha.mean((0, 2, 3, 4)), areas)
    update.step(torch.tensor(gradients, dtype=torch.float64).view(1, 2, 1, 1, 4), None)
    return update.alpha.flatten(2)[0]


def test_shared_masks_are_parts_of_one_field_by_hand():
    """Made even, the gradients are (−2, 0, 0, 2) and (−1, −1, 1, 1); their sum, made even, times lr moves the field."""
    # u = (.3, .1, −.1, −.3); Σ clamp(u − τ) = 3 at τ = −.7667, where the first is at its bound, and 1 at τ = −.2333
    expected = torch.tensor([[1, 26 / 30, 20 / 30, 14 / 30], [16 / 30, 10 / 30, 4 / 30, 0]], dtype=torch.float64)
    torch.testing.assert_close(shared_step([-4.0, 0, 0, 4], [-0.5, -0.5, 0.5, 0.5]), expected)


def test_a_mask_that_was_not_tried_does_not_count_and_follows():
    # u = .2·(2, 0, 0, −2)
    expected = torch.tensor([[1, 0.8, 0.8, 0.4], [0.6, 0.2, 0.2, 0]], dtype=torch.float64)
    torch.testing.assert_close(shared_step([-4.0, 0, 0, 4], [0.0, 0, 0, 0]), expected)


def test_each_image_has_a_field_of_its_own():
    """Two images with three masks each, together and one by one."""
    areas = torch.tensor([0.75, 0.5, 0.25], dtype=torch.float64)
    start = areas.view(1, 3, 1, 1, 1).expand(2, 3, 1, 2, 4).clone()
    gradients = torch.randn(2, 2, 3, 1, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    together = SharedUpdate(start, areas, lr=0.2, steps=2)
    alone = [SharedUpdate(start[i : i + 1], areas, lr=0.2, steps=2) for i in range(2)]
    for gradient in gradients:
        together.step(gradient, None)
        for image, update in enumerate(alone):
            update.step(gradient[image : image + 1], None)
    torch.testing.assert_close(together.alpha, torch.cat([update.alpha for update in alone]))
    torch.testing.assert_close(together.alpha.mean((2, 3, 4)), areas.expand(2, 3))
    assert not torch.allclose(together.alpha[0], together.alpha[1])
