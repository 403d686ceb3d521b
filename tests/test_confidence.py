"""Confidence metrics: masks and imputations by hand, brute-force references, and nothing left behind."""

import functools
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Bomb, fingerprint, pictures, small_cnn
from torch import nn

from fei.errors import InputError, ModelError
from fei.metrics import confidence, sensitivity
from fei.metrics.confidence import average_drop, average_increase, impute, neighbour_weights, road
from fei.metrics.sensitivity import infidelity, max_sensitivity

# networks in single precision, whose kernels differ by batch size
alike = functools.partial(torch.testing.assert_close, rtol=1e-4, atol=1e-6)


class Brightness(nn.Module):
    """Two classes that share all: the probability of class 0 is the mean of the image (logits are its log-odds)."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.eval()

    def forward(self, x):
        self.seen.append(x.detach().clone())
        return x.mean((1, 2, 3)).clamp(1e-9, 1 - 1e-9).logit()[:, None] * torch.tensor([1.0, 0.0])


class Linear(nn.Module):
    """One logit: a weighted sum of the pixels."""

    def __init__(self, weights):
        super().__init__()
        self.register_buffer("weights", weights)
        self.eval()

    def forward(self, x):
        return (x * self.weights).sum((1, 2, 3))[:, None]


def random_maps(x, seed=0):
    return torch.rand(len(x), 1, *x.shape[2:], generator=torch.Generator().manual_seed(seed))


# Average drop and increase


def test_drop_by_hand():
    x = torch.full((1, 1, 2, 2), 0.8)
    m = torch.tensor([[[[-1.0, 3.0], [1.0, 1.0]]]])  # scaled: 0, 1, ½, ½: half of the brightness stays
    assert average_drop(Brightness(), x, m, 0).tolist() == pytest.approx([0.5])
    assert average_increase(Brightness(), x, m, 0).tolist() == [0]
    # white behind the mask: (0·.8 + 1) + .8 + 2 (.4 + .5) over 4 is .9, more than .8
    assert average_drop(Brightness(), x, m, 0, reference=1.0).tolist() == [0]
    assert average_increase(Brightness(), x, m, 0, reference=1.0).tolist() == [1]


def test_the_network_sees_the_masked_image():
    model, x = Brightness(), pictures(2)
    m = random_maps(x)
    low, high = m.amin((2, 3), keepdim=True), m.amax((2, 3), keepdim=True)
    mask = (m - low) / (high - low)
    r = torch.tensor([0.1, 0.5, 0.9]).view(3, 1, 1)
    average_drop(model, x, m, 0, reference=r)
    alike(model.seen[-1], mask * x + (1 - mask) * r)


def test_a_constant_map_keeps_nothing():
    x = pictures(1)
    drop = average_drop(Brightness(), x, torch.full((1, *x.shape[2:]), 4.0), 0)
    assert drop.tolist() == pytest.approx([1], abs=1e-6)
    drop = average_drop(Brightness(), x, torch.full((1, *x.shape[2:]), 4.0), 0, reference=x * 0.25)
    assert drop.tolist() == pytest.approx([0.75], abs=1e-6)


def test_drop_and_increase_knows_the_top_class_and_batches():
    model, x = small_cnn(), pictures(5)
    m = random_maps(x)
    top = model(x).argmax(1)
    before = fingerprint(model)
    for metric in (average_drop, average_increase):
        expected = metric(model, x, m, top)
        assert expected.shape == (5,)
        assert expected.dtype == torch.float64
        alike(metric(model, x, m, batch_size=2), expected)
        singles = [metric(model, x[i : i + 1], m[i : i + 1]) for i in range(5)]
        alike(torch.cat(singles), expected)
        alike(metric(model, x, m * 7 - 3), expected)
        chosen = metric(model, x, m, lambda logits: logits.softmax(1)[:, 1])
        alike(chosen, metric(model, x, m, 1))
    assert fingerprint(model) == before


def test_a_random_reference_depends_on_the_seed():
    model, x = small_cnn(), pictures(3)
    m = random_maps(x)
    drops = [
        average_drop(model, x, m, reference=None, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    ]
    assert torch.equal(drops[0], drops[1])
    assert not torch.equal(drops[0], drops[2])


def test_drop_needs_scores_that_are_shares():
    x = pictures(1)
    model = Linear(-torch.ones(3, 1, 1))
    with pytest.raises(InputError, match="which is negative here; pass score='softmax' or 'sigmoid'"):
        average_drop(model, x, random_maps(x), score="logit")
    assert average_increase(model, x, random_maps(x), score="logit").tolist() == [1]
    zero = average_drop(model, x, random_maps(x), score=lambda logits, chosen: 0 * logits[:, 0])
    assert zero.tolist() == [0]  # nothing to lose


# ROAD


def test_one_missing_pixel_is_the_weighted_mean_of_its_neighbours():
    image = torch.arange(9.0, dtype=torch.float64).square().view(1, 3, 3)
    missing = torch.zeros(3, 3, dtype=torch.bool)
    missing[1, 1] = True
    filled = impute(image, missing, neighbour_weights(3, 3))
    assert filled[0, 1, 1].item() == pytest.approx((1 + 9 + 25 + 49) / 6 + (0 + 4 + 36 + 64) / 12)
    assert torch.equal(filled[:, ~missing], image[:, ~missing])
    # in the corner two direct and one diagonal neighbour are left, and their weights come to 5/12
    missing = torch.zeros(3, 3, dtype=torch.bool)
    missing[0, 0] = True
    filled = impute(image, missing, neighbour_weights(3, 3))
    assert filled[0, 0, 0].item() == pytest.approx(((1 + 9) / 6 + 16 / 12) / (5 / 12))


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5), st.floats(0.1, 0.95))
def test_imputation_solves_the_dense_system(seed, height, width, share):
    source = torch.Generator().manual_seed(seed)
    image = torch.rand(2, height, width, generator=source, dtype=torch.float64)
    missing = torch.rand(height, width, generator=source) < share
    missing.view(-1)[seed % (height * width)] = False
    cells = list(itertools.product(range(height), range(width)))
    a, b = np.eye(len(cells)), image.flatten(1).numpy().T.copy()
    for i, (y, x) in enumerate(cells):
        if missing[y, x]:
            near = [(j, 1 / 6 if abs(y - v) + abs(x - u) == 1 else 1 / 12) for j, (v, u) in enumerate(cells)]
            near = [(j, w) for j, w in near if j != i and max(abs(y - cells[j][0]), abs(x - cells[j][1])) == 1]
            for j, w in near:
                a[i, j] = -w / sum(weight for _, weight in near)
            b[i] = 0
    expected = np.linalg.solve(a, b).T.reshape(image.shape)
    np.testing.assert_allclose(impute(image, missing, neighbour_weights(height, width)), expected, atol=1e-9)


def test_imputation_at_its_ends():
    image = pictures(1)[0]
    weights = neighbour_weights(*image.shape[1:])
    none = torch.zeros(image.shape[1:], dtype=torch.bool)
    assert torch.equal(impute(image, none, weights), image)
    mean = image.mean((1, 2), keepdim=True).expand_as(image)
    alike(impute(image, ~none, weights), mean)  # nothing is known: the mean colour
    one = ~none
    one[3, 4] = False
    alike(impute(image, one, weights), image[:, 3:4, 4:5].expand_as(image))
    ramp = torch.arange(16.0).expand(1, 12, 16)
    inside = none.clone()
    inside[2:9, 3:13] = True
    alike(impute(ramp, inside, neighbour_weights(12, 16)), ramp)  # what is linear is restored


def test_road_removes_the_right_pixels():
    model = Brightness()
    x = pictures(1, (4, 5))
    m = torch.randperm(20, generator=torch.Generator().manual_seed(0)).view(1, 1, 4, 5).double()
    weights = neighbour_weights(4, 5)
    for order, gone in (("morf", m[0, 0] >= 15), ("lerf", m[0, 0] < 5)):
        curve = road(model, x, m, 0, percentiles=[25], order=order, noise=0)
        filled = impute(x[0], gone, weights)
        alike(model.seen[-1][0], filled)
        assert curve.scores.item() == pytest.approx(filled.mean().item(), rel=1e-5)
        assert curve.fractions.tolist() == [0.25]
    reverse = road(model, x, -m, 0, order="lerf").scores
    alike(road(model, x, m, 0).scores, reverse)


def test_road_noise_is_on_removed_pixels_alone_and_has_its_size():
    model = Brightness()
    x = pictures(1, (40, 40))
    m = random_maps(x)
    road(model, x, m, 0, percentiles=[50], noise=0.3)
    noisy = model.seen[-1][0]
    gone = m[0, 0] > m.median()
    assert torch.equal(noisy[:, ~gone], x[0][:, ~gone])
    added = (noisy - impute(x[0], gone, neighbour_weights(40, 40)))[:, gone]
    assert added.std().item() == pytest.approx(0.3, rel=0.05)  # 2400 draws
    assert abs(added.mean().item()) < 0.03
    assert not torch.equal(added[0], added[1])  # each channel has its own


def test_road_as_a_curve():
    model, x = small_cnn(), pictures(3)
    m = random_maps(x)
    m[1] = 1.0
    before = fingerprint(model)
    curve = road(model, x, m)
    assert curve.scores.shape == (3, 7)
    alike(curve.auc, curve.scores.mean(1))
    assert curve.fractions.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9], abs=0.003)
    assert curve.ties.tolist() == [0, 1, 0]
    assert (curve.protocol, curve.higher_is_better) == ("road-morf/1", False)
    other = road(model, x, m, percentiles=[0, 100], order="lerf", noise=0.1, score="logit")
    assert (other.protocol, other.higher_is_better) == ("road-lerf/1+noise=0.1+score=logit", True)
    alike(other.scores[:, 0].float(), model(x).amax(1))  # nothing removed
    assert fingerprint(model) == before


def test_road_depends_on_image_and_seed_not_on_batches_or_global_state():
    model, x = small_cnn(), pictures(3)
    m = (random_maps(x) * 4).round()  # many ties
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    scores = road(model, x, m).scores
    alike(road(model, x.flip(0), m.flip(0), batch_size=2).scores.flip(0), scores)
    alike(road(model, x[1:2], m[1:2]).scores, scores[1:2])
    seeded = road(model, x, m, generator=torch.Generator().manual_seed(5)).scores
    assert not torch.equal(seeded, scores)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)


def test_road_refusals():
    model, x = small_cnn(), pictures(1)
    m = random_maps(x)
    with pytest.raises(InputError, match="Unknown order 'random'; choose 'morf'"):
        road(model, x, m, order="random")
    for percentiles in ([], [-1], [50, 101], [float("nan")]):
        with pytest.raises(InputError, match="`percentiles` must be numbers from 0 to 100, at least one"):
            road(model, x, m, percentiles=percentiles)
    with pytest.raises(InputError, match="`noise` must be a finite number of at least 0; got -1"):
        road(model, x, m, noise=-1)


# Infidelity and sensitivity


def test_the_gradient_of_a_linear_network_is_perfectly_faithful():
    weights = torch.randn(1, 6, 5, generator=torch.Generator().manual_seed(3))
    model = Linear(weights)  # the same weights for all channels, as a map has
    x = pictures(2, (6, 5))
    m = weights.expand(2, 1, 6, 5)
    assert infidelity(model, x, m, 0, score="logit", normalize=False).tolist() == pytest.approx([0, 0], abs=1e-8)
    assert infidelity(model, x, 5 * m, 0, score="logit").tolist() == pytest.approx([0, 0], abs=1e-8)
    assert (infidelity(model, x, 5 * m, 0, score="logit", normalize=False) > 1e-3).all()
    assert (infidelity(model, x, random_maps(x), 0, score="logit") > 1e-3).all()


def test_infidelity_by_hand_with_a_perturbation_of_ones_own():
    x = torch.ones(2, 1, 2, 2)
    model = Linear(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
    m = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [3.0, 0.0]]])

    def remove_all(images):
        return images, torch.zeros_like(images)

    options = {"perturbation": remove_all, "score": "logit", "normalize": False, "samples": 3}
    assert infidelity(model, x, m, 0, **options).tolist() == pytest.approx([81, 16])  # (1 − 10)² and (6 − 10)²


def test_normalised_infidelity_is_the_residual_of_a_regression():
    model, x = small_cnn(), pictures(2)
    m = random_maps(x)
    kept = []

    def noisy(images):
        noise = 0.1 * torch.randn(images.shape, generator=torch.Generator().manual_seed(len(kept)))
        kept.append((noise, images - noise))
        return noise, images - noise

    found = infidelity(model, x, m, 2, perturbation=noisy, samples=12, batch_size=12)
    for i, (noise, perturbed) in enumerate(kept):
        with torch.no_grad():
            change = model(x[i : i + 1]).softmax(1)[:, 2] - model(perturbed.float()).softmax(1)[:, 2]
        foretold = (noise * m[i]).sum((1, 2, 3)).double().numpy()[:, None]
        _, residual, _, _ = np.linalg.lstsq(foretold, change.double().numpy(), rcond=None)
        assert found[i].item() == pytest.approx(residual.item() / 12, rel=1e-3)


def test_a_map_of_zeros_foretells_nothing():
    x = pictures(1)
    model = Linear(torch.ones(3, 1, 1))
    zero = torch.zeros(1, *x.shape[2:])
    found = infidelity(model, x, zero, score="logit", samples=50, perturbation=0.5)
    # the change is a sum of C·H·W draws, whose variance is their number times .5²
    assert found.item() == pytest.approx(x[0].numel() * 0.25, rel=0.5)


def input_gradient(model, x, target):
    """∂logit/∂x, its mean over channels; needs gradients, under which captum does not call."""
    x = x.clone().requires_grad_()
    chosen = model(x).gather(1, target[:, None]).sum()
    return torch.autograd.grad(chosen, x)[0].mean(1, keepdim=True)


def test_sensitivity_of_methods_that_are_known():
    x = pictures(2)
    assert max_sensitivity(small_cnn(), lambda model, x, target: x[:, :1] * 0 + 3, x).tolist() == [0, 0]
    model = Linear(torch.ones(3, 1, 1))
    assert max_sensitivity(model, input_gradient, x).tolist() == [0, 0]  # a linear network's gradient is constant
    moves = max_sensitivity(model, lambda model, x, target: x[:, :1], x, radius=0.1, samples=4)
    pixels = x[0, 0].numel()
    for value, image in zip(moves, x, strict=True):  # ‖δ‖ / ‖x‖, the variance of δ being r²/3
        assert value.item() == pytest.approx((pixels * 0.01 / 3) ** 0.5 / image[0].norm().item(), rel=0.1)


def test_sensitivity_keeps_the_target_of_the_original():
    x = pictures(2)
    model, asked = small_cnn(), []

    def method(model, x, target):
        asked.append(target.tolist())
        return input_gradient(model, x, target)

    found = max_sensitivity(model, method, x, samples=3, radius=0.5, batch_size=2)
    assert found.shape == (2,)
    assert (found > 0).all()
    top = model(x).argmax(1).tolist()
    assert asked == [[top[0]], [top[0]] * 2, [top[0]], [top[1]], [top[1]] * 2, [top[1]]]
    asked.clear()
    max_sensitivity(model, method, x, [3, 1], samples=1)
    assert asked == [[3], [3], [1], [1]]


def test_random_numbers_depend_on_image_and_seed_and_global_state_comes_back():
    model, x = small_cnn(), pictures(3)
    m = random_maps(x)

    def global_noise(images):
        noise = 0.1 * torch.randn_like(images) + 0.01 * torch.from_numpy(np.random.normal(size=images.shape))
        return noise, images - noise

    def noisy_gradient(model, x, target):
        return input_gradient(model, x, target) + 0.1 * torch.randn(1)

    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    calls = {
        "gaussian": functools.partial(infidelity, maps=None),
        "global": functools.partial(infidelity, maps=None, perturbation=global_noise),
        "sensitivity": functools.partial(max_sensitivity, method=noisy_gradient),
    }
    before = fingerprint(model)
    for call in calls.values():

        def run(index, seed=0, call=call):
            maps = {"maps": m[index]} if "maps" in call.keywords else {}
            return call(model, inputs=x[index], **maps, generator=torch.Generator().manual_seed(seed))

        found = run([0, 1, 2])
        alike(run([2, 0, 1]), found[[2, 0, 1]])
        alike(run([1]), found[1:2])
        assert not torch.equal(run([0, 1, 2], seed=1), found)
    for batch_size in (1, 3, 100):  # nor on how many are drawn at a time
        alike(infidelity(model, x, m, batch_size=batch_size), infidelity(model, x, m))
        alike(
            max_sensitivity(model, input_gradient, x, batch_size=batch_size), max_sensitivity(model, input_gradient, x)
        )
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)
    assert fingerprint(model) == before


def test_global_state_comes_back_after_a_failure():
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    model = nn.Sequential(Bomb(KeyboardInterrupt(), 3), small_cnn()).eval()
    with pytest.raises(KeyboardInterrupt):
        infidelity(model, pictures(1), random_maps(pictures(1)))
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)


def test_refused_numbers():
    model, x = small_cnn(), pictures(1)
    m = random_maps(x)
    for samples in (0, 1.5, True, None):
        with pytest.raises(InputError, match="`samples` must be a whole number of at least 1"):
            infidelity(model, x, m, samples=samples)
        with pytest.raises(InputError, match="`samples` must be a whole number of at least 1"):
            max_sensitivity(model, input_gradient, x, samples=samples)
    with pytest.raises(InputError, match="`perturbation` must be a finite number"):
        infidelity(model, x, m, perturbation=float("nan"))
    with pytest.raises(InputError, match="`radius` must be a finite number"):
        max_sensitivity(model, input_gradient, x, radius=-0.1)
    with pytest.raises(InputError, match="`maps` has shape"):
        max_sensitivity(model, lambda model, x, target: x, x)


# What all of them refuse


@pytest.mark.parametrize("metric", [average_drop, average_increase, road, infidelity])
def test_common_refusals(metric):
    model, x = small_cnn(), pictures(2)
    m = random_maps(x)
    with pytest.raises(InputError, match=r"`maps` has shape \(2, 1, 6, 8\); expected \(2, 1, 12, 16\)"):
        metric(model, x, m[:, :, ::2, ::2])
    with pytest.raises(InputError, match="`maps` holds NaN"):
        metric(model, x, m * float("nan"))
    with pytest.raises(InputError, match="target 9 is out of range"):
        metric(model, x, m, 9)
    with pytest.raises(InputError, match="Unknown score 'odds'"):
        metric(model, x, m, score="odds")
    with pytest.raises(InputError, match="evaluation mode"):
        metric(small_cnn().train(), x, m)
    with pytest.raises(InputError, match="batch_size"):
        metric(model, x, m, batch_size=0)
    with pytest.raises(InputError, match="softmax of a single logit is always 1"):
        metric(Linear(torch.ones(3, 1, 1)), x, m)
    with pytest.raises(ModelError, match="NaN or infinite"):
        metric(Linear(torch.full((3, 1, 1), float("nan"))), x, m, score="logit")


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_ranges(seed):
    model, x = small_cnn(seed), pictures(2, seed=seed)
    m = random_maps(x, seed)
    drop, rise = average_drop(model, x, m), average_increase(model, x, m)
    assert ((drop >= 0) & (drop <= 1)).all()
    assert ((rise == 0) | (drop == 0)).all()  # it falls or it rises
    scores = road(model, x, m, percentiles=[50]).scores
    assert ((scores >= 0) & (scores <= 1)).all()


def test_directions():
    found = [*confidence.METRICS, *sensitivity.METRICS]
    assert {metric.name: metric.higher_is_better for metric in found} == {
        "average_drop": False,
        "average_increase": True,
        "road-morf": False,
        "road-lerf": True,
        "infidelity": False,
        "max_sensitivity": False,
    }
