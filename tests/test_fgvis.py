"""FGVis: its rule case by case, its masks per channel, its gradient by hand."""

import numpy as np
import pytest
import torch
from networks import pictures, small_cnn
from torch import nn

import fei
from fei.core.dataflow import trace
from fei.core.pathway import Pathway
from fei.core.sites import find_sites
from fei.methods.fei import FGVis, stays_in_original_range


def test_the_rule_case_by_case():
    h = torch.tensor([2.0, 2.0, 2.0, 2.0, -1.0, -1.0, -1.0, 0.0, 0.0])
    t = torch.tensor([1.0, 0.0, 2.5, -0.5, -0.5, 0.5, -2.0, 0.0, 0.1])
    passes = [True, True, False, False, True, False, False, True, False]
    assert stays_in_original_range(h, t).tolist() == passes
    rule = FGVis(small_cnn()).rule
    for sign in (1.0, -1.0):  # the sign of the gradient plays no part
        clipped = rule.clip(torch.full((9,), sign), rule.guard(rule.keep(h), t))
        assert clipped.tolist() == [sign if p else 0.0 for p in passes]


def test_the_gradient_of_a_small_network_by_hand():
    rng = np.random.default_rng(0)
    w1, w2 = rng.normal(size=(6, 3)), rng.normal(size=6)
    x, perturbed = rng.normal(size=(2, 16, 3))
    net = nn.Sequential(nn.Conv2d(3, 6, 1, bias=False), nn.ReLU(inplace=True)).double().eval()
    net[0].weight.data.copy_(torch.tensor(w1)[..., None, None])

    def as_image(pixels):
        return torch.tensor(pixels).T.reshape(1, 3, 4, 4).contiguous()

    flow, _ = trace(net, as_image(x))
    pathway = Pathway(net, find_sites(net, flow, "nonlinearity"), FGVis(net).rule)
    pathway.record(as_image(x))
    leaf = as_image(perturbed).requires_grad_()
    output = (pathway.run(leaf) * torch.tensor(w2).view(1, 6, 1, 1)).sum()
    (got,) = torch.autograd.grad(output, leaf)
    h, t = np.maximum(x @ w1.T, 0), np.maximum(perturbed @ w1.T, 0)
    inside = (t >= np.minimum(0, h)) & (t <= np.maximum(0, h))
    expected = (np.broadcast_to(w2, t.shape) * inside * (t > 0)) @ w1
    np.testing.assert_allclose(got[0].flatten(1).T.numpy(), expected, rtol=1e-12, atol=1e-14)


def test_masks_have_channels_and_the_map_is_their_mean():
    result = fei.methods.create("fgvis", steps=4, quantiles=[0.3, 0.7]).explain(small_cnn(), pictures(), 1)  # type: ignore[attr-defined]
    assert result.alphas.shape == (2, 2, 3, 12, 16)
    torch.testing.assert_close(result.maps[:, 0], result.alphas.mean((1, 2)))
    assert not torch.equal(result.alphas[:, :, 0], result.alphas[:, :, 1])
    asked = torch.tensor([0.7, 0.3], dtype=torch.float64)
    assert (result.alphas.double().mean((2, 3, 4)) - asked).abs().max() <= 1e-6
    blended = result.alphas * result.inputs[:, None] + (1 - result.alphas) * result.reference[:, None]
    torch.testing.assert_close(result.perturbed(), blended)
    assert result.config["settings"]["variant"] == "fgvis"


def test_every_nonlinearity_is_a_site():
    net = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(384, 4), nn.ReLU(), nn.Linear(4, 2))
    config = fei.methods.create("fgvis", steps=1).explain(net.eval(), pictures(1)).config  # type: ignore[attr-defined]
    assert [site["name"] for site in config["sites"]] == ["1", "4"]


def test_bad_options():
    with pytest.raises(ValueError, match="`steps` must be a whole number"):
        fei.methods.create("fgvis", steps=0)
