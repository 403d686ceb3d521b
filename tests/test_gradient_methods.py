"""SmoothGrad, guided backpropagation and GradientSHAP against direct computations and other implementations."""

import captum.attr
import pytest
import torch
from networks import pictures, small_cnn
from torch import nn
from torch.nn import functional as F

from fei.core.randomness import generator_for, image_digest
from fei.errors import InputError, ModelError
from fei.methods.gradients import GradientShap, GuidedBackprop, Saliency, SmoothGrad
from fei.models import Classifier


def gradient(model, image, target):
    leaf = image.clone().requires_grad_()
    return torch.autograd.grad(model(leaf[None])[0, target], leaf)[0]


def linear_model(channels=3, size=(4, 5), classes=2):
    model = nn.Sequential(nn.Flatten(), nn.Linear(channels * size[0] * size[1], classes)).eval()
    with torch.no_grad():
        for seed, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
    return model


# SmoothGrad


def test_smoothgrad_without_noise_is_saliency():
    model, x = small_cnn(), pictures(2)
    maps = SmoothGrad(samples=3, noise=0)(model, x, [1, 2])
    torch.testing.assert_close(maps, Saliency()(model, x, [1, 2]), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_smoothgrad_is_the_mean_gradient_over_noisy_copies(batch_size):
    model, x = small_cnn(), 2 * pictures(1) - 0.7
    generator = generator_for(0, image_digest(x[0]), "smoothgrad")
    sigma = 0.2 * (x.max() - x.min())
    gradients = [gradient(model, x[0] + sigma * torch.randn(x[0].shape, generator=generator), 3) for _ in range(7)]
    maps = SmoothGrad(samples=7, noise=0.2)(model, x, 3, batch_size=batch_size)
    torch.testing.assert_close(maps[0, 0], torch.stack(gradients).mean(0).abs().amax(0), atol=1e-6, rtol=1e-4)


def test_smoothgrad_depends_on_the_seed():
    model, x = small_cnn(), pictures(1)
    one, two = (SmoothGrad(samples=2)(model, x, 0, generator=torch.Generator().manual_seed(s)) for s in (1, 2))
    assert not torch.equal(one, two)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"samples": 0}, "`samples` must be a whole number of at least 1; got 0"),
        ({"noise": -0.1}, "`noise` must be a share of the image's range, 0 or more; got -0.1"),
        ({"noise": float("nan")}, "`noise` must be a share"),
        ({"score": "logits"}, "Unknown score 'logits'"),
    ],
)
def test_smoothgrad_refuses(options, text):
    with pytest.raises(InputError, match=text):
        SmoothGrad(**options)


# guided backpropagation


class Plain(nn.Module):
    """Two convolutions with a residual sum; every ReLU is a module of its own that is used once."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.stem, self.inner = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
            self.norm, self.hidden, self.head = nn.BatchNorm2d(6), nn.Linear(6, 8), nn.Linear(8, 4)
        self.first, self.second, self.third, self.fourth = (nn.ReLU() for _ in range(4))
        self.eval()

    def forward(self, x):
        x = self.first(self.stem(x))
        y = self.second(self.norm(self.inner(x)))
        x = self.third(self.inner(y) - x)
        return self.head(self.fourth(self.hidden(x.mean((2, 3)))))


class Awkward(Plain):
    """The same network with one in-place module used twice, functions and in-place arithmetic."""

    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU(inplace=True).eval()

    def forward(self, x):
        x = self.relu(self.stem(x))
        y = F.relu(self.norm(self.inner(x)), inplace=True)
        total = self.inner(y)
        total -= x
        x = self.relu(total)
        return self.head(self.hidden(x.mean((2, 3))).relu_())


@pytest.mark.parametrize("network", [Plain, Awkward])
@pytest.mark.filterwarnings("ignore:Setting backward hooks")
def test_guided_backprop_agrees_with_captum_on_modules_and_sees_all_other_relus(network):
    x, target = pictures(3), [0, 2, 3]
    captums = captum.attr.GuidedBackprop(Plain()).attribute(x.clone().requires_grad_(), target=target)
    maps = GuidedBackprop()(network(), x, target, batch_size=2)
    torch.testing.assert_close(maps[:, 0], captums.abs().amax(1), atol=1e-6, rtol=1e-4)
    assert not torch.allclose(maps, Saliency()(Plain(), x, target))


class _GuidedReLU6(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(0, 6)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad.clamp(min=0) * ((x > 0) & (x < 6))


@pytest.mark.parametrize("activation", [nn.ReLU6(), nn.ReLU6(inplace=True), F.relu6, nn.Hardtanh(0, 6)])
def test_guided_backprop_through_relu6(activation):
    class Net(nn.Module):
        def __init__(self, activation):
            super().__init__()
            self.first, self.second = small_cnn()[0], small_cnn()[4]
            self.activation = activation

        def forward(self, x):
            return self.activation(self.second(self.activation(5 * self.first(x)))).mean((2, 3))

    x = pictures(2)
    expected = torch.stack([gradient(Net(_GuidedReLU6.apply), image, 5) for image in x])
    maps = GuidedBackprop()(Net(activation).eval(), x, 5)
    torch.testing.assert_close(maps[:, 0], expected.abs().amax(1), atol=1e-6, rtol=1e-4)


def test_guided_backprop_leaves_other_activations_their_gradient():
    """The only ReLU receives no negative gradient, so all is plain if the others, of either sign below, pass theirs."""
    head = [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(small_cnn()[0], nn.Hardtanh(), nn.SiLU(), small_cnn()[4], *head).eval()
    x = pictures(1)
    torch.testing.assert_close(GuidedBackprop()(model, x, 3), Saliency()(model, x, 3))


def test_guided_backprop_refuses_a_network_without_relu():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    with pytest.raises(ModelError, match="found no ReLU in the network, so its map would be the plain gradient"):
        GuidedBackprop()(model, pictures(1))


def test_guided_backprop_says_what_it_cannot_see():
    hidden = torch.jit.trace(nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU()).eval(), pictures(1))
    blind = nn.Sequential(hidden, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    with pytest.raises(ModelError, match="found no ReLU in the network .*scripted or foreign code"):
        GuidedBackprop()(blind, pictures(1))
    with pytest.warns(UserWarning, match="not covered by guided backpropagation: values made by scripted"):
        GuidedBackprop()(nn.Sequential(hidden, *small_cnn()).eval(), pictures(1))


# GradientSHAP


def colours(image, count, low=None, high=None, seed=0):
    """The random colours, as the default reference is drawn."""
    low = image.amin((1, 2), keepdim=True) if low is None else low
    high = image.amax((1, 2), keepdim=True) if high is None else high
    draws = [
        torch.rand(3, 1, 1, generator=generator_for(seed, image_digest(image), f"color/{j}")) for j in range(count)
    ]
    return low + (high - low) * torch.stack(draws)


def test_gradient_shap_of_a_linear_model_is_complete():
    """The gradient is the same everywhere, so the map is w·(x − mean R_j), and sums to s(x) − mean_j s(R_j)."""
    model, x = linear_model(), pictures(2, (4, 5))
    maps = GradientShap(samples=30)(model, x, 1)
    weights = model[1].weight[1].view(3, 4, 5).detach()
    for image, one in zip(x, maps, strict=True):
        drawn = colours(image, 30)
        torch.testing.assert_close(one[0], (weights * (image - drawn.mean(0))).sum(0))
        lost = model(image[None])[0, 1] - model(drawn.expand(-1, 3, 4, 5))[:, 1].mean()
        torch.testing.assert_close(one.sum(), lost.detach(), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_gradient_shap_is_the_mean_of_difference_times_gradient(batch_size):
    model, x = Classifier(small_cnn()).eval(), pictures(1)
    image = x[0]
    places = torch.rand(6, 1, 1, 1, generator=generator_for(0, image_digest(image), "gradient-shap"))
    terms = [
        (image - colour) * gradient(model, colour + place * (image - colour), 2)
        for colour, place in zip(colours(image, 6, 0, 1), places, strict=True)
    ]
    maps = GradientShap(samples=6)(model, x, 2, batch_size=batch_size)
    torch.testing.assert_close(maps[0, 0], torch.stack(terms).mean(0).sum(0), atol=1e-6, rtol=1e-4)


def test_gradient_shap_approaches_completeness():
    model, x = small_cnn(), pictures(1)
    total = GradientShap(samples=400)(model, x, 0).sum()
    drawn = colours(x[0], 400)
    expected = (model(x)[0, 0] - model(drawn.expand(-1, 3, 12, 16))[:, 0].mean()).detach()
    assert abs(total - expected) < 0.1 * abs(expected)
