"""Recording and clipping: against back-propagation worked out in numpy, and on networks that break ordinary hooks."""

import numpy as np
import pytest
import torch
from test_sites import CONSTRAINED, Functional, clipped_gradient, resnet
from torch import nn
from torch.nn import functional as F

import fei
from fei.core.clipgrad import get_rule
from fei.core.dataflow import trace
from fei.core.pathway import Pathway
from fei.core.sites import find_sites
from fei.errors import ModelError


def numpy_gradient(weights, x, perturbed, rule):
    """Two 1×1 convolutions with ReLU and a linear read-out, forward and clipped backward by hand, one pixel a row."""
    (w1, w2), read_out = weights[:2], weights[2]

    def forward(pixels):
        h1 = np.maximum(pixels @ w1.T, 0)
        return h1, np.maximum(h1 @ w2.T, 0)

    zero = {
        "vm": lambda g, h, t: ((g <= 0) & (t > h)) | ((g > 0) & (t <= h)),
        "ivm": lambda g, h, t: (g <= 0) & (t > h),
        "avm": lambda g, h, t: (g > 0) & (t <= h),
        "ibm": lambda g, h, t: (g <= 0) & (h <= 0),
        "abm": lambda g, h, t: (g > 0) & (h > 0),
        "bm": lambda g, h, t: ((g <= 0) & (h <= 0)) | ((g > 0) & (h > 0)),
        "none": lambda g, h, t: np.zeros_like(g, dtype=bool),
    }[rule]
    h1, h2 = forward(x)
    t1, t2 = forward(perturbed)
    g2 = np.broadcast_to(read_out, t2.shape)
    g2 = np.where(zero(g2, h2, t2), 0, g2) * (t2 > 0)
    g1 = g2 @ w2
    g1 = np.where(zero(g1, h1, t1), 0, g1) * (t1 > 0)  # sees what the deeper site already clipped
    return g1 @ w1


@pytest.mark.parametrize("rule", [*CONSTRAINED, "none"])
def test_clipped_gradients_of_a_small_network_by_hand(rule):
    rng = np.random.default_rng(1)
    w1, w2, read_out = rng.normal(size=(6, 3)), rng.normal(size=(5, 6)), rng.normal(size=5)
    x, perturbed = rng.normal(size=(2, 16, 3))
    net = nn.Sequential(nn.Conv2d(3, 6, 1, bias=False), nn.ReLU(), nn.Conv2d(6, 5, 1, bias=False), nn.ReLU()).double()
    net[0].weight.data.copy_(torch.tensor(w1)[..., None, None])
    net[2].weight.data.copy_(torch.tensor(w2)[..., None, None])

    def as_image(pixels):
        return torch.tensor(pixels).T.reshape(1, 3, 4, 4).contiguous()

    weights = torch.tensor(read_out).view(1, 5, 1, 1)
    got = clipped_gradient(net.eval(), as_image(x), as_image(perturbed), rule, weights=weights)
    expected = numpy_gradient((w1, w2, read_out), x, perturbed, rule)
    np.testing.assert_allclose(got[0].flatten(1).T.numpy(), expected, rtol=1e-12, atol=1e-14)
    if rule != "none":
        free = numpy_gradient((w1, w2, read_out), x, perturbed, "none")
        assert not np.allclose(expected, free)


def out_of_place(net):
    """The same network, nothing in place and no module used twice."""

    class Block(nn.Module):
        def __init__(self, block):
            super().__init__()
            self.block, self.acts = block, nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.ReLU()])

        def forward(self, x):
            b = self.block
            out = self.acts[0](b.bn1(b.conv1(x)))
            out = self.acts[1](b.bn2(b.conv2(out)))
            out = b.bn3(b.conv3(out)) + (x if b.downsample is None else b.downsample(x))
            return self.acts[2](out)

    stem, first, second = net.body
    body = nn.Sequential(nn.Sequential(stem[0], stem[1], nn.ReLU()), Block(first), Block(second))
    clean = type(net)(body, 4)
    clean.fc = net.fc
    return clean.eval()


@pytest.mark.parametrize("residual", ["branch", "post_add", "both"])
@pytest.mark.parametrize("rule", CONSTRAINED)
def test_inplace_and_reused_modules_give_what_plain_ones_give(rule, residual):
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = resnet().double().eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.copy_(torch.randn(4, generator=generator))
    x, perturbed = torch.randn(2, 1, 3, 9, 7, generator=generator, dtype=torch.float64)  # and not square
    got = clipped_gradient(net, x, perturbed, rule, residual=residual)
    assert torch.equal(got, clipped_gradient(out_of_place(net), x, perturbed, rule, residual=residual))
    assert not torch.equal(got, clipped_gradient(net, x, perturbed, "none"))


def test_functional_activations_give_what_modules_give():
    class Modules(Functional):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.ReLU(), nn.ReLU()

        def forward(self, x):
            return torch.cat([self.left(self.bn(self.a(x))), self.right(self.b(x))], 1).mean((2, 3))

    functional = Functional().eval()
    modules = Modules().eval()
    modules.load_state_dict(functional.state_dict())
    x, perturbed = torch.rand(2, 1, 3, 8, 8)
    for rule in CONSTRAINED:
        assert torch.equal(
            clipped_gradient(functional, x, perturbed, rule), clipped_gradient(modules, x, perturbed, rule)
        )


def test_the_original_image_is_its_own_reference_to_the_bit():
    """On x itself no unit is above its reference, so IVM clips nothing and AVM everything that would fall."""
    net = resnet().eval()
    x = torch.rand(1, 3, 12, 12)
    assert torch.equal(clipped_gradient(net, x, x, "ivm"), clipped_gradient(net, x, x, "none"))
    assert torch.equal(clipped_gradient(net, x, x, "vm"), clipped_gradient(net, x, x, "avm"))


def test_a_network_that_computes_differently_each_time_is_refused():
    class Flaky(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.calls = nn.Conv2d(3, 4, 1), 0

        def forward(self, x):
            self.calls += 1
            y = self.conv(x)
            return (F.relu(y) if self.calls < 3 else y).mean((2, 3))

    net = Flaky().eval()
    x = torch.rand(1, 3, 4, 4)
    flow, _ = trace(net, x)
    pathway = Pathway(net, find_sites(net, flow), get_rule("vm"))
    pathway.record(x)
    with pytest.raises(ModelError, match=r"computed differently from one pass to the next \(0 of 1 sites"):
        pathway.run(x.requires_grad_())


def test_clipped_share_by_hand():
    """One unit a pixel, gradient 1 everywhere: AVM clips the two of four pixels that do not exceed their original."""
    net = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.Identity()).eval()
    nn.init.ones_(net[0].weight)
    x = torch.tensor([1.0, 1.0, 1.0, 1.0]).view(1, 1, 2, 2)
    perturbed = torch.tensor([0.5, 1.0, 1.5, 2.0]).view(1, 1, 2, 2).requires_grad_()
    flow, _ = trace(net, x)
    pathway = Pathway(net, find_sites(net, flow), get_rule("avm"))
    pathway.record(x)
    shares = {}
    (-pathway.run(perturbed, shares)).sum().backward()
    assert shares[0].tolist() == [0.5]


class Counting(nn.Module):
    """Two convolutions and a read-out, and how many rows went through them."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())
        self.head, self.rows = nn.Linear(4, 3), 0

    def forward(self, x):
        self.rows += len(x)
        return self.head(self.body(x).mean((2, 3)))


def test_a_batch_that_was_recorded_is_not_computed_again():
    net = Counting().eval()
    x, other = torch.rand(2, 2, 3, 6, 6)
    flow, _ = trace(net, x[:1])
    pathway = Pathway(net, find_sites(net, flow), get_rule("vm"))
    first = pathway.record(x)
    kept, before = list(pathway._kept), net.rows
    assert torch.equal(first, net(x))
    net.rows = before
    assert pathway.record(x.clone()) is first
    assert net.rows == before
    assert all(one is two for one, two in zip(kept, pathway._kept, strict=True))
    pathway.record(other)
    assert net.rows == before + len(other)
    assert not any(torch.equal(one, two) for one, two in zip(kept, pathway._kept, strict=True))
    x.zero_()
    pathway.record(other)
    assert net.rows == before + len(other)


@pytest.mark.parametrize("size", [None, 2, 6])
def test_several_classes_of_an_image_share_its_recording_and_are_what_they_are_alone(size):
    net = Counting().eval()
    x = torch.rand(1, 3, 6, 6)
    explainer = fei.FEI(net, "vm", steps=3, quantiles=(0.3, 0.6, 0.9))
    options = {"internal_batch_size": size, "evidence": False}
    alone = [explainer.explain(x, target, **options) for target in (0, 2)]
    separately, net.rows = net.rows, 0
    together = explainer.explain(x.repeat(2, 1, 1, 1), [0, 2], **options)
    assert net.rows < separately
    for number, one in enumerate(alone):
        assert torch.equal(together.alphas[number], one.alphas[0])
        assert torch.equal(together.trace.phi[number], one.trace.phi[0])
