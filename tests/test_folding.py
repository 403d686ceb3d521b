"""BatchNorm folded into convolutions: the same values and clipped gradients, in double precision to rounding."""

import pytest
import torch
from networks import fingerprint
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import fei
from fei.core.clipgrad import RULES, get_rule
from fei.core.folding import Folding, find_folding, first_pass
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


class Padded(nn.Module):
    """Zeros on some sides and other paddings, ReLU6 and its kin, 1×1 convolutions with and without stride."""

    def __init__(self):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8)
        self.narrow, self.strided = nn.Conv2d(8, 4, 1, bias=False), nn.Conv2d(4, 6, 1, stride=2)
        self.wide, self.grouped = nn.Conv2d(6, 8, (1, 1), padding=0), nn.Conv2d(8, 8, 1, groups=2)
        self.ringed = nn.Conv2d(8, 8, 1, padding=1)
        self.relu6, self.bounded, self.head = nn.ReLU6(), nn.Hardtanh(-0.5, 2.0), nn.Linear(8, 3)

    def forward(self, x):
        x = self.relu6(self.bn(self.stem(F.pad(x, (0, 1, 0, 1)))))
        x = F.relu6(self.narrow(F.pad(x, (1, 0, 2, 1), "constant", 0)))
        x = self.strided(F.pad(x, (1, 1, 1, 1), mode="reflect"))
        x = self.bounded(self.wide(F.pad(x, (0, 1), value=0.3)))
        x = F.relu(self.grouped(nn.ZeroPad2d((0, -1, 1, 0))(x)))
        return self.head(self.ringed(x).mean((2, 3)))


@pytest.mark.parametrize(("factor", "holds"), [(1.005, False), (1 + 1e-7, True)])
def test_a_folding_that_changes_the_output_is_not_used(factor, holds, monkeypatch):
    """Half a per cent would change maps; the order of roundings does not."""
    model = made(Residual)
    seen = first_pass(model, images()[:1])
    sites = find_sites(model, seen.flow)
    key = next(call.key for call in seen.flow.calls if call.function == "linear")

    def scaled(func, args, kwargs):
        return func(*args, **kwargs) * factor

    monkeypatch.setattr("fei.core.pathway.find_folding", lambda *_: Folding({key: scaled}))
    assert bool(folding_that_holds(model, seen, sites).exchanged) == holds


def exchanged(folding, function):
    return [key for key in folding.exchanged if key[0] == function]


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


def images(layout=torch.contiguous_format):
    values = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return values.contiguous(memory_format=layout)


def found(model, select="activation", layout=torch.contiguous_format):
    """The sites of a network, and what is found in a pass on an image."""
    seen = first_pass(model, images(layout)[:1])
    sites = find_sites(model, seen.flow, select)
    return sites, find_folding(model, seen, sites)


@pytest.mark.parametrize(
    ("kind", "convolutions", "dropped"), [(Residual, 5, 4), (Functional, 3, 1), (Viewing, 1, 1), (Padded, 6, 1)]
)
def test_what_is_folded(kind, convolutions, dropped):
    _, folding = found(made(kind))
    assert len(exchanged(folding, "conv2d")) == convolutions
    assert len(exchanged(folding, "batch_norm")) == dropped


def test_what_is_computed_in_another_way_channels_last():
    model = made(Padded)
    _, folding = found(model)
    assert not exchanged(folding, "pad")
    _, folding = found(model, layout=torch.channels_last)
    pointwise = [folding.exchanged[key].pointwise for key in exchanged(folding, "conv2d")]
    assert pointwise == [False, True, False, True, False, False]
    assert len(exchanged(folding, "pad")) == 5  # those that are not zeros around an image are made as they were
    relus = {"relu", "relu6", "hardtanh"}
    assert sum(key[0] in relus for key in folding.exchanged) == 4
    model.narrow.register_forward_hook(lambda module, inputs, output: None)
    _, folding = found(model, layout=torch.channels_last)
    assert not any(key[0] in relus for key in folding.exchanged)  # a value that somebody may keep is not overwritten


LAST = torch.channels_last
ALONE = torch.contiguous_format


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("kind", "layout"),
    [(Residual, ALONE), (Residual, LAST), (Functional, ALONE), (Functional, LAST), (Viewing, ALONE), (Padded, LAST)],
)
def test_values_and_clipped_gradients_are_the_same(kind, layout, rule):
    model, x = made(kind), images(layout)
    before = fingerprint(model)
    sites, folding = found(model, layout=layout)

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
        seen = first_pass(model, images()[:1])
        folding = folding_that_holds(model, seen, find_sites(model, seen.flow))
        assert bool(exchanged(folding, "batch_norm")) is holds


def test_a_convolution_that_is_a_site_keeps_its_value():
    sites, folding = found(made(Residual), "conv")
    assert len(sites) == 5
    assert not exchanged(folding, "batch_norm")


def test_half_precision_and_autocast_are_left_alone():
    model = made(Residual).to(torch.bfloat16)
    assert not folding_that_holds(model, first_pass(model, images()[:1].to(torch.bfloat16)), []).exchanged
    model = made(Residual).float()
    with torch.autocast("cpu"):
        assert not folding_that_holds(model, first_pass(model, images()[:1].float()), []).exchanged
    assert exchanged(folding_that_holds(model, first_pass(model, images()[:1].float()), []), "batch_norm")


class Merging(nn.Module):
    """Merges rows and channels with ``view``, which works channels last where there is one row."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 3)

    def forward(self, x):
        x = F.relu(self.conv(x))
        return self.head(x.view(len(x) * 4, -1).mean(1).reshape(len(x), 4))


def test_images_are_computed_channels_last_unless_the_network_cannot():
    for kind, last in ((Residual, True), (Viewing, False), (Merging, False)):
        model, x = made(kind).float(), images().float()
        result = fei.FEI(model, steps=2).explain(x)
        assert result.config["channels_last"] is last
        other = fei.FEI(model, steps=2).explain(x.contiguous(memory_format=torch.channels_last))
        assert torch.equal(result.maps, other.maps)
