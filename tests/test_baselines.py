"""Baselines against values that are not their own: gradients by hand, completeness, closed forms."""

import pytest
import torch
from networks import pictures, small_cnn
from torch import nn
from torch.nn import functional as F

import fei
from fei.errors import InputError, ModelError


def test_saliency_is_the_largest_absolute_gradient():
    model, x = small_cnn(), pictures(2)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf)[[0, 1], [2, 3]].sum(), leaf)
    maps = fei.methods.create("saliency")(model, x, [2, 3])
    torch.testing.assert_close(maps[:, 0], gradient.abs().amax(1))


def test_saliency_of_the_probability():
    model, x = small_cnn(), pictures(1)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf).softmax(1)[0, 2], leaf)
    torch.testing.assert_close(
        fei.methods.create("saliency", score="softmax")(model, x, 2)[:, 0], gradient.abs().amax(1)
    )


def test_integrated_gradients_are_complete():
    """The map sums to s(x) − s(R)."""
    model, x = small_cnn(), pictures(3)
    reference = torch.tensor([0.2, 0.4, 0.6]).view(1, 3, 1, 1)
    maps = fei.methods.create("integrated-gradients", steps=200)(model, x, 1, reference=reference, batch_size=3)
    difference = model(x)[:, 1] - model(reference.expand_as(x))[:, 1]
    torch.testing.assert_close(maps.sum((1, 2, 3)), difference.detach(), atol=2e-2, rtol=2e-2)


def test_integrated_gradients_of_a_linear_model_by_hand():
    weights = torch.randn(1, 3 * 4 * 5, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Flatten(), nn.Linear(60, 1, bias=False)).eval()
    model[1].weight.data.copy_(weights)
    x = pictures(1, (4, 5))
    maps = fei.methods.create("integrated-gradients", steps=7)(model, x, 0, reference=0.25)
    torch.testing.assert_close(maps[0, 0], (weights.view(3, 4, 5) * (x[0] - 0.25)).sum(0))


def test_integrated_gradients_do_not_depend_on_the_batch_size():
    model, x = small_cnn(), pictures(3)
    one, three = (
        fei.methods.create("integrated-gradients", steps=5)(model, x, [0, 1, 2], batch_size=b) for b in (1, 3)
    )
    torch.testing.assert_close(one, three, atol=1e-5, rtol=1e-4)


def cam_net():
    """Convolution, ReLU, global mean, linear: Grad-CAM is Σ_k w_ck A_k / (h·w) in closed form."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 4)]
        return nn.Sequential(nn.Conv2d(3, 5, 3, stride=2, padding=1), nn.ReLU(inplace=True), *head).eval()


@pytest.mark.parametrize("relu", [False, True])
def test_gradcam_on_a_pooling_head_in_closed_form(relu):
    model, x = cam_net(), pictures(2, (12, 16))
    features = model[:2](x).detach()
    weighted = torch.einsum("nk,nkhw->nhw", model[4].weight[[1, 3]].detach(), features) / features[0, 0].numel()
    expected = F.interpolate((weighted.relu() if relu else weighted)[:, None], (12, 16), mode="bilinear")
    maps = fei.methods.create("gradcam", relu=relu)(model, x, [1, 3])
    torch.testing.assert_close(maps, expected, atol=1e-6, rtol=1e-4)
    assert (maps.min() < 0) != relu


def test_gradcam_at_a_named_layer_agrees_with_captum():
    from captum.attr import LayerGradCam

    model, x = small_cnn(inplace=False), pictures(2)
    captums = LayerGradCam(model, model[2]).attribute(x, target=1, relu_attributions=False)
    expected = F.interpolate(captums, x.shape[2:], mode="bilinear").detach()
    torch.testing.assert_close(fei.methods.create("gradcam", layer="2")(model, x, 1), expected, atol=1e-6, rtol=1e-4)


def test_gradcam_refusals():
    x = pictures(1)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 16, 4)).eval()
    with pytest.raises(ModelError, match="no spatial feature layer; name a layer"):
        fei.methods.create("gradcam")(linear, x)
    with pytest.raises(InputError, match="The network ran no module named '17'"):
        fei.methods.create("gradcam", layer="17")(small_cnn(), x)
    with pytest.raises(ModelError, match=r"layer '7' gives shape \(1, 12\); a CAM needs feature maps"):
        fei.methods.create("gradcam", layer="7")(small_cnn(), x)


def test_random_depends_on_image_and_seed_alone():
    model, x = small_cnn(), pictures(2)
    method = fei.methods.create("random")
    maps = method(model, x, generator=torch.Generator().manual_seed(1))
    assert not torch.equal(maps[0], maps[1])
    assert torch.equal(method(small_cnn(seed=5), x, generator=torch.Generator().manual_seed(1)), maps)
    assert not torch.equal(method(model, x), maps)
    assert abs(maps.mean().item() - 0.5) < 0.05
