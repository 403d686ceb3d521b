"""FEI on architectures of torchvision and timm: what docs/models.md says of many, asserted for a few."""

import os

import pytest
import torch
from networks import fingerprint
from torch import nn

import fei
from fei.core.clipgrad import get_rule
from fei.core.dataflow import trace
from fei.core.pathway import Pathway, visit_sites
from fei.core.sites import find_layer, find_sites
from fei.models.layers import feature_layers
from fei.models.sources import import_torchvision

pytestmark = pytest.mark.slow


def timm():
    """The package; skip where it is absent, fail where it must not be, so that a green run means that it was used."""
    import_torchvision()  # timm imports it, and may meet a compiled part that does not fit
    try:
        import timm as package
    except ModuleNotFoundError:
        message = "timm is not installed; run: pip install timm"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return package


def build(name, size):
    """A network of random weights, none of them constant, whose BatchNorms know the statistics of noise."""
    library, _, name = name.partition(":")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if library == "timm":
            model = timm().create_model(name, pretrained=False)
        else:
            options = {"init_weights": True} if name == "googlenet" else {}
            model = import_torchvision().models.get_model(name, weights=None, **options)
        for parameter in model.parameters():
            if parameter.std() == 0 or parameter.numel() == 1:
                nn.init.uniform_(parameter, 0.2, 1.0)
        for module in model.eval().modules():
            if isinstance(module, nn.BatchNorm2d):
                module.training, module.momentum = True, None
        with torch.no_grad():
            model(torch.randn(4, 3, size, size))
        return model.eval(), torch.randn(1, 3, size, size)


# network, side, number of clip sites and of activations among them, some of their names, deepest feature layer
NETWORKS = [
    ("torchvision:alexnet", 96, 5, 5, ["features.1", "features.11"], "features.11", (256, 5, 5)),
    # one in-place ReLU, twice a block; the last BatchNorm of a branch and of a downsampling path are sites
    ("torchvision:resnet18", 64, 20, 9, ["layer1.0.relu#0", "layer1.0.bn2", "layer2.0.downsample.1"], "layer4",
     (512, 2, 2)),
    # functional activations: no module to hook
    ("torchvision:googlenet", 64, 57, 57, ["conv1:relu", "inception3a.branch2.1:relu"], "inception5b", (1024, 2, 2)),
    # squeeze and excitation: its gates are sites
    ("torchvision:mobilenet_v3_small", 64, 52, 41, ["features.0.2", "features.1.block.1.scale_activation"], "features",
     (576, 2, 2)),
    ("torchvision:shufflenet_v2_x0_5", 64, 56, 37, ["conv1.2", "stage2.0.branch1.1"], "conv5", (1024, 2, 2)),
    # patterns of attention in windows, and MLPs
    ("torchvision:swin_t", 64, 25, 12, ["features.0.0", "features.1.0.attn:softmax", "features.1.0.mlp.1"], "permute",
     (768, 2, 2)),
    # BatchNorm and activation in one module
    ("timm:test_efficientnet", 64, 17, 13, ["bn1.act", "blocks.1.0.bn2:batch_norm"], "bn2", (256, 2, 2)),
    ("timm:test_resnet", 64, 15, 8, ["conv1.2", "act1", "layer1.0.bn2"], "layer4", (96, 2, 2)),
    # weights standardised by a batch_norm of their own
    ("timm:test_nfnet", 64, 33, 25, ["stem.act2", "stages.0.0.downsample.conv"], "final_act", (192, 2, 2)),
    # LayerNorm between convolution and activation: the convolution is its own site
    ("timm:test_convnext", 64, 13, 0, ["stem.0", "stages.0.blocks.0.conv_dw"], "norm_pre", (64, 2, 2)),
    ("timm:test_byobnet", 64, 22, 14, ["stem.bn.act", "stages.0.0.attn.gate"], "final_conv", (256, 2, 2)),
    # a convolution of constant positions, which is no site
    ("timm:edgenext_xx_small", 64, 19, 0, ["stem.0"], "norm_pre", (168, 2, 2)),
]  # fmt: skip


@pytest.fixture(scope="module", params=NETWORKS, ids=lambda network: network[0])
def network(request):
    name, size, *expected = request.param
    return *build(name, size), *expected


def gradient(run, x):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(run(leaf).softmax(1)[:, 0].sum(), leaf)[0]


def test_its_sites_are_those_expected(network):
    model, x, count, activations, some, _, _ = network
    sites = find_sites(model, trace(model, x)[0])
    assert len(sites) == count
    assert sum(site.activation for site in sites) == activations
    assert set(some) <= {site.name for site in sites}
    frozen = find_sites(model, trace(model.requires_grad_(False), x)[0])
    model.requires_grad_(True)
    assert frozen == sites


def test_sites_are_the_outputs_of_the_modules_they_are_named_after(network):
    model, x, *_ = network
    modules, values = dict(model.named_modules()), []
    sites = find_sites(model, trace(model, x)[0])
    named = [site for site in sites if site.name.partition("#")[0] in modules]
    outputs = {site.name.partition("#")[0]: [] for site in named}
    handles = [
        modules[name].register_forward_hook(lambda m, a, out, kept=kept: kept.append(out.clone()))
        for name, kept in outputs.items()
    ]
    try:
        with torch.no_grad():
            visit_sites(model, named, x, lambda _, value: values.append(value.clone()))
    finally:
        for handle in handles:
            handle.remove()
    for site, value in zip(named, values, strict=True):
        name, _, number = site.name.partition("#")
        assert torch.equal(value, outputs[name][int(number or 0)]), site.name


def test_it_is_explained_and_left_as_it_was(network):
    model, x, count, *_ = network
    before = fingerprint(model)
    for variant in ("vm", "ibm"):
        result = fei.FEI(model, variant, steps=2, quantiles=[0.3, 0.7]).explain(x, evidence=variant == "vm")
        assert result.maps.isfinite().all()
        assert result.maps.std() > 0
        assert len(result.trace.clipped) == count  # a gradient came to every site
        assert all((share <= 1).all() for share in result.trace.clipped.values())
        assert any((share > 0).any() for share in result.trace.clipped.values())
    assert fingerprint(model) == before


def test_unclipped_its_gradient_is_autograds(network):
    """NONE clips nothing; nor does IVM on the image itself, where no unit is above its reference."""
    model, x, *_ = network
    sites = find_sites(model, trace(model, x)[0])
    x = torch.cat([x, x.flip(3)])
    plain = gradient(model, x)
    assert torch.equal(gradient(Pathway(model, sites, get_rule("none")).run, x), plain)
    held = Pathway(model, sites, get_rule("ivm"))
    held.record(x)
    assert torch.equal(gradient(held.run, x), plain)
    held = Pathway(model, sites, get_rule("vm"))
    held.record(x)
    assert not torch.equal(gradient(held.run, 0.7 * x), gradient(model, 0.7 * x))


def test_its_layer_for_activation_maps_is_found(network):
    model, x, _, _, _, layer, shape = network
    shapes = []
    assert feature_layers(model, x)[-1] == layer
    visit_sites(model, [find_layer(model, trace(model, x)[0], layer)], x, lambda _, value: shapes.append(value.shape))
    assert shapes == [(1, *shape)]


@pytest.mark.parametrize(("name", "size", "count"), [("timm:test_vit", 160, 6), ("torchvision:swin_t", 64, 12)])
def test_parts_of_transformers_are_clipped_by_name(name, size, count):
    model, x = build(name, size)
    (note,) = (
        fei.FEI(model, "vm", steps=1, quantiles=[0.5], sites="activation").explain(x, evidence=False).config["notes"]
    )
    assert f"and {count} activations are not; sites='auto' clips at" in note
    for sites in ("attention", "mlp"):
        result = fei.FEI(model, "vm", steps=1, quantiles=[0.5], sites=sites).explain(x, evidence=False)
        assert len(result.config["sites"]) == len(result.trace.clipped) == count
        assert result.config["notes"] == []


def test_outputs_for_training_are_refused():
    """GoogLeNet returns three outputs in training mode, and one in evaluation mode."""
    model, x = build("torchvision:googlenet", 64)
    with pytest.raises(fei.errors.InputError, match="evaluation mode; call model.eval"):
        fei.FEI(model.train()).explain(x)


def test_checkpointed_blocks_of_timm_are_clipped():
    model, x = build("timm:test_resnet", 64)
    model, x = model.double(), x.double()  # checkpoints are not folded: a step differs by rounding
    plain = fei.FEI(model, steps=1).explain(x)
    model.set_grad_checkpointing(True)
    result = fei.FEI(model, steps=1).explain(x)
    assert result.config["sites"] == plain.config["sites"]
    torch.testing.assert_close(result.maps, plain.maps)
