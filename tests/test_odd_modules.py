"""Modules that are not plain networks: each is explained as the network it stands for, or refused in a sentence."""

import copy
import threading
import warnings

import pytest
import torch
from networks import fingerprint, pictures, small_cnn
from test_sites import CONSTRAINED, Head, clipped_gradient, names
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import fei
from fei.core.dataflow import trace
from fei.core.sites import find_sites
from fei.errors import InputError, ModelError

pytestmark = pytest.mark.slow

QUANTILES = [0.3, 0.7]


def explain(model, x=None, variant="vm", batch=None, **options):
    explainer = fei.FEI(model, variant, steps=3, quantiles=QUANTILES, **options)
    return explainer.explain(pictures() if x is None else x, 1, internal_batch_size=batch)


def site_names(result):
    return [site["name"] for site in result.config["sites"]]


class Around(nn.Module):
    """A network that is one module of another."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class Own(nn.Module):
    """The small network, run in a way of its own."""

    def __init__(self, run, **modules):
        super().__init__()
        self.net, self.run = small_cnn(inplace=False), run
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x):
        return self.run(self, x)


def quietly(make, *args, **kwargs):
    """Call what torch has deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(*args, **kwargs)


# Wrappers that run a network

UNCOMPILED = pytest.mark.skipif(
    not hasattr(torch.compiler, "set_stance"), reason="torch runs compiled modules uncompiled from 2.6 on"
)


def compiled_in_place():
    model = small_cnn()
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize(
    ("make", "prefix"),
    [
        (lambda: torch.compile(small_cnn(), backend="eager"), ""),
        pytest.param(compiled_in_place, "", marks=UNCOMPILED),
        pytest.param(
            lambda: Around(torch.compile(small_cnn(), backend="eager")).eval(), "inner._orig_mod.", marks=UNCOMPILED
        ),
        (lambda: nn.DataParallel(small_cnn()), ""),
        (lambda: nn.DataParallel(torch.compile(small_cnn(), backend="eager")), ""),  # type: ignore[type-var]
    ],
)
@pytest.mark.parametrize("variant", ["vm", "none"])
def test_a_wrapped_network_is_explained_as_itself(make, prefix, variant):
    plain, wrapped = explain(small_cnn(), variant=variant), explain(make(), variant=variant)
    assert torch.equal(wrapped.maps, plain.maps)
    assert site_names(wrapped) == [prefix + name for name in site_names(plain)]


def test_a_compiled_network_is_compiled_again_afterwards():
    compilations = []

    def backend(graph, example):
        compilations.append(graph)
        return graph.forward

    model = torch.compile(small_cnn(), backend=backend)
    explain(model)
    assert compilations == []
    model(pictures())
    assert compilations


def test_compiled_modules_are_refused_where_torch_cannot_run_them_uncompiled(monkeypatch):
    monkeypatch.delattr(torch.compiler, "set_stance", raising=False)
    with pytest.raises(ModelError, match="module 'inner' is compiled, .*pass the model as it was before torch.compile"):
        explain(Around(torch.compile(small_cnn(), backend="eager")).eval())


def test_distributed_data_parallel(tmp_path):
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(small_cnn())
        assert torch.equal(explain(wrapped).maps, explain(small_cnn()).maps)
    finally:
        distributed.destroy_process_group()


def test_an_fx_graph():
    graph = torch.fx.symbolic_trace(small_cnn())
    assert torch.equal(explain(graph).maps, explain(small_cnn()).maps)


def test_an_exported_program_is_refused():
    exported = quietly(torch.export.export, small_cnn(), (pictures(),)).module()
    with pytest.raises(ModelError, match="an exported program, .*; pass the module it was exported from"):
        explain(exported)


# Code that cannot be seen into


@pytest.mark.parametrize(
    "make",
    [
        torch.jit.script,
        lambda model: torch.jit.trace(model, pictures()),
        lambda model: torch.jit.freeze(torch.jit.script(model)),
    ],
)
def test_scripted_networks_are_refused_but_for_none(make):
    model = quietly(make, small_cnn())
    torch.testing.assert_close(
        explain(model, variant="none").maps, explain(small_cnn(), variant="none").maps, rtol=1e-3, atol=1e-4
    )
    for variant in CONSTRAINED:
        with pytest.raises(
            ModelError, match=r"no convolution \(values made by scripted .*; pass the module it was made"
        ):
            explain(model, variant=variant)


def dynamically_quantised():
    from torch.ao.quantization import quantize_dynamic

    return quantize_dynamic(small_cnn(), {nn.Linear}).eval()


def statically_quantised():
    from torch.ao import quantization

    model = nn.Sequential(quantization.QuantStub(), *small_cnn(inplace=False), quantization.DeQuantStub()).eval()
    model.qconfig = quantization.get_default_qconfig(torch.backends.quantized.engine)
    prepared = quantization.prepare(model)
    prepared(pictures())
    return quantization.convert(prepared).eval()


@pytest.mark.filterwarnings("ignore:quantized")  # torch warns of the same in its own words
@pytest.mark.parametrize("make", [dynamically_quantised, statically_quantised])
def test_quantised_networks_are_refused(make):
    model = quietly(make)
    with pytest.raises(ModelError, match="No gradient of the score reaches the image, because the model is quantised"):
        explain(model, variant="none")
    with pytest.raises(ModelError, match="No gradient of the score reaches the image|run without a gradient graph"):
        explain(model)


@pytest.mark.parametrize("variant", ["vm", "none"])
def test_a_network_that_cuts_the_gradient_is_refused(variant):
    cut = Own(lambda self, x: self.net(x.detach())).eval()
    with pytest.raises(ModelError, match="No gradient of the score reaches the image, .*detaches a value"):
        explain(cut, variant=variant)
    off = Own(torch.no_grad()(lambda self, x: self.net(x))).eval()
    with pytest.raises(ModelError, match="No gradient of the score reaches the image|run without a gradient graph"):
        explain(off, variant=variant)


def test_checkpointed_activations_are_sites():
    """Where they are, BatchNorm is not folded, which makes a difference of rounding."""
    model = Own(lambda self, x: self.net[3:](checkpoint(self.net[:3], x, use_reentrant=False))).double().eval()
    plain, x = small_cnn(inplace=False).double(), pictures().double()
    maps, expected = (fei.FEI(network, steps=1, quantiles=QUANTILES).attribute(x, 1) for network in (model, plain))
    torch.testing.assert_close(maps, expected)


@pytest.mark.filterwarnings("ignore:not covered by clip sites")
def test_reentrant_checkpoints_are_refused():
    model = Own(lambda self, x: self.net[3:](checkpoint(self.net[:3], x, use_reentrant=True))).eval()
    with pytest.raises(ModelError, match=r"Back-propagation through the model failed \(When use_reentrant=True"):
        explain(model)


def test_the_meta_device_is_refused():
    with pytest.raises(ModelError, match="parameter '0.weight' is on the meta device and has no values; load"):
        explain(small_cnn().to("meta"))
    with pytest.raises(InputError, match="`inputs` is on the meta device and has no values"):
        explain(small_cnn(), pictures().to("meta"))


# Outputs


@pytest.mark.parametrize(
    ("wrap", "kind"), [(lambda y: {"logits": y}, "dict"), (lambda y: [y], "list"), (lambda y: None, "NoneType")]
)
def test_outputs_that_are_no_logits_are_refused(wrap, kind):
    with pytest.raises(ModelError, match=f"The model returned {kind}; expected a tensor of logits"):
        explain(Own(lambda self, x: wrap(self.net(x))).eval())


def test_an_assertion_of_the_network_is_a_sentence():
    """timm's transformers check the size of their input so."""

    def run(self, x):
        torch._assert(x.shape[2] == 224, f"Input height ({x.shape[2]}) doesn't match model (224).")
        return self.net(x)

    with pytest.raises(
        ModelError, match=r"failed on an input of shape \(1, 3, 12, 16\) \(Input height \(12\) doesn't match"
    ):
        explain(Own(run).eval())


# Randomness, precision, memory format


def test_dropout_and_stochastic_depth_are_still_in_evaluation_and_refused_in_training():
    class StochasticDepth(nn.Module):
        def forward(self, x):
            return x * torch.bernoulli(torch.full((len(x), 1, 1, 1), 0.5)) if self.training else x

    def make():
        net = small_cnn()
        return nn.Sequential(*net[:3], StochasticDepth(), nn.Dropout2d(0.5), *net[3:], nn.Dropout(0.5)).eval()

    maps = explain(make()).maps
    assert torch.equal(maps, explain(small_cnn()).maps)
    for module in (3, 4, 11):
        model = make()
        model[module].train()
        with pytest.raises(InputError, match=f"module '{module}' is in training mode; call model.eval"):
            explain(model)


def test_half_precision():
    result = explain(small_cnn().half(), pictures().half())
    assert result.alphas.dtype == torch.float32
    assert result.maps.isfinite().all()
    assert result.maps.std() > 0
    with pytest.raises(ModelError, match="The model failed on an input of shape .*Half"):
        explain(small_cnn().half())


def test_a_channels_last_network():
    model, x = small_cnn().to(memory_format=torch.channels_last), pictures()
    last = explain(model, x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(last.maps, explain(small_cnn()).maps, rtol=1e-3, atol=1e-3)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)


# Weights that are computed


def weight_norm(net):
    return nn.utils.parametrizations.weight_norm(net[0])


def spectral_norm(net):
    return nn.utils.parametrizations.spectral_norm(net[4])


def old_weight_norm(net):
    return quietly(nn.utils.weight_norm, net[0])


def old_spectral_norm(net):
    return quietly(nn.utils.spectral_norm, net[4])


@pytest.mark.parametrize("apply", [weight_norm, spectral_norm, old_weight_norm, old_spectral_norm])
def test_computed_weights_change_no_site_and_stay_computed(apply):
    model = small_cnn()
    apply(model)
    model.eval()
    model(pictures())  # the first pass of a spectral norm writes its weight down
    before = fingerprint(model)
    result = explain(model)
    assert site_names(result) == ["2", "5"]
    assert fingerprint(model) == before
    merged = small_cnn()
    with torch.no_grad():
        for i in (0, 4):
            merged[i].weight.copy_(model[i].weight)
    torch.testing.assert_close(result.maps, explain(merged).maps, rtol=1e-4, atol=1e-4)


class StandardisedConv(nn.Conv2d):
    """Its weights pass a batch_norm of their own, as in the normaliser-free networks."""

    def forward(self, x):
        weight = F.batch_norm(self.weight.flatten(1)[None], None, None, training=True).view_as(self.weight)
        return self._conv_forward(x, weight, self.bias)


class Positions(nn.Module):
    """Adds a convolution of constants, as EdgeNeXt and XCiT do."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 1)

    def forward(self, x):
        return x + F.relu(self.conv(torch.ones(1, 2, *x.shape[2:], dtype=x.dtype)))


@pytest.mark.parametrize("trained", [True, False])
def test_what_does_not_depend_on_the_image_is_no_site(trained):
    body = [Positions(), StandardisedConv(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), StandardisedConv(4, 5, 1)]
    model = Head(nn.Sequential(*body), 5).eval().requires_grad_(trained)
    assert names(model) == ["body.3", "body.4"]
    assert names(model, "conv") == ["body.1", "body.4"]
    assert names(model, "nonlinearity") == ["body.3"]
    result = explain(model)  # and no warning of convolutions without a gradient
    assert set(result.trace.clipped) == set(site_names(result)) == {"body.3", "body.4"}
    assert result.config["notes"] == []


def test_a_functional_call():
    parameters = {name: parameter.clone() for name, parameter in small_cnn().named_parameters()}
    model = Own(lambda self, x: torch.func.functional_call(self.net, self.given, x)).eval()
    model.given = {name: parameter.detach() for name, parameter in parameters.items()}
    for parameter in model.net.parameters():
        parameter.data.zero_()
    assert torch.equal(explain(model).maps, explain(small_cnn(inplace=False)).maps)


def test_a_value_kept_from_an_earlier_pass_is_no_hidden_code():
    """LeViT keeps a value computed from its weights, graph and all."""

    class Keeping(Own):
        def run_kept(self, x):
            if not hasattr(self, "kept"):
                self.kept = self.net[8].bias * 2
            return self.net(x) + self.kept

    model = Keeping(Keeping.run_kept).eval()
    first, second = explain(model), explain(model)  # a warning would be an error
    assert torch.equal(first.maps, second.maps)
    assert second.config["notes"] == []


def test_a_module_of_parameters_alone_has_a_name_for_each_site():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Parameter(torch.randn(4, 3, 3, 3)), nn.Parameter(torch.randn(5, 4, 3, 3))

        def forward(self, x):
            return F.relu(F.conv2d(F.relu(F.conv2d(x, self.first)), self.second)).mean((2, 3))

    model = Functional().eval()
    assert names(model) == [":relu#0", ":relu#1"]
    assert set(explain(model).trace.clipped) == {":relu#0", ":relu#1"}
    within = Around(model).eval()
    assert names(within) == ["inner:relu#0", "inner:relu#1"]


# Hooks of the caller's own


class LowRank(nn.Module):
    """An adapter added to a convolution's output by a forward hook."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 12, 1)

    def forward(self, x):
        return self.up(self.down(x))


def test_forward_hooks_are_called_and_stay():
    adapter, calls = LowRank().eval(), []

    def hook(module, args, output):
        calls.append(threading.get_ident())
        return output + F.pad(adapter(args[0]), (0, 0))

    model = small_cnn(inplace=False)
    model[4].register_forward_hook(hook)
    before = fingerprint(model)
    result = explain(model)
    assert calls
    assert fingerprint(model) == before
    # ReLU follows the sum, the convolution's own value ends there
    assert site_names(result) == ["2", "4:conv2d#0", "4:conv2d#1", "4:conv2d#2"]
    written = Own(lambda self, x: self.net[5:](self.net[4](y := self.net[:4](x)) + self.adapter(y)), adapter=adapter)
    assert torch.equal(explain(written.eval()).maps, result.maps)


def test_forward_pre_hooks_are_called_and_stay():
    model, seen = small_cnn(), []
    model[0].register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
    assert torch.equal(explain(model).maps, explain(small_cnn()).maps)
    assert seen
    assert len(model[0]._forward_pre_hooks) == 1


@pytest.mark.parametrize("kind", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_backward_hooks_are_called_stay_and_hide_nothing(kind):
    model, called = small_cnn(inplace=False), []
    for name, module in model.named_modules():
        getattr(module, kind)(lambda *args, name=name: called.append(name))
    before = fingerprint(model)
    result = explain(model)
    assert fingerprint(model) == before
    assert {"0", "1", "2", "8", ""} <= set(called)
    plain = explain(small_cnn(inplace=False))
    assert site_names(result) == site_names(plain) == ["2", "5"]
    assert torch.equal(result.maps, plain.maps)
    assert names(model, ["2"]) == ["2"]


# Control flow


def test_a_network_called_twice_has_two_sites_a_convolution():
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower, self.head = small_cnn()[:8], small_cnn()[8]

        def forward(self, x):
            return self.head((self.tower(x) - self.tower(x.flip(3))).abs())

    model = Siamese().eval()
    result = explain(model)
    assert site_names(result) == ["tower.2#0", "tower.5#0", "tower.2#1", "tower.5#1"]
    assert all((share > 0).any() for share in result.trace.clipped.values())


def test_a_network_that_changes_its_input_in_place():
    model = Own(lambda self, x: self.net(x.sub_(0.5).div_(0.25))).eval()
    clean = Own(lambda self, x: self.net((x - 0.5) / 0.25)).eval()
    x = pictures()
    for variant in ("vm", "none"):
        assert torch.equal(explain(model, x, variant).maps, explain(clean, x, variant).maps)
    assert torch.equal(x, pictures())


def test_a_network_that_takes_images_one_by_one_is_refused_in_batches():
    """Its call numbers are those of the first image alone: clipped there, and nowhere else."""
    model = Own(lambda self, x: torch.cat([self.net(image[None]) for image in x])).eval()
    with pytest.raises(ModelError, match="units for 2 image.s. and not 1536 per image, .*use a batch size of 1"):
        explain(model)
    alone, plain = explain(model, batch=1), explain(small_cnn(inplace=False), batch=1)
    assert torch.equal(alone.maps, plain.maps)


def test_values_written_into_a_slice_are_followed():
    class Slices(nn.Module):
        def __init__(self, view):
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(3, 2, 1), nn.Conv2d(3, 2, 1), nn.Conv2d(4, 3, 1)
            self.view = view

        def forward(self, x):
            joined = torch.zeros(len(x), 4, *x.shape[2:])
            left = self.a(x)
            if self.view:
                joined[:, :2].copy_(left)
                joined[:, 2:].copy_(self.b(x).relu())
            else:
                joined[:, :2] = left
                joined[:, 2:] = self.b(x).relu()
            return self.c(joined).relu().mean((2, 3)) + left.relu().mean()

    for view in (True, False):
        # a's value is used twice, so the activation after it is another value
        assert names(Slices(view)) == ["a", ":relu#0", ":relu#1"]
        result = explain(Slices(view).eval())
        assert set(result.trace.clipped) == {"a", ":relu#0", ":relu#1"}


# Sites by name, and what they are called


def test_a_site_is_the_call_that_was_named():
    """A copy made before the network starts must not shift the numbers of its own copies."""

    class Copy(nn.Module):
        def forward(self, x):
            return x.clone()

    net = small_cnn(inplace=False)
    model = nn.Sequential(net[0], Copy(), *net[1:4], Copy(), *net[4:]).eval()
    x, perturbed = pictures(2).split(1)
    for rule in CONSTRAINED:
        by_copy = clipped_gradient(model, x, perturbed, rule, ["1"])
        assert torch.equal(by_copy, clipped_gradient(model, x, perturbed, rule, ["0"]))
        assert torch.equal(
            clipped_gradient(model, x, perturbed, rule, ["5"]), clipped_gradient(model, x, perturbed, rule, ["4"])
        )


def test_outputs_that_cannot_be_clipped_are_refused_by_name():
    class Halves(nn.Module):
        def forward(self, x):
            return x.chunk(2, 1)

    class Ones(nn.Module):
        def forward(self, x):
            return torch.ones_like(x)

    modules = {"first": nn.Identity(), "halves": Halves(), "ones": Ones()}
    model = Own(lambda self, x: self.net(torch.cat(self.halves(self.first(x)), 1) * self.ones(x)), **modules).eval()
    for name in modules:
        with pytest.raises(InputError, match=f"output of module '{name}' is no value to hold on to: .*; name another"):
            explain(model, sites=[name])


@pytest.mark.parametrize(
    "activation",
    [
        nn.CELU(), nn.ELU(inplace=True), nn.GELU(), nn.Hardshrink(), nn.Hardsigmoid(), nn.Hardswish(inplace=True),
        nn.Hardtanh(inplace=True), nn.LogSigmoid(), nn.Mish(), nn.PReLU(), nn.RReLU(), nn.SELU(), nn.SiLU(inplace=True),
        nn.Softplus(), nn.Softshrink(), nn.Softsign(), nn.Tanh(), nn.Tanhshrink(), nn.Threshold(0.1, 0.0),
        nn.Threshold(0.1, 0.0, inplace=True),
    ],
    ids=repr,
)  # fmt: skip
def test_every_pointwise_activation_of_torch_is_known(activation):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), activation, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert names(net) == ["2"]


# Networks whose sites are few


class Patches(nn.Module):
    """A transformer in small: patches by a convolution, then linear layers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 4, stride=4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(3))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            tokens = tokens + block(tokens)
        return self.head(tokens.mean(1))


def test_a_transformer_is_told_where_its_sites_are():
    model = Patches().eval()
    result = explain(model)
    assert site_names(result) == ["embed"]
    assert result.config["notes"] == [
        "only 1 value(s) are clipped, those of the convolutions, and 3 activations are not; sites='nonlinearity' clips "
        "at the activations"
    ]
    better = explain(model, sites="nonlinearity")
    assert site_names(better) == [f"blocks.{i}.1" for i in range(3)]
    assert better.config["notes"] == []
    assert explain(small_cnn()).config["notes"] == []


def test_a_saturated_score_is_said_and_is_no_clipping():
    model = small_cnn()
    model[8].weight.data *= 1e6
    x = pictures(1)
    top = int(model(x).argmax())
    result = fei.FEI(model, "vm", steps=2, quantiles=QUANTILES).explain(x, top, x * 0.9)
    assert result.maps.std() == 0
    assert "the map of 1 of 1 image(s) is constant: no gradient of the score" in result.config["notes"][0]
    assert all((share == 0).all() for share in result.trace.clipped.values())  # where there was none, none was lost
    better = fei.FEI(model, steps=2, quantiles=QUANTILES, score="logit").explain(x, top, x * 0.9)
    assert better.maps.std() > 0
    assert better.config["notes"] == []


@pytest.mark.parametrize(
    ("sites", "sought"),
    [
        ("activation", "convolution"),
        ("conv", "convolution"),
        ("nonlinearity", "pointwise activation"),
        (lambda site: False, "site that the predicate keeps"),
    ],
)
def test_no_site_says_what_was_sought(sites, sought):
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 16, 4)).eval()
    with pytest.raises(ModelError, match=f"the network shows no {sought}; pass sites="):
        explain(model, sites=sites)


def test_sites_do_not_depend_on_what_is_trained():
    model = Own(lambda self, x: self.net(x)).eval()
    free = find_sites(model, trace(model, pictures(1))[0])
    frozen = copy.deepcopy(model).requires_grad_(False)
    assert find_sites(frozen, trace(frozen, pictures(1))[0]) == free
    assert [site.units for site in free] == [8 * 12 * 16, 12 * 6 * 8]
