"""The contrast: by hand on a small network, and what must not change."""

import pytest
import torch
from torch import nn

import fei
from fei.core.clipgrad import RULES, get_rule
from fei.core.dataflow import trace
from fei.core.optimization import contrasted
from fei.core.pathway import Pathway
from fei.core.sites import find_sites
from fei.errors import InputError
from fei.references import References

CLIPPING = [name for name in RULES if name != "none"]


def network(convolutions=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    layers, channels = [], 3
    for _ in range(convolutions):
        layers += [nn.Conv2d(channels, 4, 3, padding=1), nn.ReLU()]
        channels = 4
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
    return model


@pytest.fixture
def image():
    return torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture
def reference():
    return torch.full((1, 3, 1, 1), 0.3, dtype=torch.float64)


def explain(model, image, reference, variant="vm", **options):
    return fei.FEI(model, variant, **{"steps": 3, "quantiles": [0.5], **options}).explain(image, 1, reference)


def both_ways(model, image, perturbed, rule):
    """The clipped gradients of +φ and −φ at the image, each from a pass of its own."""
    found = []
    for sign in (1, -1):
        pathway = Pathway(model, find_sites(model, trace(model, image)[0]), get_rule(rule))
        pathway.record(image)
        leaf = perturbed.clone().requires_grad_()
        score = pathway.run(leaf).softmax(1)[:, 1].sum()
        found.append(torch.autograd.grad(sign * score, leaf)[0])
    return found


@pytest.mark.parametrize("rule", CLIPPING)
@pytest.mark.parametrize("watched", [False, True])
def test_two_passes_backwards_of_one_forward_are_two_forwards(image, rule, watched):
    model, perturbed = network(), image * 0.6 + 0.1
    expected = both_ways(model, image, perturbed, rule)
    if watched:  # gradients then go into memory of their own anyway
        model[0].register_forward_hook(lambda *_: None)
    pathway = Pathway(model, find_sites(model, trace(model, image)[0]), get_rule(rule))
    pathway.record(image)
    leaf = perturbed.clone().requires_grad_()
    shares = {}
    score = pathway.run(leaf, shares).softmax(1)[:, 1].sum()
    first = torch.autograd.grad(score, leaf, retain_graph=True)[0]
    kept = dict(shares)
    second = torch.autograd.grad(-score, leaf)[0]
    assert torch.equal(first, expected[0])
    assert torch.equal(second, expected[1])
    assert shares == kept  # what was lost is told of the first


@pytest.mark.parametrize("rule", CLIPPING)
def test_one_step_by_hand(image, reference, rule):
    """From a uniform mask of half the area: α − step · g/mean|g| projected, g = −(g⁺ − λ g⁻)·(x − R) over channels."""
    model = network()
    blend = torch.lerp(reference.expand_as(image), image, 0.5)
    towards, against = ((g * (image - reference)).sum(1) for g in both_ways(model, image, blend, rule))
    direction = towards - 0.7 * against
    moved = 0.5 + 0.3 * direction / direction.abs().mean()
    low, high = moved.min() - 1, moved.max()
    for _ in range(200):  # Euclidean projection on the box and the area, by bisection
        middle = (low + high) / 2
        low, high = (middle, high) if (moved - middle).clamp(0, 1).mean() > 0.5 else (low, middle)
    expected = (moved - low).clamp(0, 1)
    found = explain(model, image, reference, rule, steps=1, contrast=0.7).alphas[0, 0, 0]
    assert torch.allclose(found, expected[0], atol=1e-9)


def test_without_strength_it_is_the_paper(image, reference):
    model = network()
    plain, none = explain(model, image, reference), explain(model, image, reference, contrast=0.0)
    assert torch.equal(plain.alphas, none.alphas)
    assert "contrast" not in plain.config["settings"]  # keys of earlier results stay what they were
    assert explain(model, image, reference, contrast=0.5).config["settings"]["contrast"] == 0.5


def test_with_one_site_full_strength_is_the_unclipped_gradient(image):
    model, perturbed = network(convolutions=1), image * 0.6 + 0.1
    towards, against = both_ways(model, image, perturbed, "vm")
    leaf = perturbed.clone().requires_grad_()
    plain = torch.autograd.grad(model(leaf).softmax(1)[:, 1].sum(), leaf)[0]
    assert torch.allclose(contrasted(towards, against, 1.0), plain, atol=1e-15)


@pytest.mark.parametrize("options", [{"objective": "deletion"}, {"objective": "both"}, {"preset": "paper"}])
@pytest.mark.parametrize("rule", CLIPPING)
def test_it_works_with_every_rule_and_objective(image, reference, rule, options):
    plain = explain(network(), image, reference, rule, **options)
    found = explain(network(), image, reference, rule, contrast=0.8, **options)
    assert found.alphas.isfinite().all()
    assert not torch.equal(found.alphas, plain.alphas)


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan"), "much", True])
def test_a_strength_that_is_none_is_refused(strength):
    with pytest.raises(InputError, match="`contrast` is .*; give a number from 0"):
        fei.FEI(network(), contrast=strength)


def test_where_nothing_is_clipped_there_is_nothing_to_contrast():
    with pytest.raises(InputError, match="nothing is clipped; give it with another variant"):
        fei.FEI(network(), "none", contrast=0.5)


def test_a_fresh_reference_for_each_mask_and_step(image):
    drawn = References(fei.Reference("color", resample=True), image, ["digest"], network(), seed=0)
    rows = [(0, 0), (0, 1)]
    colours = torch.cat([drawn.of_rows(step, rows) for step in range(3)]).flatten(1)
    assert len(colours.unique(dim=0)) == 6
    assert torch.equal(drawn.of_rows(1, rows[1:]).flatten(1), colours[3:4])  # whatever else is drawn
    fixed = References("color", image, ["digest"], network(), seed=0)
    assert torch.equal(fixed.of_rows(0, rows), fixed.of_rows(2, rows))
    assert torch.equal(fixed.of_rows(0, rows), fixed.values[[0, 0]])


def test_each_mask_is_blended_with_its_own_reference(image):
    """At α = 0 a row is its reference: the two rows of the first step differ."""
    seen = []

    class Watching(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.pixel_range = network(), (0.0, 1.0)

        def forward(self, x):
            seen.append(x.detach().clone())
            return self.inner(x)

    explainer = fei.FEI(Watching().eval(), steps=1, quantiles=[0.3, 0.7], init=0.0, constraint="penalty")
    explainer.explain(image, 1, fei.Reference("color", resample=True))
    blended = [rows for rows in seen if len(rows) == 2 and not torch.equal(rows[0], image[0])]
    assert blended
    assert all(not torch.equal(rows[0], rows[1]) for rows in blended)
    assert all(rows.flatten(2).std(-1).max() < 1e-12 for rows in blended[:1])  # one colour each
