"""Randomisation of weights: which layers, what they get, how maps are compared, and that the caller's model is safe."""

import warnings

import numpy as np
import pytest
import torch
from networks import fingerprint, pictures, small_cnn
from scipy.stats import spearmanr
from skimage.feature import hog
from skimage.metrics import structural_similarity
from torch import nn
from torch.nn import functional as F

from fei import methods
from fei.errors import InputError, ModelError
from fei.metrics._weights import weight_layers
from fei.metrics.randomization import SIMILARITIES, cascading_randomization, map_similarity
from fei.models import Classifier
from fei.models.sources import import_torchvision


def edges(model, inputs, target):
    """A map that has nothing to do with the network."""
    grey = inputs.mean(1, keepdim=True)
    kernel = torch.tensor([[0.0, -1.0, 0.0], [-1.0, 4.0, -1.0], [0.0, -1.0, 0.0]])
    return F.conv2d(grey, kernel.view(1, 1, 3, 3), padding=1)


class Spy:
    """Keeps each stage's weights and arguments; the map is the gradient's size, so it depends on them."""

    def __init__(self):
        self.weights, self.calls = [], []

    def __call__(self, model, inputs, target=None, **keywords):
        self.weights.append({name: value.clone() for name, value in model.state_dict().items()})
        self.calls.append((target, keywords))
        leaf = inputs.clone().requires_grad_()
        model(leaf).gather(1, target[:, None]).sum().backward()
        return leaf.grad.abs().sum(1, keepdim=True)


def names(model, size=(12, 16)):
    return [layer.name for layer in weight_layers(model, torch.zeros(1, 3, *size))]


# Which layers


def test_vgg16_goes_in_the_order_of_the_paper():
    with torch.device("meta"):  # shapes without numbers
        network = import_torchvision().models.vgg16()
    model = Classifier(network).to("meta").eval()
    found = [layer.name for layer in weight_layers(model, torch.zeros(1, 3, 224, 224, device="meta"))]
    heads = [f"classifier.{i}" for i in (6, 3, 0)]
    convolutions = [f"features.{i}" for i in (28, 26, 24, 21, 19, 17, 14, 12, 10, 7, 5, 2, 0)]
    assert found == [f"network.{name}" for name in heads + convolutions]


def test_order_is_that_of_execution_not_of_definition():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 2)
            self.unused = nn.Linear(4, 2)
            self.second = nn.Conv2d(4, 4, 3, padding=1)
            self.first = nn.Conv2d(3, 4, 3, padding=1)
            self.norm = nn.GroupNorm(2, 4)

        def forward(self, x):
            return self.head(self.second(self.norm(self.first(x))).mean((2, 3)))

    assert names(Backwards().eval()) == ["head", "second", "first"]


def test_normalisations_stay_also_where_their_weights_are_images():
    net = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.LayerNorm((4, 12, 16)), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(768, 2)
    )
    assert names(net.eval()) == ["4", "0"]


def test_weights_that_no_module_call_shows_are_found():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.randn(1, 1, 8))
            self.patch = nn.Conv2d(3, 8, 4, stride=4)
            self.mix = nn.MultiheadAttention(8, 2, batch_first=True)
            self.out = nn.Linear(8, 2)

        def forward(self, x):
            tokens = self.patch(x).flatten(2).mT
            tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1)
            mixed = self.mix(tokens, tokens, tokens, need_weights=False)[0]
            return F.linear(mixed[:, 0], self.out.weight)  # not through the module

    # the attention never calls its output projection as a module either
    assert names(Attention().eval()) == ["out", "mix.out_proj", "mix", "(root)", "patch"]


def test_shared_weights_are_one_layer_at_their_last_use():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.Linear(3, 3, bias=False)
            self.middle = nn.Linear(3, 3)
            self.up = nn.Linear(3, 3)
            self.up.weight = self.down.weight

        def forward(self, x):
            return self.up(self.middle(self.down(x.mean((2, 3)))))

    net = Tied().eval()
    assert names(net) == ["down", "middle"]  # `up` has no weights of its own left
    spy = Spy()
    cascading_randomization(net, spy, pictures(1))
    original, first, second = spy.weights
    assert torch.equal(first["down.weight"], first["up.weight"])
    assert not torch.equal(first["down.weight"], original["down.weight"])
    assert torch.equal(second["down.weight"], first["down.weight"])  # drawn once


def test_a_module_that_runs_twice_is_one_layer_at_its_last_run():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.repeated = nn.Linear(3, 3)
            self.between = nn.Linear(3, 3)

        def forward(self, x):
            return self.repeated(self.between(self.repeated(x.mean((2, 3)))))

    assert names(Twice().eval()) == ["repeated", "between"]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [(None, ["8", "4", "0"]), (2, ["8", "4"]), (9, ["8", "4", "0"]), (["0", "8"], ["8", "0"]), (["4", "4"], ["4"])],
)
def test_layers_can_be_chosen(layers, expected):
    result = cascading_randomization(small_cnn(), edges, pictures(), layers=layers)
    assert result.layers == expected
    assert result.maps.shape == (len(expected) + 1, 2, 1, 12, 16)


def test_a_unique_ending_names_a_layer():
    result = cascading_randomization(Classifier(small_cnn()).eval(), edges, pictures(), layers=["4"])
    assert result.layers == ["network.4"]


# What they get


def stages(mode="cascading", seed=0, layers=None):
    spy = Spy()
    generator = torch.Generator().manual_seed(seed)
    result = cascading_randomization(small_cnn(), spy, pictures(), mode=mode, generator=generator, layers=layers)
    return spy, result


def changed(before, after):
    return {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


def test_cascading_adds_a_layer_a_stage_and_independent_changes_one():
    original, *cascade = stages()[0].weights
    assert [changed(original, stage) for stage in cascade] == [{"8"}, {"8", "4"}, {"8", "4", "0"}]
    same, *alone = stages("independent")[0].weights
    assert changed(original, same) == set()
    assert [changed(original, stage) for stage in alone] == [{"8"}, {"4"}, {"0"}]
    # a layer gets the same new weights in both
    assert all(torch.equal(cascade[-1][name], alone[i][name]) for i, name in enumerate(["8.bias", "4.bias", "0.bias"]))


def test_new_weights_are_those_of_the_modules_own_initialisation():
    *_, last = stages()[0].weights
    for name, fan_in in (("0", 27), ("4", 72), ("8", 12)):
        weight = last[f"{name}.weight"]
        assert weight.abs().max() <= fan_in**-0.5  # torch draws convolutions and linear layers between ±1/√fan_in
        assert weight.std() == pytest.approx((3 * fan_in) ** -0.5, rel=0.3)


def test_each_layer_has_a_seed_of_its_own_that_the_generator_decides():
    class Alike(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), nn.Flatten(), nn.Linear(576, 2))

    spy = Spy()
    cascading_randomization(Alike().eval(), spy, pictures())
    assert not torch.equal(spy.weights[-1]["0.weight"], spy.weights[-1]["1.weight"])

    def final(**options):
        return stages(**options)[0].weights[-1]["0.weight"]

    assert torch.equal(final(seed=5), final(seed=5))
    assert torch.equal(final(seed=5), final(seed=5, layers=["0"]))  # whichever other layers there are
    assert not torch.equal(final(seed=5), final(seed=6))


def test_a_module_without_an_initialisation_keeps_mean_and_deviation():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(300, 3) * 2 + 5)
            self.bias = nn.Parameter(torch.full((300,), 2.0))

        def forward(self, x):
            return F.linear(x.mean((2, 3)), self.weight, self.bias)

    spy = Spy()
    net = Plain().eval()
    result = cascading_randomization(net, spy, pictures())
    before, after = spy.weights
    assert result.layers == ["(root)"]
    assert after["weight"].mean() == pytest.approx(before["weight"].mean().item(), abs=0.1)
    assert after["weight"].std() == pytest.approx(before["weight"].std().item(), rel=0.1)
    assert abs(np.corrcoef(before["weight"].flatten(), after["weight"].flatten())[0, 1]) < 0.15
    assert torch.equal(after["bias"], before["bias"])  # without any deviation there is nothing to draw


def test_weights_that_an_initialisation_misses_are_drawn():
    class Half(nn.Linear):
        def reset_parameters(self):
            nn.init.zeros_(self.bias)

    half = Half(576, 2)  # which leaves its weights as the memory was
    nn.init.normal_(half.weight, generator=torch.Generator().manual_seed(0))
    spy = Spy()
    cascading_randomization(nn.Sequential(nn.Flatten(), half).eval(), spy, pictures())
    assert changed_names(*spy.weights) == {"1.weight"}  # and a bias of zeros stays one


def test_a_weight_that_is_computed_from_parameters_changes_with_them():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the old weight norm is deprecated
        net = nn.Sequential(nn.utils.weight_norm(nn.Conv2d(3, 4, 3)), nn.Flatten(), nn.Linear(560, 2)).eval()
    with torch.no_grad():
        net(pictures())
    spy = Spy()
    cascading_randomization(net, spy, pictures())
    assert not torch.equal(spy.weights[-1]["0.weight_v"], spy.weights[0]["0.weight_v"])


def test_a_reset_of_children_does_not_spread():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Conv2d(3, 3, 1)
            self.weight = nn.Parameter(torch.randn(2, 3))

        def reset_parameters(self):
            self.inner.reset_parameters()
            nn.init.normal_(self.weight)

        def forward(self, x):
            return F.linear(self.inner(x).mean((2, 3)), self.weight)

    spy = Spy()
    assert cascading_randomization(nn.Sequential(Block()).eval(), spy, pictures()).layers == ["0", "0.inner"]
    assert changed_names(spy.weights[0], spy.weights[1]) == {"0.weight"}


def changed_names(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


# Nobody else notices


@pytest.mark.parametrize("mode", ["cascading", "independent"])
@pytest.mark.parametrize("method", ["fei-vm", "saliency", edges])
def test_the_callers_model_and_the_global_state_stay_as_they_were(method, mode):
    model, x = small_cnn(), pictures()
    model[0].weight.requires_grad_(False)
    model[4].weight.grad = torch.ones_like(model[4].weight)
    generator = torch.Generator().manual_seed(3)
    numpy_state = np.random.get_state()[1].copy()
    before = fingerprint(model), torch.get_rng_state(), generator.get_state(), x.clone()
    made = methods.create(method, steps=2) if method == "fei-vm" else method
    cascading_randomization(model, made, x, mode=mode, generator=generator)
    assert fingerprint(model) == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert torch.equal(generator.get_state(), before[2])
    assert torch.equal(x, before[3])
    assert (np.random.get_state()[1] == numpy_state).all()


def test_the_original_map_is_the_methods_own():
    model, x = small_cnn(), pictures()
    method = methods.create("fei-ibm", steps=2)
    result = cascading_randomization(model, method, x, layers=1)
    assert torch.equal(result.maps[0], method(model, x))


def test_it_works_under_no_grad_and_inference_mode():
    model, x = small_cnn(), pictures()
    plain = cascading_randomization(model, "saliency", x)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(cascading_randomization(model, "saliency", x).maps, plain.maps)


# Targets and other arguments


def test_the_target_stays_the_original_networks():
    model, x = small_cnn(), pictures(4)
    top = model(x).argmax(1)
    spy = Spy()
    result = cascading_randomization(model, spy, x)
    assert torch.equal(result.targets, top)
    assert all(torch.equal(target, top) for target, _ in spy.calls)
    spy = Spy()
    assert cascading_randomization(model, spy, x, target=2).targets.tolist() == [2] * 4
    assert all(target.tolist() == [2] * 4 for target, _ in spy.calls)


def test_a_callable_target_is_passed_on():
    def score(output):
        return output[:, 0]

    seen = []

    def method(model, inputs, target):
        seen.append(target)
        return inputs[:, :1]

    result = cascading_randomization(small_cnn(), method, pictures(), target=score)
    assert seen == [score] * 4
    assert result.targets.tolist() == [-1, -1]


def test_methods_get_the_same_arguments_at_every_stage():
    spy, generator = Spy(), torch.Generator().manual_seed(7)
    cascading_randomization(small_cnn(), spy, pictures(), reference="blur", generator=generator, batch_size=5)
    assert [(k["reference"], k["generator"].initial_seed(), k["batch_size"]) for _, k in spy.calls] == [
        ("blur", 7, 5)
    ] * 4
    assert len({id(k["generator"]) for _, k in spy.calls}) == 4


def test_progress_reaches_the_end_over_all_stages():
    seen = []
    method = methods.create("fei-vm", steps=10)
    cascading_randomization(
        small_cnn(), method, pictures(1), layers=2, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(i + 1, 300) for i in range(300)]


# How maps are compared


def test_a_method_that_ignores_the_network_stays_the_same_at_every_stage():
    result = cascading_randomization(small_cnn(), edges, pictures())
    assert set(result.similarity) == set(SIMILARITIES)
    for values in result.similarity.values():
        assert values.shape == (3, 2)
        assert torch.allclose(values, torch.ones(3, 2, dtype=torch.float64))


def test_a_method_that_depends_on_the_network_does_not():
    result = stages()[1]
    assert result.mode == "cascading"
    for name, values in result.similarity.items():
        assert (values[-1] < 0.6).all(), name


@pytest.mark.parametrize("size", [(12, 16), (7, 9), (64, 50)])
def test_similarities_are_scikit_images_and_scipys(size):
    a, b = pictures(3, size, channels=1) - 0.5, pictures(3, size, channels=1, seed=1) * 7 - 2
    found = map_similarity(a, b)
    cell = {12: 4, 7: 2, 64: 16}[size[0]]
    for i in range(3):
        one, two = a[i, 0].double().numpy(), b[i, 0].double().numpy()
        scaled = [(m - m.min()) / (m.max() - m.min()) for m in (one, two)]
        features = [
            hog(m, orientations=9, pixels_per_cell=(cell, cell), cells_per_block=(3, 3), block_norm="L2-Hys")
            for m in scaled
        ]
        expected = {
            "ssim": structural_similarity(*scaled, win_size=7, data_range=1),
            "spearman": spearmanr(one.ravel(), two.ravel()).statistic,
            "spearman_abs": spearmanr(abs(one).ravel(), abs(two).ravel()).statistic,
            "hog": spearmanr(*features).statistic,
        }
        assert {name: values[i].item() for name, values in found.items()} == pytest.approx(expected, abs=1e-9)


def test_similarity_by_hand():
    ramp = torch.arange(144.0).view(1, 1, 12, 12)
    falling = map_similarity(ramp, -ramp)
    assert falling["spearman"].item() == pytest.approx(-1)
    assert falling["spearman_abs"].item() == pytest.approx(1)
    rising = map_similarity(ramp, ramp * 3 + 5)  # the same picture on another scale
    assert rising["ssim"].item() == pytest.approx(1)
    assert rising["spearman"].item() == pytest.approx(1)
    assert rising["hog"].item() == pytest.approx(1)


def test_constant_maps_are_defined():
    ramp = torch.arange(144.0).view(1, 1, 12, 12)
    flat, zero = torch.full_like(ramp, 3.0), torch.zeros_like(ramp)
    assert {name: value.item() for name, value in map_similarity(flat, zero).items()} == pytest.approx(
        dict.fromkeys(SIMILARITIES, 1.0)
    )
    mixed = map_similarity(ramp, flat)
    assert mixed["spearman"].item() == mixed["spearman_abs"].item() == mixed["hog"].item() == 0
    scaled = (ramp / 143).double()[0, 0].numpy()
    assert mixed["ssim"].item() == pytest.approx(structural_similarity(scaled, 0 * scaled, data_range=1))


# What is refused


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"mode": "both"}, "Unknown mode 'both'; choose one of cascading, independent"),
        ({"layers": 0}, "`layers` must be a number of layers, at least 1"),
        ({"layers": True}, "`layers` must be a number"),
        ({"layers": "8"}, "`layers` must be a number of layers, at least 1, a list of names"),
        ({"layers": []}, "`layers` must be a number"),
        ({"layers": ["9"]}, "The network ran no module named '9'"),
        ({"layers": ["1"]}, "The network ran no module named '1'"),
        ({"target": 4}, "target 4 is out of range"),
        ({"batch_size": 0}, "batch_size` must be a whole number"),
        ({"reference": "blur"}, "This method takes no reference"),
    ],
)
def test_what_does_not_fit_is_told_in_a_sentence(given, expected):
    with pytest.raises(InputError, match=expected):
        cascading_randomization(small_cnn(), edges, pictures(), **given)


def test_images_methods_and_networks_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="at least 7 pixels per side"):
        cascading_randomization(small_cnn(), edges, pictures(size=(6, 9)))
    with pytest.raises(InputError, match="`method` must be a name or a callable"):
        cascading_randomization(small_cnn(), 3, pictures())
    with pytest.raises(InputError, match="Unknown method 'nope'"):
        cascading_randomization(small_cnn(), "nope", pictures())
    with pytest.raises(InputError, match="`maps` has shape"):
        cascading_randomization(small_cnn(), lambda model, inputs, target: inputs, pictures())
    with pytest.raises(InputError, match="call model.eval"):
        cascading_randomization(small_cnn().train(), edges, pictures())
    with pytest.raises(ModelError, match="No layer with weights was seen to run"):
        cascading_randomization(nn.Flatten().eval(), edges, pictures())


def test_a_network_that_cannot_be_copied_is_told():
    net = small_cnn()
    net.lock = (i for i in range(3))
    with pytest.raises(ModelError, match="The network cannot be copied"):
        cascading_randomization(net, edges, pictures())
