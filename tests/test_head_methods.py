"""Methods that run the head alone: the head against the whole network, then closed forms and brute force."""

import itertools
import math

import pytest
import torch
from networks import fingerprint, pictures, small_cnn
from test_baselines import cam_net
from test_sites import Functional, resnet
from torch import nn
from torch.nn import functional as F

import fei
from fei.core.dataflow import trace
from fei.core.sites import find_sites
from fei.errors import InputError, ModelError
from fei.methods._head import Head


def head_of(model, image, layer):
    flow, _ = trace(model, image)
    return Head(model, image, find_sites(model, flow, [layer])[0])


@pytest.mark.parametrize(
    ("model", "layer"),
    [
        (small_cnn(), "2"),
        (small_cnn(), "5"),
        (resnet().eval(), "body.1"),
        (resnet().eval(), "body.2.relu#0"),
        (resnet().eval(), "body.0"),
        (Functional().eval(), "bn"),
    ],
)
def test_the_head_on_the_images_own_features_gives_the_networks_output(model, layer):
    image = pictures(1)
    before = fingerprint(model)
    head = head_of(model, image, layer)
    torch.testing.assert_close(head(head.features.repeat(3, 1, 1, 1)), model(image).expand(3, -1))
    assert fingerprint(model) == before


def test_the_head_computes_nothing_before_the_site():
    model, image, calls = small_cnn(), pictures(1), []
    head = head_of(model, image, "5")

    class Count(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            calls.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Count():  # inside the head's own mode: sees only what is really computed
        head(head.features)
    assert "conv2d" not in calls
    assert "linear" in calls


def test_the_head_on_other_features():
    model, image = small_cnn(), pictures(1)
    head = head_of(model, image, "5")
    other = torch.rand(4, *head.features.shape[1:])
    torch.testing.assert_close(head(other), model[6:](other))


def test_a_head_that_mixes_the_batch_is_refused():
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 1)

        def forward(self, x):
            y = self.conv(x)
            return y.mean((2, 3)) * len(y)

    with pytest.raises(ModelError, match="behind conv cannot be run on its own"):
        head_of(Mixing().eval(), pictures(1), "conv")


def features_and_weights():
    model, x = cam_net(), pictures(2)
    return model, x, model[:2](x).detach(), model[4].weight[[1, 3]].detach()


@pytest.mark.parametrize("relu", [False, True])
def test_liftcam_on_a_pooling_head_in_closed_form(relu):
    model, x, features, weights = features_and_weights()
    coefficients = weights * features.mean((2, 3))
    weighted = torch.einsum("nk,nkhw->nhw", coefficients, features)
    expected = F.interpolate((weighted.relu() if relu else weighted)[:, None], x.shape[2:], mode="bilinear")
    torch.testing.assert_close(
        fei.methods.create("liftcam", relu=relu)(model, x, [1, 3]), expected, atol=1e-6, rtol=1e-4
    )


def deep_head(inplace):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        body = [nn.Conv2d(3, 5, 3, stride=2, padding=1), nn.ReLU()]
        head = [nn.Flatten(), nn.Linear(240, 16), nn.ReLU(inplace=inplace), nn.Linear(16, 8), nn.ReLU(inplace=inplace)]
        return nn.Sequential(*body, *head, nn.Linear(8, 4)).eval()


@pytest.mark.parametrize("inplace", [False, True])
def test_liftcam_on_a_deep_head_agrees_with_captums_deeplift(inplace):
    from captum.attr import DeepLift

    plain, model, x = deep_head(False), deep_head(inplace), pictures(1)
    features = plain[:2](x).detach()
    contributions = DeepLift(plain[2:]).attribute(features, torch.zeros_like(features), target=2).detach()
    coefficients = contributions.sum((2, 3), keepdim=True)
    expected = F.interpolate((coefficients * features).sum(1)[:, None], x.shape[2:], mode="bilinear")
    maps = fei.methods.create("liftcam", layer="1")(model, x, 2)
    torch.testing.assert_close(maps, expected, atol=1e-5, rtol=1e-3)


def test_iia_on_a_linear_head_in_closed_form():
    """The gradient of a pooling head is w/(h·w) everywhere: the map is Σ_ij Σ_k w_k ReLU(A_k^{ij})/(h·w)."""
    model, x, _, weights = features_and_weights()
    total = 0
    for i in range(4):  # both ends: zero, which is no more than the bias, and the image
        features = model[:2](x * (i / 3)).detach()
        for j in range(3):
            total = total + torch.einsum("nk,nkhw->nhw", weights, (features * (j / 2)).relu()) / features[0, 0].numel()
    expected = F.interpolate(total[:, None], x.shape[2:], mode="bicubic")
    maps = fei.methods.create("iia", outer=3, inner_steps=2)(model, x, [1, 3])
    torch.testing.assert_close(maps, expected, atol=1e-6, rtol=1e-4)


def test_iia_goes_from_zero_in_normalised_space_over_eleven_points():
    """Of a classifier the network sees (i/10)·(x − mean)/std for i = 0 … 10, whatever its mean colour."""
    network = cam_net()
    seen = []
    network[0].register_forward_pre_hook(lambda module, args: seen.append(args[0].detach().clone()))
    model = fei.models.Classifier(network, mean=(0.3, 0.5, 0.6), std=(0.2, 0.25, 0.3), input_size=16).eval()
    x = pictures(1)
    fei.methods.create("iia")(model, x, 1)
    seen = [one[:1] for one in seen if one.shape[2:] == x.shape[2:]]  # a head is run on rows of the same image
    normalised = (x - torch.tensor([0.3, 0.5, 0.6]).view(1, 3, 1, 1)) / torch.tensor([0.2, 0.25, 0.3]).view(1, 3, 1, 1)
    shares = {round(float((one * normalised).sum() / normalised.square().sum()), 4) for one in seen}
    assert shares == {i / 10 for i in range(11)}
    for one in seen:
        share = (one * normalised).sum() / normalised.square().sum()
        torch.testing.assert_close(one, share * normalised.expand_as(one), atol=1e-5, rtol=1e-4)


def test_iia_takes_the_features_behind_the_last_pooling():
    """As on VGG16: a pooled map of half the side, the same as by the pool's own name."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        body = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, 2)]
        model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()
    x, quick = pictures(1, (12, 16)), {"outer": 2, "inner_steps": 2}
    by_default = fei.methods.create("iia", **quick)(model, x, 1)
    torch.testing.assert_close(by_default, fei.methods.create("iia", layer="2", **quick)(model, x, 1))
    assert not torch.allclose(by_default, fei.methods.create("iia", layer="1", **quick)(model, x, 1))


def test_iia_inner_baselines():
    model, x = small_cnn(), pictures(1)
    quick = {"outer": 2, "inner_steps": 3}
    zero, least, released = (
        fei.methods.create("iia", inner=inner, **quick)(model, x, 1) for inner in ("zero", "min", "released")
    )
    once = fei.methods.create("iia", inner="released", outer=2, inner_steps=1)(model, x, 1)
    torch.testing.assert_close(released, 2 * once, atol=1e-6, rtol=1e-4)  # every inner point is the same
    assert not torch.equal(zero, least)
    with pytest.raises(InputError, match="Unknown inner 'max'; choose one of zero, min, released"):
        fei.methods.create("iia", inner="max")


class Interacting(nn.Module):
    """3×3 feature points that interact: the logit is a product of sums, so Shapley values differ from weights."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 2, stride=2)
        self.act = nn.ReLU()

    def forward(self, x):
        y = self.act(self.conv(x)).flatten(2)
        ramp = torch.arange(9.0) / 4
        return torch.stack([(y[:, 0] * ramp).sum(1) * y[:, 1].sum(1) + y.amax((1, 2)), y.sum((1, 2))], 1)


def brute_force_shapley(model, features):
    """Over all subsets of nine points, with the weights |S|!(8−|S|)!/9!."""

    def value(present):
        mask = torch.zeros(9)
        mask[list(present)] = 1
        y = (features * mask.view(1, 1, 3, 3)).flatten(2)
        ramp = torch.arange(9.0) / 4
        return ((y[:, 0] * ramp).sum(1) * y[:, 1].sum(1) + y.amax((1, 2))).item()

    values = [0.0] * 9
    for point in range(9):
        others = [p for p in range(9) if p != point]
        for size in range(9):
            weight = math.factorial(size) * math.factorial(8 - size) / math.factorial(9)
            for subset in itertools.combinations(others, size):
                values[point] += weight * (value([*subset, point]) - value(subset))
    return torch.tensor(values)


def test_fgvce_estimates_the_exact_shapley_values_and_is_complete():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model, x = Interacting().eval(), pictures(1, (6, 6))
    features = model.act(model.conv(x)).detach()
    exact = brute_force_shapley(model, features)
    maps = fei.methods.create("fgvce", layer="act", permutations=800)(model, x, 0, batch_size=10)
    estimate = points_of(model, x, 800)
    total = model(x)[0, 0] - 0.0
    assert estimate.sum().item() == pytest.approx(total.item(), rel=1e-3)
    torch.testing.assert_close(estimate, exact, atol=0.05 * exact.abs().max().item(), rtol=0)
    expected = F.interpolate(estimate.view(1, 1, 3, 3), (6, 6), mode="bilinear")
    torch.testing.assert_close(maps, expected, atol=1e-5, rtol=1e-3)


def points_of(model, x, permutations):
    """The values before upsampling: the same call with an upsampling that does nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fei.methods.heads.upsample", lambda maps, images: maps)
        maps = fei.methods.create("fgvce", layer="act", permutations=permutations)(model, x, 0, batch_size=10)
    return maps[0, 0].flatten()


def test_fgvce_options():
    with pytest.raises(InputError, match="`permutations` must be an even whole number"):
        fei.methods.create("fgvce", permutations=3)
