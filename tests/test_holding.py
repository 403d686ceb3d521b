"""Gradients that are clipped in pieces: the same bits as in one go, for any layout, in memory that is used again."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fei.core import holding
from fei.core.clipgrad import RULES, Matching, Rule, get_rule
from fei.core.dataflow import trace
from fei.core.folding import Ramp, find_folding, first_pass
from fei.core.holding import Hold
from fei.core.pathway import Pathway
from fei.core.sites import find_sites
from fei.errors import ModelError

CLIPPING = [name for name in RULES if name != "none"]
LAST, USUAL = torch.channels_last, torch.contiguous_format


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(holding, "_PIECE", 20)


def numbers(seed, rows=3, layout=LAST):
    values = torch.randn(rows, 4, 3, 5, generator=torch.Generator().manual_seed(seed))
    return values.contiguous(memory_format=layout)


def by_the_graph(clipped, before, ramp):
    """What a ReLU's own backward makes of a gradient."""
    leaf = before.clone().requires_grad_()
    value = F.hardtanh(leaf, ramp.low, ramp.high) if ramp.high < torch.inf else F.relu(leaf)
    return torch.autograd.grad(value, leaf, clipped)[0]


@pytest.mark.parametrize("rule", CLIPPING)
@pytest.mark.parametrize("layout", [LAST, USUAL])
@pytest.mark.parametrize("ramp", [None, Ramp(0.0, torch.inf), Ramp(-0.5, 0.75)])
def test_pieces_are_the_whole_to_the_bit(rule, layout, ramp):
    chosen, rho, before = get_rule(rule), numbers(0, layout=layout), numbers(1, layout=layout)
    value = before if ramp is None else before.clamp(ramp.low, ramp.high)
    kept = chosen.keep(numbers(2, 1, layout))  # one row for all
    guard = None if chosen.follows else kept
    hold = Hold(chosen, kept, value, guard, ramp)
    expected = chosen.clip(rho, chosen.guard(kept.expand_as(value), value))
    assert torch.equal(hold.clip(rho), expected)
    expected = expected if ramp is None else by_the_graph(expected, before, ramp)
    memory = torch.empty_like(rho)
    passed = hold.pass_on(rho, memory)
    assert torch.equal(passed, expected)
    assert passed.data_ptr() == memory.data_ptr()
    assert torch.equal(hold.pass_on(rho), expected)
    made = Hold(chosen, kept, value, chosen.guard(kept.expand_as(value), value), ramp)  # a guard that was made before
    assert torch.equal(made.pass_on(rho), expected)


@pytest.mark.parametrize("rule", ["vm", "ibm"])
def test_what_has_another_layout_or_precision_is_clipped_in_one_go(rule):
    chosen, value = get_rule(rule), numbers(1)
    kept = chosen.keep(numbers(2))
    hold = Hold(chosen, kept, value, None if chosen.follows else kept, Ramp(0.0, torch.inf))
    expected = hold.pass_on(numbers(0))
    assert torch.equal(hold.pass_on(numbers(0, layout=USUAL)), expected)
    wide = hold.pass_on(numbers(0).double(), torch.empty(2))
    assert wide.dtype == torch.float64
    assert torch.equal(wide.float(), expected)


def test_a_rule_of_ones_own_sees_all_units_at_once():
    seen = []

    def home(reference, activation, memory):
        seen.append(tuple(activation.shape))
        return reference - activation

    rule, value = Rule(Matching(torch.clone, home)), numbers(1)
    assert not rule.local
    Hold(rule, numbers(2), value).pass_on(numbers(0))
    assert seen == [tuple(value.shape)]


class Overwriting(nn.Module):
    """A convolution whose value, a clip site, is overwritten in the pass: always, or from some pass on."""

    def __init__(self, first):
        super().__init__()
        self.conv, self.first, self.passes = nn.Conv2d(3, 4, 1), first, 0

    def forward(self, x):
        self.passes += 1
        y = self.conv(x)
        if self.passes > self.first:
            y += 1
        return y.mean((2, 3))


def test_a_value_that_is_overwritten_counts_as_it_was():
    x, other = torch.rand(2, 2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    net = Overwriting(0).eval()
    flow, _ = trace(net, x[:1])
    pathway = Pathway(net, find_sites(net, flow), get_rule("vm"))
    pathway.record(x)
    leaf = other.clone().requires_grad_()
    (found,) = torch.autograd.grad(pathway.run(leaf).sum(), leaf)
    h, now = net.conv(x), net.conv(other)
    rho = torch.full_like(h, 1 / 36) * (now <= h)  # it rises: only where that leads back
    (expected,) = torch.autograd.grad(net.conv(leaf), leaf, rho)
    assert torch.equal(found, expected)


def test_a_network_that_overwrites_a_value_now_and_then_is_refused():
    x = torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    net = Overwriting(2).eval()
    flow, _ = trace(net, x)
    pathway = Pathway(net, find_sites(net, flow), get_rule("vm"))
    pathway.record(x)
    leaf = x.clone().requires_grad_()
    with pytest.raises(ModelError, match="The network overwrites conv in one pass and not in another"):
        torch.autograd.grad(pathway.run(leaf).sum(), leaf)


@pytest.mark.parametrize("rule", CLIPPING)
def test_the_same_memory_serves_every_pass_of_a_folded_network(rule):
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.ReLU6(), nn.Flatten()).eval()
    x = torch.rand(3, 3, 6, 6, generator=torch.Generator().manual_seed(0)).contiguous(memory_format=LAST)
    seen = first_pass(net, x[:1])
    sites = find_sites(net, seen.flow)
    folding = find_folding(net, seen, sites)
    assert [folding.exchanged[site.key] for site in sites] == [Ramp(0.0, torch.inf), Ramp(0.0, 6.0)]
    gradients = []
    for exchanged in (folding, None):
        pathway, places = Pathway(net, sites, get_rule(rule), exchanged), []
        pathway.record(x[:1].expand(3, -1, -1, -1).contiguous(memory_format=LAST))
        assert all(len(kept) == 1 for kept in pathway._kept)
        for shift in (0.9, 0.5):
            leaf = (x * shift).requires_grad_()
            gradients.append(torch.autograd.grad(pathway.run(leaf).square().sum(), leaf)[0])
            places.append(pathway._memory[0].data_ptr())
        assert places[0] == places[1]
    for folded, plain in zip(gradients[:2], gradients[2:], strict=True):
        torch.testing.assert_close(folded, plain)
