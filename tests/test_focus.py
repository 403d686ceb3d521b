"""The focus: weights and weighted gradients by hand, and the flagship that uses it."""

import pytest
import torch
from networks import pictures, small_cnn
from scipy.ndimage import gaussian_filter
from test_contrast import network
from tiny_vit import tiny_vit
from torch import nn

import fei
from fei.core.balance import balanced_relevance
from fei.core.clipgrad import get_rule
from fei.core.dataflow import trace
from fei.core.pathway import Pathway
from fei.core.relevance import evidence_of, evidence_ranks, evidence_weights, relevance
from fei.core.scoring import relative_score
from fei.core.sites import find_layer, find_sites
from fei.core.stream import find_stream
from fei.errors import InputError
from fei.models import Classifier

# one class for what is red and one for what is blue, each read off a channel of its own
RED, BLUE = 0, 1


class Colours(nn.Module):
    def __init__(self):
        super().__init__()
        self.see = nn.Conv2d(3, 2, 3, padding=1, bias=False)
        self.act = nn.ReLU()
        self.read = nn.Linear(2, 3)
        weights = torch.zeros(2, 3, 3, 3)
        weights[RED, 0], weights[BLUE, 2] = 1.0, 1.0
        weights[RED, 1:], weights[BLUE, :2] = -0.5, -0.5
        self.see.weight.data = weights / 9
        self.read.weight.data = torch.tensor([[9.0, 0.0], [0.0, 9.0], [0.0, 0.0]])
        self.read.bias.data = torch.zeros(3)

    def forward(self, x):
        return self.read(self.act(self.see(x)).mean((2, 3)))


def two_colours(size=12):
    """Red to the left and blue to the right."""
    image = torch.zeros(1, 3, size, 2 * size)
    image[:, 0, :, :size] = 1.0
    image[:, 2, :, size:] = 1.0
    return image


def test_weights_by_hand():
    relevant = torch.tensor([[[[1.0, 2.0]], [[1.0, 4.0]]]])  # two channels at two places: the evidence is 2 and 6
    evidence = evidence_of(relevant)
    assert evidence.tolist() == [[[[2.0, 6.0]]]]
    assert evidence_weights(evidence).tolist() == [[[[0.0, 2.0]]]]
    assert evidence_weights(-evidence).tolist() == [[[[2.0, 0.0]]]]  # where there is least against it
    assert evidence_weights(torch.ones(1, 1, 1, 2)).tolist() == [[[[1.0, 1.0]]]]


def test_ranks_by_hand():
    evidence = torch.tensor([[[[3.0, 1.0], [2.0, 2.0]]]])
    assert evidence_ranks(evidence, (2, 2)).flatten().tolist() == pytest.approx([1, 0, 1 / 3, 2 / 3])


def test_relevance_by_hand():
    """h·∂(z₁ − z₂)/∂h: with two classes the softmax asks for nothing but the difference."""
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(4, 2)).double().eval()
    x = torch.tensor([[[[1.0, 2.0]]]], dtype=torch.float64)
    site = find_layer(model, trace(model, x)[0], "1")
    (found,) = relevance(model, [site], x, lambda output: relative_score(output, None, torch.tensor([1]), "softmax"))
    h = model[:2](x)
    weights = (model[3].weight[1] - model[3].weight[0]).view(1, 2, 1, 2)
    torch.testing.assert_close(found, (h * weights).detach())


@pytest.mark.parametrize("layer", ["1", "3"])  # a clip site, and the last one
@pytest.mark.parametrize("rule", ["vm", "ibm", "none"])
def test_the_gradient_is_weighted_and_then_clipped_by_hand(layer, rule):
    model = network()
    generator = torch.Generator().manual_seed(3)
    image, perturbed = (torch.rand(1, 3, 8, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    weights = torch.rand(1, 1, 8, 8, generator=generator, dtype=torch.float64)
    flow = trace(model, image)[0]
    pathway = Pathway(model, find_sites(model, flow), get_rule(rule), focus=find_layer(model, flow, layer))
    pathway.record(image)
    pathway.weight(weights)
    leaf = perturbed.clone().requires_grad_()
    (found,) = torch.autograd.grad(pathway.run(leaf).softmax(1)[:, 1].sum(), leaf)

    chosen, leaf = get_rule(rule), perturbed.clone().requires_grad_()
    on_original, kept = [image], [leaf]  # the values before the first layer and after each
    for part in model:
        on_original.append(part(on_original[-1]))
        kept.append(part(kept[-1]))
    (rho,) = torch.autograd.grad(kept[-1].softmax(1)[:, 1].sum(), kept[4], retain_graph=True)

    def held(rho, place):
        if layer == str(place):
            rho = rho * weights
        if rule == "none":
            return rho
        guard = chosen.guard(chosen.keep(on_original[place + 1].detach()), kept[place + 1].detach(), None)
        return chosen.clip(rho, guard)

    (rho,) = torch.autograd.grad(kept[4], kept[2], held(rho, 3), retain_graph=True)
    (expected,) = torch.autograd.grad(kept[2], leaf, held(rho, 1))
    torch.testing.assert_close(found, expected)


def test_a_value_between_clip_sites_can_be_weighted():
    model = network()
    image = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    flow = trace(model, image)[0]
    focus = find_layer(model, flow, "2")  # the convolution before its activation, which is the site
    found = []
    for weights in (torch.ones(()), torch.zeros(())):
        pathway = Pathway(model, find_sites(model, flow), get_rule("vm"), focus=focus)
        pathway.record(image)
        pathway.weight(weights.double())
        leaf = (image * 0.5).requires_grad_()
        found.append(torch.autograd.grad(pathway.run(leaf).softmax(1)[:, 1].sum(), leaf)[0])
    assert found[0].any()
    assert not found[1].any()


def test_without_it_nothing_changes():
    model, x = small_cnn(), pictures()
    plain, none = (fei.FEI(model, "vm", steps=3, **more).explain(x) for more in ({}, {"focus": 0.0}))
    assert torch.equal(plain.alphas, none.alphas)
    assert not {"focus", "prior", "smooth", "reference", "contrast"} & set(plain.config["settings"])
    assert "focus" not in plain.config
    some = fei.FEI(model, "vm", steps=3, focus=0.5).explain(x)
    assert (some.config["settings"]["focus"], some.config["focus"]) == (0.5, "5")
    assert not torch.equal(plain.alphas, some.alphas)


def test_the_flagship_is_what_nothing_else_was_asked_for():
    model = small_cnn()
    flagship = fei.FEI(model).config
    assert flagship == fei.FEI(model, "ibm", preset="fei").config == fei.methods.create("fei").config  # type: ignore[attr-defined]
    chosen = {"variant": "ibm", "preset": "fei", "steps": 20, "focus": 1.0, "prior": 0.5, "smooth": 3.0}
    assert chosen | {"reference": "color+clouds:resample"} == {name: flagship[name] for name in [*chosen, "reference"]}
    assert fei.FEI(model, steps=40).config == flagship | {"steps": 40}
    quick = {"preset": "preview", "nesting": "shared", "tries": 3, "coarse": 24.0, "steps": 3}
    assert fei.FEI(model, preset="preview").config == flagship | quick
    for other in ({"constraint": "penalty"}, {"early_stop": 0.1}, {"nesting": "cumulative"}):
        config = fei.FEI(model, preset="preview", **other).config  # sharing gives way to what was asked for
        assert config["nesting"] == other.get("nesting", "independent")
        assert "tries" not in config
    for fast in (fei.FEI(model, "vm"), fei.FEI(model, preset="fast"), fei.methods.create("fei-vm")):
        assert (fast.config["preset"], "focus" in fast.config, "reference" in fast.config) == ("fast", False, False)
    paper = fei.FEI(model, preset="paper").config
    assert (paper["variant"], paper["steps"], "focus" in paper) == ("vm", 100, False)


def test_the_callers_reference_replaces_that_of_the_settings():
    model, x = small_cnn(), pictures()
    assert fei.FEI(model, steps=2).explain(x).config["reference"] == {"kind": "color+clouds", "resample": True}
    given = fei.FEI(model, steps=2).explain(x, baselines="noise")
    assert given.config["reference"] == {"kind": "noise", "resample": False}
    fixed = fei.FEI(model, "vm", steps=2, reference="noise").explain(x)
    assert torch.equal(fixed.reference, given.reference)


def test_the_map_is_about_its_class():
    """Red is to the left and blue to the right; without the focus value matching takes both for either."""
    model, x = Colours().eval(), two_colours()
    red, blue = (fei.FEI(model).attribute(x, target)[0, 0] for target in (RED, BLUE))  # type: ignore[call-overload]
    left, right = slice(1, 11), slice(13, 23)
    assert red[:, left].mean() > red[:, right].mean() + 0.3
    assert blue[:, right].mean() > blue[:, left].mean() + 0.3


def test_a_batch_is_its_images_one_by_one():
    model, x = small_cnn(), pictures(3)
    explainer = fei.FEI(model, steps=3)
    together = explainer.explain(x, [0, 1, 2])
    for number in range(3):
        alone = explainer.explain(x[number : number + 1], number)
        assert torch.equal(alone.alphas, together.alphas[number : number + 1])
    wide = explainer.explain(x, [0, 1, 2], internal_batch_size=10)
    for number in range(3):
        alone = explainer.explain(x[number : number + 1], number, internal_batch_size=10)
        assert torch.equal(alone.alphas, wide.alphas[number : number + 1])


def test_a_few_rows_at_a_time_are_focused_too():
    model, x = small_cnn(), pictures(1)
    maps = [fei.FEI(model, steps=3).explain(x, internal_batch_size=rows).maps for rows in (5, 2)]
    torch.testing.assert_close(*maps, atol=1e-3, rtol=0)


class NoMap(nn.Module):
    """A network that never has a map of features."""

    def __init__(self):
        super().__init__()
        self.read = nn.Linear(3, 2)

    def forward(self, x):
        return self.read(x.mean((2, 3)).relu())


def test_a_network_without_features_says_so():
    with pytest.warns(UserWarning, match="no feature layer was found, so nothing is focused on the class") as said:
        found = fei.FEI(NoMap().eval(), "none", preset="fei", steps=2).explain(pictures())
    assert "nothing is focused" in found.config["notes"][0]
    assert said[0].filename == __file__  # where the user called


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan"), "much", True])
def test_a_strength_that_is_none_is_refused(strength):
    with pytest.raises(InputError, match="`focus` is .*; give a number from 0"):
        fei.FEI(small_cnn(), focus=strength)


def test_a_reference_in_the_settings_is_a_name():
    with pytest.raises(InputError, match="`reference` must be a name, such as 'color:resample'"):
        fei.FEI(small_cnn(), reference=0.5)
    with pytest.raises(InputError, match="Unknown reference 'sky'"):
        fei.FEI(small_cnn(), reference="sky")


def test_named_feature_layers_are_those_focused_on():
    model = Classifier(small_cnn(), input_size=16, feature_layers=["1"]).eval()
    found = fei.FEI(model, steps=1).explain(torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)))
    assert found.config["focus"] == "network.1"


def test_the_evidence_is_a_member_of_the_map():
    """M = (mean of the masks + prior · ranks) / (1 + prior), by hand."""
    model, x = Colours().eval(), two_colours()
    found = fei.FEI(model, "vm", steps=2, prior=0.25).explain(x, RED)
    masks = found.alphas.mean((1, 2))[:, None]
    ranks = (found.maps * 1.25 - masks) / 0.25
    assert ranks.flatten().sort().values.tolist() == pytest.approx(
        torch.linspace(0, 1, ranks.numel()).tolist(), abs=1e-4
    )
    assert ranks[..., 2:10].min() > ranks[..., 14:22].max()  # the evidence for red is to the left
    plain = fei.FEI(model, "vm", steps=2).explain(x, RED)
    assert torch.equal(plain.alphas, found.alphas)  # the masks are what they were


def test_on_a_transformer_the_evidence_is_that_of_all_blocks_with_balanced_gradients():
    net, x = tiny_vit(dtype=torch.float64), pictures(2, (12, 16)).double()
    found = fei.FEI(net, "ibm", prior=1.0, steps=1).explain(x, [1, 2], evidence=False)
    flow, _ = trace(net, x[:1])

    def score(output):
        return relative_score(output, None, torch.tensor([1, 2]), "softmax", 0.6)

    stream = find_stream(net, flow)
    tokens = balanced_relevance(net, flow, stream, x, score)  # by hand in tests/test_transformer_methods.py
    expected = evidence_ranks(tokens[:, 1:].view(2, 1, 3, 4), (12, 16))
    torch.testing.assert_close(2 * found.maps - found.alphas.mean(1), expected)
    assert found.config["focus"].endswith("blocks.1.norm1")


def test_the_smoothing_falls_by_the_same_factor_from_step_to_step():
    settings = fei.FEI(small_cnn(), "vm", steps=4, coarse=24.0, smooth=3.0).settings
    assert [settings.smoothing(step) for step in range(4)] == pytest.approx([24, 12, 6, 3])
    settings = fei.FEI(small_cnn(), "vm", steps=4, smooth=3.0).settings
    assert [settings.smoothing(step) for step in range(4)] == [3] * 4


def test_smoothed_steps_by_hand():
    """One step of a uniform mask goes along the blurred gradient."""
    model, x = small_cnn(), pictures(1)
    steps = {"steps": 1, "quantiles": [0.5]}
    plain, smooth = (fei.FEI(model, "none", smooth=s, **steps).explain(x, 1, 0.2) for s in (0.0, 2.0))
    leaf = torch.lerp(torch.full_like(x, 0.2), x, 0.5).requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf).softmax(1)[0, 1], leaf)
    along = (gradient * (x - 0.2)).sum(1, keepdim=True)
    blurred = torch.from_numpy(gaussian_filter(along[0, 0].double().numpy(), 2.0, mode="nearest", radius=5))
    moved = (smooth.alphas[0, 0, 0] - 0.5).double().flatten()
    inside = (moved.abs() < 0.499).nonzero()[:, 0]
    assert torch.corrcoef(torch.stack([moved[inside], blurred.flatten()[inside]]))[0, 1] > 0.999
    assert not torch.allclose(plain.alphas, smooth.alphas, atol=0.05)
