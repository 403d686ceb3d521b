"""Other people's attribution code as methods: right values, the contract of a method, and refusals."""

import functools

import captum.attr
import numpy as np
import pytest
import torch
import torchcam.methods
from captum.attr._core.deep_lift import SUPPORTED_NON_LINEAR
from networks import Bomb, fingerprint, pictures, small_cnn
from torch import nn
from torch.nn import functional as F

import fei
from fei.errors import InputError, ModelError
from fei.methods._foreign import DEEPLIFT_MODULES
from fei.methods.adapters import as_method
from fei.models import Classifier

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:captum")


def input_times_gradient(model, inputs, target, power=1):
    """A function as a user writes it, leaving traces: hooks, modes and gradients."""
    model.register_forward_hook(lambda *_: None)
    model.requires_grad_(True).train()
    model.eval()
    leaf = inputs.clone().requires_grad_()
    model(leaf).gather(1, target[:, None]).sum().backward()
    return leaf.grad * inputs**power


def noisy(model, inputs, target):
    """Draws from both global generators."""
    return torch.rand(inputs[:, 0].shape) + float(np.random.rand()) + model(inputs)[0, int(target)].detach()


MAKERS = {
    "function": lambda: as_method(input_times_gradient),
    "random function": lambda: as_method(noisy),
    "captum": lambda: as_method(captum.attr.DeepLift),
    "random captum": lambda: as_method(captum.attr.GradientShap, n_samples=3),
    "captum layer": lambda: as_method(captum.attr.LayerGradCam),
    "captum factory": lambda: as_method(
        lambda model: captum.attr.NoiseTunnel(captum.attr.Saliency(model)), nt_samples=3, stdevs=0.1
    ),
    "torchcam": lambda: as_method(torchcam.methods.GradCAM),
    "torchcam factory": lambda: as_method(lambda model: torchcam.methods.LayerCAM(model, "5")),
    "name": lambda: as_method("torchcam.methods:ScoreCAM"),
}
every_kind = pytest.mark.parametrize("method", [pytest.param(make(), id=name) for name, make in MAKERS.items()])


# values


def gradients(model, x, target):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(model(leaf)[range(len(x)), target].sum(), leaf)[0]


def test_captum_gradients_are_summed_over_the_channels():
    model, x = small_cnn(), pictures(3)
    gradient = gradients(model, x, [0, 1, 3])
    saliency = as_method(captum.attr.Saliency)(model, x, [0, 1, 3])
    torch.testing.assert_close(saliency[:, 0], gradient.abs().sum(1), atol=1e-6, rtol=1e-4)
    signed = as_method(captum.attr.Saliency, abs=False)(model, x, [0, 1, 3])
    torch.testing.assert_close(signed[:, 0], gradient.sum(1), atol=1e-6, rtol=1e-4)
    product = as_method("captum.attr:InputXGradient")(model, x, [0, 1, 3], batch_size=2)
    torch.testing.assert_close(product[:, 0], (gradient * x).sum(1), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("inplace", [True, False])
def test_captum_deeplift_starts_at_the_reference_and_is_complete(inplace):
    """Without max-pooling, for which captum's own rule does not sum up."""
    model = nn.Sequential(
        *(layer for layer in small_cnn(inplace=inplace) if not isinstance(layer, nn.MaxPool2d))
    ).eval()
    x, reference = pictures(2), torch.tensor([0.2, 0.5, 0.7]).view(1, 3, 1, 1)
    maps = as_method(captum.attr.DeepLift)(model, x, 2, reference=reference)
    lost = (model(x) - model(reference.expand_as(x)))[:, 2].detach()
    torch.testing.assert_close(maps.sum((1, 2, 3)), lost, atol=1e-4, rtol=1e-4)
    zero = as_method(captum.attr.DeepLift, baselines=0.0)(model, x, 2, reference=reference)
    torch.testing.assert_close(zero.sum((1, 2, 3)), (model(x) - model(0 * x))[:, 2].detach(), atol=1e-4, rtol=1e-4)


def test_captum_deeplift_with_max_pooling_is_captums():
    x = pictures(2)
    expected = captum.attr.DeepLift(small_cnn(inplace=False)).attribute(
        x.clone().requires_grad_(), torch.full_like(x, 0.4), target=[0, 2]
    )
    maps = as_method(captum.attr.DeepLift)(small_cnn(), x, [0, 2], reference=0.4)
    torch.testing.assert_close(maps[:, 0], expected.sum(1).detach(), atol=1e-6, rtol=1e-4)


def test_captum_is_given_the_rows_of_a_pass():
    rows = []

    class Watched(captum.attr.IntegratedGradients):
        def attribute(self, inputs, baselines=None, internal_batch_size=None, n_steps=50):
            rows.append(internal_batch_size)
            return super().attribute(inputs, baselines, internal_batch_size=internal_batch_size, n_steps=n_steps)

    as_method(Watched, n_steps=4)(small_cnn(), pictures(1), 0, batch_size=3)
    assert rows == [3]


def test_captum_options_of_the_constructor_and_of_attribute():
    model, x = small_cnn(), pictures(1)
    method = as_method(captum.attr.IntegratedGradients, multiply_by_inputs=False, n_steps=7, baselines=0.25)
    expected = captum.attr.IntegratedGradients(model, multiply_by_inputs=False).attribute(
        x, target=1, n_steps=7, baselines=0.25
    )
    torch.testing.assert_close(method(model, x, 1)[:, 0], expected.sum(1).detach().float(), atol=1e-5, rtol=1e-4)


def test_captum_explains_a_callable_target_and_an_output_with_logits():
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = small_cnn()

        def forward(self, x):
            return type("Output", (), {"logits": self.network(x)})()

    x = pictures(2)
    difference = as_method(captum.attr.Saliency, abs=False)(small_cnn(), x, lambda output: output[:, 0] - output[:, 1])
    gradient = gradients(small_cnn(), x, 0) - gradients(small_cnn(), x, 1)
    torch.testing.assert_close(difference[:, 0], gradient.sum(1), atol=1e-6, rtol=1e-4)
    maps = as_method(captum.attr.DeepLift)(Wrapped().eval(), x, 1)
    torch.testing.assert_close(maps, as_method(captum.attr.DeepLift)(small_cnn(), x, 1))


@pytest.mark.parametrize("layer", ["2", "5", None])
@pytest.mark.parametrize("inplace", [True, False])
def test_layer_methods_agree_with_ours(layer, inplace):
    model, x = small_cnn(inplace=inplace), pictures(2)
    ours = fei.methods.create("gradcam", layer=layer or "5")(model, x, [1, 2])
    captums = as_method(captum.attr.LayerGradCam, **({"layer": layer} if layer else {}))(model, x, [1, 2])
    torch.testing.assert_close(captums, ours, atol=1e-6, rtol=1e-4)
    ours = fei.methods.create("gradcam", layer=layer or "5", relu=True)(model, x, [1, 2])
    cams = as_method(torchcam.methods.GradCAM, **({"target_layer": layer} if layer else {}))(model, x, [1, 2])
    torch.testing.assert_close(cams, ours, atol=1e-6, rtol=1e-4)


def test_torchcam_reads_a_layer_that_is_overwritten_by_an_inplace_module():
    """Grad-CAM of the convolution itself, not of the in-place ReLU that follows it."""
    x = pictures(1)
    cams = as_method(torchcam.methods.GradCAM, target_layer="4")(small_cnn(), x, 1)
    ours = fei.methods.create("gradcam", layer="4", relu=True)(small_cnn(inplace=False), x, 1)
    torch.testing.assert_close(cams, ours, atol=1e-6, rtol=1e-4)


def test_layers_by_name_in_a_classifier_and_as_modules():
    model, x = Classifier(small_cnn(), input_size=16).eval(), pictures(1)
    by_name = as_method(captum.attr.LayerGradCam, layer="2")(model, x, 1)
    torch.testing.assert_close(as_method(captum.attr.LayerGradCam, layer=model.network[2])(model, x, 1), by_name)
    assert torch.equal(as_method(torchcam.methods.GradCAM, target_layer="2")(model, x, 1), by_name.relu())


def test_functions_and_arrays():
    model, x = small_cnn(), pictures(3)
    expected = gradients(model, x, [0, 1, 3]) * x**2
    maps = as_method(input_times_gradient, power=2)(model, x, [0, 1, 3])
    torch.testing.assert_close(maps[:, 0], expected.sum(1), atol=1e-6, rtol=1e-4)
    for shape in ((1, 12, 16), (1, 1, 12, 16)):
        maps = as_method(lambda model, inputs, target, shape=shape: np.arange(192).reshape(shape)[..., ::-1])(model, x)
        assert torch.equal(maps, torch.arange(192.0).view(12, 16).flip(1).expand(3, 1, 12, 16))


def test_a_function_is_handed_the_callers_callable_target():
    seen = []

    def target(output):
        return output[:, 0]

    as_method(lambda model, inputs, target: seen.append(target) or inputs)(small_cnn(), pictures(1), target)
    assert seen == [target]


def test_partial_classes_are_factories():
    x = pictures(1)
    maps = as_method(functools.partial(captum.attr.DeepLift, multiply_by_inputs=True))(small_cnn(), x, 1)
    torch.testing.assert_close(maps, as_method(captum.attr.DeepLift)(small_cnn(), x, 1))
    cams = as_method(functools.partial(torchcam.methods.GradCAM, target_layer="5"))(small_cnn(), x, 1)
    torch.testing.assert_close(cams, as_method(torchcam.methods.GradCAM)(small_cnn(), x, 1))


def test_lrp_works_on_a_copy():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.relu, self.head = small_cnn()[0], nn.ReLU(), nn.Linear(8 * 12 * 16, 3)

        def forward(self, x):
            return self.head(self.relu(self.conv(x)).flatten(1))

    model, x = Net().eval(), pictures(1)
    before = fingerprint(model)
    maps = as_method(captum.attr.LRP)(model, x, 1)
    assert fingerprint(model) == before
    twin = Net().eval()
    twin.load_state_dict(model.state_dict())
    expected = captum.attr.LRP(twin).attribute(x.clone().requires_grad_(), target=1)
    torch.testing.assert_close(maps[:, 0], expected.sum(1).detach())


# the contract


@every_kind
def test_repeats_in_any_order_and_batch(method):
    model, x = small_cnn(), pictures(3)
    maps = method(model, x, batch_size=4)
    assert maps.shape == (3, 1, 12, 16)
    assert maps.isfinite().all()
    assert not maps.requires_grad
    torch.manual_seed(99)
    np.random.seed(99)
    assert torch.equal(method(model, x.flip(0), batch_size=4).flip(0), maps)
    assert torch.equal(method(model, x[1:2], batch_size=4)[0], maps[1])


@every_kind
@pytest.mark.parametrize("gradients", [False, True])
def test_leaves_everything_as_it_was(method, gradients):
    model, x = small_cnn(), pictures()
    if gradients:
        model(x).sum().backward()
    kept = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model[4].weight.requires_grad_(False)
    model[0].register_forward_hook(lambda *_: None)
    before, copy = fingerprint(model), x.clone()
    states = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    method(model, x)
    assert fingerprint(model) == before
    assert torch.equal(x, copy)
    assert torch.equal(torch.random.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()
    for parameter, gradient in zip(model.parameters(), kept, strict=True):
        assert (parameter.grad is None) if gradient is None else torch.equal(parameter.grad, gradient)


@every_kind
@pytest.mark.parametrize("when", [1, 2])
def test_leaves_the_model_alone_after_a_failure(method, when):
    model = nn.Sequential(*small_cnn()[:6], Bomb(KeyboardInterrupt(), when), *small_cnn()[6:]).eval()
    before = fingerprint(model)
    with pytest.raises(KeyboardInterrupt):
        method(model, pictures(1))
    assert fingerprint(model) == before


@every_kind
def test_works_under_no_grad_and_on_frozen_models(method):
    model, x = small_cnn(), pictures(1)
    expected = method(model, x, 1)
    with torch.no_grad():
        assert torch.equal(method(model.requires_grad_(False), x, 1), expected)
    with torch.inference_mode():
        assert torch.equal(method(model, x, 1), expected)


@every_kind
def test_depends_on_the_target_and_checks_it(method):
    model, x = small_cnn(), pictures(2)
    assert not torch.equal(method(model, x, 0), method(model, x, 1))
    assert torch.equal(method(model, x), method(model, x, model(x).argmax(1)))
    with pytest.raises(InputError, match="target 17 is out of range"):
        method(model, x, 17)


def test_a_method_passes_as_it_is():
    ours = fei.methods.create("fei-vm", steps=2)
    assert as_method(ours) is ours
    with pytest.raises(InputError, match="is a method already and takes no options here"):
        as_method(ours, steps=3)
    assert as_method("fei.methods.gradients:SmoothGrad", samples=4).samples == 4  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="SmoothGrad has no option 'sample'; it takes samples, noise, score"):
        as_method("fei.methods.gradients:SmoothGrad", sample=4)


# refusals


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (lambda x: x[:, :, :5], r"<lambda> returned shape \(1, 3, 5, 16\); expected \(1, 12, 16\), \(1, 1, …\) or"),
        (lambda x: x[:, :2], r"returned shape \(1, 2, 12, 16\)"),
        (lambda x: x[0, 0], r"returned shape \(12, 16\)"),
        (lambda x: x[0], r"<lambda> returned 3 maps for 1 image\(s\); expected one per image"),
        (lambda x: x.repeat(2, 1, 1, 1), r"returned 2 maps for 1 image\(s\)"),
        (lambda x: x * float("nan"), "returned NaN or infinite values"),
        (lambda x: None, "returned NoneType; expected"),
        (lambda x: (x, x), "returned tuple; expected"),
        (lambda x: x * 1j, "returned torch.complex64; expected"),
    ],
)
def test_refuses_what_is_no_map(result, text):
    with pytest.raises(InputError, match=text):
        as_method(lambda model, inputs, target: result(inputs))(small_cnn(), pictures(2))


def test_puts_buffers_back():
    def careless(model, inputs, target):
        model.train()(inputs)
        model.register_buffer("extra", torch.zeros(1))
        return inputs

    model = small_cnn()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    as_method(careless)(model, pictures(1))
    assert dict(model.named_buffers()).keys() == before.keys()
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


def test_refuses_code_that_writes_into_the_network():
    def careless(model, inputs, target):
        with torch.no_grad():
            model[0].weight.mul_(1.1)
        return inputs

    with pytest.raises(ModelError, match="The wrapped method wrote into the network's '0.weight'; reload the network"):
        as_method(careless)(small_cnn(), pictures(1))


def test_errors_of_the_code_are_not_hidden_behind_that_of_the_network():
    def careless(model, inputs, target):
        with torch.no_grad():
            model[0].weight.mul_(1.1)
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        as_method(careless)(small_cnn(), pictures(1))


@pytest.mark.parametrize(
    ("obj", "options", "text"),
    [
        (3, {}, "int cannot be called as"),
        (lambda model, inputs: inputs, {}, r"cannot be called as \(model, inputs, target\), nor as \(model\)"),
        (input_times_gradient, {"powr": 2}, r"\(model, inputs, target\) with the option\(s\) powr"),
        (nn.ReLU, {}, "torch.ReLU is no class of captum, torchcam or pytorch_grad_cam"),
        (captum.attr.Saliency(small_cnn()), {}, "Saliency is bound to one network already; pass its class"),
        (captum.attr.Saliency, {"abss": True}, "captum.Saliency has no option 'abss'; it takes abs"),
        (captum.attr.NoiseTunnel, {}, "captum.NoiseTunnel is not built from a model alone; pass a function of"),
        (captum.attr.Occlusion, {}, "captum.Occlusion needs the option 'sliding_window_shapes'"),
        ("captum.attr", {}, "'captum.attr' names no object; the form is package.module:object"),
        ("captum.attribution:Saliency", {}, r"cannot be imported \(No module named 'captum.attribution'\)"),
        ("captum.attr:Salience", {}, "'captum.attr' has no 'Salience'; did you mean Saliency"),
    ],
)
def test_refuses_what_is_no_method(obj, options, text):
    with pytest.raises(InputError, match=text):
        as_method(obj, **options)


def test_refuses_at_the_call():
    model, x = small_cnn(), pictures(1)
    with pytest.raises(InputError, match="takes the model alone and returned Tensor; expected a captum Attribution"):
        as_method(lambda model: model(x))(model, x)
    with pytest.raises(InputError, match="shuffles pixels between the images of a batch"):
        as_method(captum.attr.FeaturePermutation)(model, x)
    with pytest.raises(InputError, match="torchcam.GradCAM needs class indices as targets"):
        as_method(torchcam.methods.GradCAM)(model, x, lambda output: output[:, 0])
    with pytest.raises(InputError, match="returned maps of 2 layers; name one layer"):
        as_method(torchcam.methods.GradCAM, target_layer=["2", "5"])(model, x)
    with pytest.raises(InputError, match="The layer given to captum.LayerGradCam is no module of this network"):
        as_method(captum.attr.LayerGradCam, layer=nn.ReLU())(model, x)
    with pytest.raises(InputError, match="The network ran no module named '17'"):
        as_method(captum.attr.LayerGradCam, layer="17")(model, x)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 16, 4)).eval()
    with pytest.raises(ModelError, match="no spatial feature layer; name a layer"):
        as_method(torchcam.methods.GradCAM)(flat, x)


class Functional(nn.Module):
    """Activations and pooling as functions, the first of them in place."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = small_cnn()[0], small_cnn()[4], nn.Linear(12, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.first(x), inplace=True), 2)
        return self.head(F.relu(self.second(x)).mean((2, 3)))


class Reused(nn.Module):
    """One ReLU for all."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head, self.relu = small_cnn()[0], small_cnn()[4], nn.Linear(12, 4), nn.ReLU()

    def forward(self, x):
        return self.head(self.relu(self.second(self.relu(self.first(x)))).mean((2, 3)))


class Shared(nn.Module):
    """The input of the ReLU is used again."""

    def __init__(self):
        super().__init__()
        self.first, self.relu, self.head = small_cnn()[0], nn.ReLU(), nn.Linear(8, 4)

    def forward(self, x):
        x = self.first(x)
        return self.head((self.relu(x) + x).mean((2, 3)))


@pytest.mark.parametrize(
    ("network", "obj", "text"),
    [
        (Functional(), captum.attr.DeepLift, "captum.DeepLift acts only on modules it knows, and would miss relu in"),
        (Functional(), captum.attr.GuidedBackprop, "captum.GuidedBackprop .* would miss relu in 'the network'"),
        (Functional(), captum.attr.LRP, "captum.LRP .* would miss relu"),
        (
            Functional(),
            lambda model: captum.attr.NoiseTunnel(captum.attr.Deconvolution(model)),
            "<lambda> acts only on modules it knows, and would miss relu",
        ),
        (
            nn.Sequential(small_cnn()[0], nn.SiLU(), *small_cnn()[6:7], nn.Flatten(), nn.Linear(8, 4)),
            captum.attr.DeepLift,
            r"would miss silu in '1' \(SiLU\)",
        ),
        (
            nn.Sequential(small_cnn()[:4], nn.ReLU6(), small_cnn()[4:]),
            captum.attr.GuidedBackprop,
            "would miss hardtanh",
        ),
        (Reused(), captum.attr.DeepLift, "captum.DeepLift needs modules that run once in a pass, and 'relu' runs more"),
        (Shared(), captum.attr.GuidedBackprop, "hooks the input of 'relu', which also goes elsewhere"),
    ],
)
def test_refuses_networks_that_captums_hooks_would_misread(network, obj, text):
    with pytest.raises(ModelError, match=text):
        as_method(obj)(network.eval(), pictures(1), 1)


def test_captums_guided_backprop_may_leave_other_activations_alone():
    head = [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(small_cnn()[0], nn.Hardtanh(), nn.SiLU(), small_cnn()[4], *head).eval()
    assert as_method(captum.attr.GuidedBackprop)(model, pictures(1), 3).any()


def test_captums_guided_backprop_reads_a_reused_relu_rightly():
    model, x = Reused().eval(), pictures(2)
    with torch.no_grad():
        model.first.bias.add_(0.1)
    maps = as_method(captum.attr.GuidedBackprop)(model, x, 1)
    twin = nn.Sequential(model.first, nn.ReLU(), model.second, nn.ReLU(), *small_cnn()[6:8], model.head).eval()
    expected = captum.attr.GuidedBackprop(twin).attribute(x.clone().requires_grad_(), target=1)
    torch.testing.assert_close(maps[:, 0], expected.sum(1).detach(), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("obj", "option"), [(captum.attr.LayerGradCam, "layer"), (torchcam.methods.GradCAM, "target_layer")]
)
def test_refuses_a_layer_that_runs_more_than_once(obj, option):
    with pytest.raises(ModelError, match="layer 'relu' runs 2 times in one pass, and .* cannot tell these runs apart"):
        as_method(obj, **{option: "relu"})(Reused().eval(), pictures(1), 1)


def test_torchcam_reads_the_last_run_of_a_layer():
    model, x = Reused().eval(), pictures(1)
    cams = as_method(torchcam.methods.GradCAM, target_layer="relu#1")(model, x, 1)
    torch.testing.assert_close(cams, fei.methods.create("gradcam", layer="relu#1", relu=True)(model, x, 1))
    assert torch.equal(as_method(torchcam.methods.GradCAM)(model, x, 1), cams)  # it is the last feature layer too
    with pytest.raises(ModelError, match="cannot tell these runs apart"):
        as_method(torchcam.methods.GradCAM, target_layer="relu#0")(model, x, 1)


def test_a_layer_that_a_function_overwrites_is_refused_or_read_rightly():
    model, x = Functional().eval(), pictures(1)
    with pytest.raises(ModelError, match="The output of layer 'first' is overwritten in place later in the pass"):
        as_method(torchcam.methods.GradCAM, target_layer="first")(model, x, 1)
    ours = fei.methods.create("gradcam", layer="first")(model, x, 1)
    captums = as_method(captum.attr.LayerGradCam, layer="first")(model, x, 1)  # captum keeps a copy
    torch.testing.assert_close(captums, ours, atol=1e-6, rtol=1e-4)


def test_deeplift_modules_are_those_captum_has_rules_for():
    assert set(DEEPLIFT_MODULES) == set(SUPPORTED_NON_LINEAR)
