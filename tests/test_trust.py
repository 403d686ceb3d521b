"""Tests of trust, by hand: whether maps change with the class and the weights, and stay with another seed."""

import math

import pytest
import torch
from networks import fingerprint, pictures, small_cnn
from quantus.functions.complexity_func import discrete_entropy
from scipy.stats import spearmanr
from torch import nn

import fei
from fei.errors import InputError
from fei.metrics import rank_correlation
from fei.metrics.complexity import histogram_entropy
from fei.metrics.criteria import CRITERIA
from fei.metrics.grid import METRICS as GRID
from fei.metrics.randomization import cascading_randomization
from fei.metrics.trust import (
    METRICS,
    class_sensitivity,
    classifier_randomization,
    emprt,
    stability,
    weight_sensitivity,
)
from fei.models import Classifier

RAMP = torch.arange(192.0).view(1, 1, 12, 16)


def linear(classes=5, seed=0):
    """A network whose map of a class is known: the class's weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 16, classes)).eval()


def weights_of(model, inputs, target):
    return model[1].weight[target].view(-1, 3, 12, 16).sum(1, keepdim=True)


class Says(nn.Module):
    """Gives every image the same probabilities."""

    def __init__(self, *probabilities):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(probabilities).log())
        self.eval()

    def forward(self, x):
        return self.logits.expand(len(x), -1)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def fixed(model, inputs, target):
    """A map that is the same whatever is asked."""
    return RAMP.expand(len(inputs), -1, -1, -1)


def rho(a, b):
    return pytest.approx([spearmanr(one.flatten(), two.flatten()).statistic for one, two in zip(a, b, strict=True)])


# Another class


def test_the_maps_of_classes_are_compared_by_rank():
    model, x = linear(), pictures(3)
    found = class_sensitivity(model, weights_of, x)
    best = model(x).argsort(dim=1, descending=True, stable=True)
    assert torch.equal(found.targets, best[:, 0])
    assert torch.equal(found.runner_up_class, best[:, 1])
    with torch.no_grad():
        original = weights_of(model, x, best[:, 0])
        for against, classes in ((found.random, found.random_class), (found.runner_up, found.runner_up_class)):
            assert against.correlation.tolist() == rho(original, weights_of(model, x, classes))
            assert not against.flat.any()


def test_a_given_target_is_the_one_that_is_compared():
    found = class_sensitivity(Says(0.5, 0.3, 0.2), fixed, pictures(2), target=[2, 1])
    assert (found.targets.tolist(), found.runner_up_class.tolist()) == ([2, 1], [0, 0])


@pytest.mark.parametrize(
    ("probabilities", "pool"),
    [
        ((0.0004, 0.9, 0.0005, 0.0981, 0.0006, 0.0004), {0, 2, 4, 5}),  # those that are not in the picture
        ((0.1, 0.3, 0.25, 0.05, 0.3), {0, 3}),  # the less probable half of the four others
        ((0.6, 0.4), {1}),
    ],
)
def test_the_other_class_is_drawn_from_those_that_are_not_in_the_picture(probabilities, pool):
    x, drawn = pictures(8), set()
    for seed in range(10):
        drawn |= set(class_sensitivity(Says(*probabilities), fixed, x, generator=generator(seed)).random_class.tolist())
    assert drawn == pool


def test_the_draw_is_the_images_own():
    model, x = linear(40), pictures(6)
    classes = class_sensitivity(model, fixed, x).random_class
    assert torch.equal(class_sensitivity(model, fixed, x.flip(0)).random_class.flip(0), classes)
    assert len(classes.unique()) > 1


@pytest.mark.parametrize("method", ["edges", "random", "centre", fixed])
def test_what_ignores_the_class_has_one(method):
    found = class_sensitivity(small_cnn(), method, pictures(2))
    for against in (found.random, found.runner_up):
        assert against.correlation.tolist() == pytest.approx([1, 1])
        assert not against.flat.any()


@pytest.mark.parametrize(("tied", "flat"), [(1.0, True), (0.6, True), (0.4, False)])
def test_flat_maps_of_another_class_count_as_the_same(tied, flat):
    count = round(tied * 192)
    half_empty = torch.cat([torch.zeros(count), torch.arange(192.0 - count) + 1]).view(1, 1, 12, 16)

    def method(model, inputs, target):
        return torch.cat([-RAMP if kind == 0 else half_empty for kind in target])

    found = class_sensitivity(Says(0.9, 0.1), method, pictures(1)).runner_up
    assert found.flat.tolist() == [flat]
    assert found.correlation.tolist() == ([1] if flat else rho([-RAMP], [half_empty]))


def test_maps_that_are_there_are_not_made_again():
    model, x, asked = linear(), pictures(2), []

    def method(model, inputs, target):
        asked.append(target)
        return weights_of(model, inputs, target).detach()

    whole = class_sensitivity(model, method, x)
    given = class_sensitivity(model, method, x, maps=weights_of(model, x, whole.targets))
    assert torch.equal(given.random.correlation, whole.random.correlation)
    assert [target.tolist() for target in asked[3:]] == [whole.random_class.tolist(), whole.runner_up_class.tolist()]


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        (linear(1), {}, "This network has a single logit"),
        (linear(), {"target": lambda output: output[:, 0]}, "A callable target is no class"),
        (linear(), {"target": 9}, "The target 9 is out of range"),
        (linear(), {"maps": RAMP}, r"`maps` has shape \(1, 1, 12, 16\); expected \(2, 1, 12, 16\)"),
        (linear(), {"reference": "blur"}, "This method takes no reference"),
        (linear(), {"batch_size": 0}, "`batch_size` must be a whole number"),
    ],
)
def test_what_cannot_be_compared_is_refused(model, options, expected):
    with pytest.raises(InputError, match=expected):
        class_sensitivity(model, fixed, pictures(2), **options)


# Another seed


def test_a_method_that_draws_nothing_is_stable():
    assert stability(small_cnn(), "gradcam", pictures(2), seeds=3).correlation.tolist() == pytest.approx([1, 1])


def test_seeds_follow_each_other_and_pairs_are_averaged():
    model, x = small_cnn(), pictures(2)
    found = stability(model, "random", x, seeds=3, generator=generator(4))
    a, b, c = (fei.methods.create("random")(model, x, generator=generator(seed)) for seed in (4, 5, 6))
    mean = (rank_correlation(a, b) + rank_correlation(a, c) + rank_correlation(b, c)) / 3
    assert torch.allclose(found.correlation, mean)
    assert found.variants == [(4, None), (5, None), (6, None)]
    assert torch.allclose(found.agreement[:, 1, 2], rank_correlation(b, c))
    assert torch.equal(
        stability(model, "random", x, maps=a, generator=generator(4)).agreement, found.agreement[:, :2, :2]
    )


def test_opposite_maps_have_minus_one():
    def method(model, inputs, target, generator):
        return fixed(model, inputs, target) * (-1) ** generator.initial_seed()

    assert stability(linear(), method, pictures(1)).correlation.item() == pytest.approx(-1)


def test_references_are_compared_by_name():
    model, x = Classifier(small_cnn(), input_size=16).eval(), pictures(2)
    method = fei.methods.create("integrated-gradients", steps=3)
    found = stability(model, method, x, seeds=1, references=("black", "white"))
    one, two = (method(model, x, reference=name) for name in ("black", "white"))
    assert found.correlation.tolist() == rho(one, two)
    assert found.variants == [(0, "black"), (0, "white")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"seeds": 0}, "`seeds` must be a whole number of at least 1"),
        ({"seeds": 1}, "There is nothing to compare; give at least two seeds or two references"),
        ({"references": "mean"}, "`references` must be a list of references; got 'mean'"),
        ({"references": [None, "mean"]}, "This method takes no reference"),
    ],
)
def test_what_does_not_vary_is_refused(options, expected):
    with pytest.raises(InputError, match=expected):
        stability(small_cnn(), fixed, pictures(1), **options)


# Other weights


def test_the_classifier_is_the_first_stage_of_the_cascade():
    model, x = small_cnn(), pictures(3)
    before = fingerprint(model)
    found = classifier_randomization(model, "saliency", x, generator=generator(2))
    cascade = cascading_randomization(model, "saliency", x, layers=1, generator=generator(2))
    assert torch.allclose(found.correlation, cascade.similarity["spearman"][0])
    assert fingerprint(model) == before


def test_weights_drawn_anew_have_nothing_in_common_with_the_old():
    found = classifier_randomization(linear(), lambda *call: weights_of(*call).detach(), pictures(3))
    assert (found.correlation.abs() < 4 / math.sqrt(192)).all()


def test_what_ignores_the_weights_has_one_and_no_rise():
    x = pictures(2)
    assert classifier_randomization(small_cnn(), "edges", x).correlation.tolist() == pytest.approx([1, 1])
    assert emprt(small_cnn(), "edges", x).rise.tolist() == [0, 0]


def test_a_map_that_goes_flat_without_the_classifier_counts_as_the_same():
    model = linear()
    original = model[1].weight.detach().clone()

    def method(model, inputs, target):
        return fixed(model, inputs, target) * torch.equal(model[1].weight, original)

    found = classifier_randomization(model, method, pictures(1))
    assert (found.correlation.tolist(), found.flat.tolist()) == ([1], [True])


def test_complexity_rises_from_two_values_to_four():
    model = small_cnn()
    original = {name: value.clone() for name, value in model.state_dict().items()}
    seen = []

    def method(model, inputs, target):
        changed = [n for n, v in model.state_dict().items() if not torch.equal(v, original[n])]
        seen.append({name.split(".")[0] for name in changed})
        return (fixed(model, inputs, target) / 192 * (4 if changed else 2)).floor()

    found = emprt(model, method, pictures(1))
    assert (found.before.item(), found.after.item()) == pytest.approx((math.log(2), math.log(4)))
    assert found.rise.item() == pytest.approx(1)
    assert seen == [set(), {"0", "4", "8"}]  # all at once
    assert emprt(model, method, pictures(1), maps=RAMP * 0).rise.item() == 0


def test_one_cascade_gives_the_classifier_its_stages_and_all_weights():
    model, x = small_cnn(), pictures(3)
    options = {"generator": generator(2)}
    found = weight_sensitivity(model, "saliency", x, **options)
    assert found.layers == [["8"], ["4"], ["0"]]  # three layers make three stages
    full = cascading_randomization(model, "saliency", x, **options)
    assert full.layers == ["8", "4", "0"]
    assert torch.allclose(found.cascade.correlation, full.similarity["spearman"].mean(0))
    assert torch.equal(
        found.classifier.correlation, classifier_randomization(model, "saliency", x, **options).correlation
    )
    assert torch.equal(found.complexity.rise, emprt(model, "saliency", x, **options).rise)


@pytest.mark.parametrize(
    ("stages", "expected"),
    [(2, [1, 6]), (3, [1, 3, 3]), (4, [1, 2, 2, 2]), (5, [1, 1, 2, 1, 2]), (9, [1] * 7)],
)
def test_stages_divide_the_layers_evenly(stages, expected):
    layers = [module for _ in range(6) for module in (nn.Conv2d(3, 3, 1), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(576, 2)).eval()
    found = weight_sensitivity(model, "edges", pictures(1), stages=stages)
    assert [len(stage) for stage in found.layers] == expected
    assert found.cascade.correlation.item() == pytest.approx(1)
    with pytest.raises(InputError, match="`stages` must be"):
        weight_sensitivity(model, "edges", pictures(1), stages=1)


def test_entropy_is_that_of_quantus():
    maps = torch.cat([pictures(2, channels=1) ** 3 - 0.2, RAMP, RAMP * 0, (RAMP > 3).float()]).double()
    expected = [discrete_entropy(each.numpy(), each.numpy()) for each in maps]
    assert histogram_entropy(maps).tolist() == pytest.approx(expected)
    assert histogram_entropy(RAMP, bins=4).item() == pytest.approx(math.log(4))


# All


@pytest.mark.parametrize("test", [class_sensitivity, stability, classifier_randomization, emprt, weight_sensitivity])
def test_progress_comes_to_its_end(test):
    seen = []
    test(small_cnn(), "gradcam", pictures(2), progress=lambda done, total: seen.append((done, total)))
    total = {class_sensitivity: 300, weight_sensitivity: 400}.get(test, 200)
    assert seen == [(i + 1, total) for i in range(total)]


@pytest.mark.parametrize("test", [class_sensitivity, stability, classifier_randomization, emprt, weight_sensitivity])
def test_it_works_under_no_grad_and_leaves_the_model_alone(test):
    model, x = small_cnn(), pictures(2)
    before = fingerprint(model)
    with torch.no_grad():
        test(model, "saliency", x)
    assert fingerprint(model) == before
    with pytest.raises(InputError, match="`method` must be a name or a callable"):
        test(model, 3, x)


def test_directions_and_criteria():
    assert {metric.name: metric.higher_is_better for metric in (*METRICS, *GRID)} == {
        "random_class": False,
        "runner_up": False,
        "stability": True,
        "classifier_randomization": False,
        "cascade": False,
        "emprt": True,
        "grid_energy": True,
        "grid_rank": True,
    }
    assert {criterion.metric for criterion in CRITERIA} == {metric.name for metric in (*METRICS, *GRID)} - {
        "grid_energy"
    }
    # what asks for other maps can be measured where the method is known, mosaics of several images nowhere
    measurable = {metric.name for metric in (*METRICS, *GRID) if metric.measure is not None}
    assert measurable == {metric.name for metric in METRICS}
    assert all("method" in metric.needs for metric in METRICS)


def test_verdicts():
    limits = {criterion.metric: criterion for criterion in CRITERIA}
    for name, better, worse in (
        ("random_class", 0.4, 0.41),
        ("runner_up", 0.7, 0.71),
        ("classifier_randomization", 0.4, 0.41),
        ("cascade", 0.4, 0.41),
        ("stability", 0.9, 0.89),
        ("emprt", 0.02, 0.0),
    ):
        assert limits[name].verdict(better) == limits[name].holds
        assert limits[name].verdict(worse) == limits[name].fails
    grid = limits["grid_rank"]
    assert grid.verdict(0.26, chance=0.25) == grid.fails
    assert grid.verdict(0.26, chance=1 / 9) == grid.holds
    assert grid.verdict(0.5, (0.2, 0.8), chance=0.25) == "not clear from these images"
    assert grid.verdict(0.5, (0.4, 0.6), chance=0.25) == grid.holds
