"""BatchNorm folded into convolutions: the same values and clipped gradients, in double precision to rounding."""

import pytest
import torch
from networks import fingerprint
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import fei
from fei.core.clipgrad import RULES, get_rule
from fei.core.dataflow import trace
from fei.core.folding import find_folding
from fei.core.pathway import Pathway, folding_that_holds
from fei.core.sites import find_sites


class Residual(nn.Module):
    """In-place ReLU used three times, `out += x`, a downsampling branch, a depthwise and a biased convolution."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn0 = nn.BatchNorm2d(8)
        self.conv1, self.bn1 = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 12, 1), nn.BatchNorm2d(12, affine=False)
        self.down, self.bn3 = nn.Conv2d(8, 12, 1, bias=False), nn.BatchNorm2d(12)
        self.plain = nn.Conv2d(12, 6, 3)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = self.relu(self.bn0(self.stem(x)))
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += self.bn3(self.down(x))
        out = self.relu(self.plain(self.relu(out)))
        return self.head(out.mean((2, 3)))


class Functional(nn.Module):
    """Weights computed in the forward, a value that BatchNorm shares with another consumer, batch_norm by keyword."""

    def __init__(self):
        super().__init__()
        self.raw = nn.Parameter(torch.randn(6, 3, 3, 3))
        self.conv, self.bn = nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.shared, self.bn2 = nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        weight = (self.raw - self.raw.mean((1, 2, 3), keepdim=True)) / self.raw.std((1, 2, 3), keepdim=True)
        x = F.conv2d(x, weight, None, 1, 1)
        mean, variance = self.bn.running_mean, self.bn.running_var
        x = F.relu(F.batch_norm(self.conv(x), mean, variance, weight=self.bn.weight, bias=self.bn.bias, eps=1e-3))
        y = self.shared(x)
        return self.head((F.relu(self.bn2(y)) + y).mean((2, 3)))


class Viewing(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4 * 64, 3)

    def forward(self, x):
        return self.head(F.relu(self.bn(self.conv(x))).view(len(x), -1))


def made(kind):
    """A network with running statistics worth folding, in double precision."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = kind().double().eval()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.3, 2)
                if module.affine:
                    module.weight.data.normal_()  # negative scales too
                    module.bias.data.normal_()
    return model


def images():
    return torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def survey(model, select="activation"):
    flow, _ = trace(model, images()[:1])
    sites = find_sites(model, flow, select)
    return sites, find_folding(model, flow, sites, images()[:1])


@pytest.mark.parametrize(("kind", "convolutions", "dropped"), [(Residual, 5, 4), (Functional, 3, 1), (Viewing, 1, 1)])
def test_what_is_folded(kind, convolutions, dropped):
    _, folding = survey(made(kind))
    assert len(folding.convolutions) == convolutions
    assert len(folding.dropped) == dropped


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", [Residual, Functional, Viewing])
def test_values_and_clipped_gradients_are_the_same(kind, rule):
    model, x = made(kind), images()
    before = fingerprint(model)
    sites, folding = survey(model)

    def run(folding):
        pathway = Pathway(model, sites, get_rule(rule), folding)
        pathway.record(x)
        leaf = (0.5 * x + 0.3).requires_grad_()
        output = pathway.run(leaf)
        (gradient,) = torch.autograd.grad(output.softmax(1)[:, 1].sum(), leaf)
        return output.detach(), pathway.score(leaf).detach(), gradient

    plain, folded = run(None), run(folding)
    assert plain[2].abs().max() > 0
    for expected, got in zip(plain, folded, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(plain[0], model(0.5 * x + 0.3), rtol=1e-9, atol=1e-12)
    assert fingerprint(model) == before


class Checkpointed(nn.Module):
    """Its block is computed again in the pass backwards, where nothing is exchanged."""

    def __init__(self):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        block = nn.Sequential(self.stem, self.bn, nn.ReLU())
        return self.head(checkpoint(block, x, use_reentrant=False).mean((2, 3)))


def test_only_what_holds_is_folded():
    for kind, holds in ((Residual, True), (Functional, True), (Checkpointed, False)):
        model = made(kind)
        flow, _ = trace(model, images()[:1])
        folding = folding_that_holds(model, flow, find_sites(model, flow), images()[:1])
        assert bool(folding.dropped) is holds


def test_a_convolution_that_is_a_site_keeps_its_value():
    sites, folding = survey(made(Residual), "conv")
    assert len(sites) == 5
    assert not folding.dropped


def test_half_precision_and_autocast_are_left_alone():
    model, x = made(Residual).to(torch.bfloat16), images()[:1].to(torch.bfloat16)
    flow, _ = trace(model, x)
    assert not find_folding(model, flow, [], x).convolutions
    model, x = made(Residual).float(), images()[:1].float()
    flow, _ = trace(model, x)
    with torch.autocast("cpu"):
        assert not find_folding(model, flow, [], x).convolutions
    assert find_folding(model, flow, [], x).dropped


def test_images_are_computed_channels_last_unless_the_network_cannot():
    for kind, last in ((Residual, True), (Viewing, False)):
        model, x = made(kind).float(), images().float()
        result = fei.FEI(model, steps=2).explain(x)
        assert result.config["channels_last"] is last
        other = fei.FEI(model, steps=2).explain(x.contiguous(memory_format=torch.channels_last))
        assert torch.equal(result.maps, other.maps)
