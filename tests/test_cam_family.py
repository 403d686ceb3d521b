"""Grad-CAM++, LayerCAM and XGrad-CAM against their formulas, evaluated in numpy, and against torchcam."""

import numpy as np
import pytest
import torch
import torchcam.methods
from networks import pictures, small_cnn
from torch.nn import functional as F

from fei.methods.cam import GradCAM, GradCAMPlusPlus, LayerCAM, XGradCAM
from fei.models.sources import import_torchvision

TARGETS = [1, 3]


def features_and_gradients(model, x, layer, softmax=False):
    """A and ∂s/∂A at a layer of a sequential network, by running it in two parts."""
    features = model[: layer + 1](x).detach().requires_grad_()
    output = model[layer + 1 :](features)
    output = output.softmax(1) if softmax else output
    (gradients,) = torch.autograd.grad(output[[0, 1], TARGETS].sum(), features)
    return features.detach().double().numpy(), gradients.double().numpy()


def gradcam_plus_plus(features, gradients):
    maps = np.zeros((len(features), *features.shape[2:]))
    for n, k in np.ndindex(features.shape[:2]):
        weight = 0.0
        for i, j in np.ndindex(features.shape[2:]):
            g = gradients[n, k, i, j]
            if g != 0:
                alpha = g**2 / (2 * g**2 + features[n, k].sum() * g**3)
                weight += alpha * max(g, 0)
        maps[n] += weight * features[n, k]
    return maps


def layercam(features, gradients):
    return (np.maximum(gradients, 0) * features).sum(1)


def xgradcam(features, gradients):
    maps = np.zeros((len(features), *features.shape[2:]))
    for n, k in np.ndindex(features.shape[:2]):
        if features[n, k].sum() != 0:
            weight = (features[n, k] / features[n, k].sum() * gradients[n, k]).sum()
            maps[n] += weight * features[n, k]
    return maps


FORMULAS = [(GradCAMPlusPlus, gradcam_plus_plus), (LayerCAM, layercam), (XGradCAM, xgradcam)]


def upsampled(maps):
    return F.interpolate(torch.from_numpy(maps).float()[:, None], (12, 16), mode="bilinear")


# layer 2 is max-pooled, so that most of its gradients are 0; layer 4 has values below zero; 5 is the default
@pytest.mark.parametrize("layer", [2, 4, 5])
@pytest.mark.parametrize(("method", "formula"), FORMULAS)
def test_formula(method, formula, layer):
    model, x = small_cnn(inplace=False), pictures(2)
    expected = upsampled(formula(*features_and_gradients(model, x, layer)))
    maps = method(layer=str(layer))(small_cnn(), x, TARGETS) if layer != 5 else method()(small_cnn(), x, TARGETS)
    torch.testing.assert_close(maps, expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("method", "formula"), FORMULAS)
def test_formula_of_the_probability(method, formula):
    model, x = small_cnn(inplace=False), pictures(2)
    expected = upsampled(formula(*features_and_gradients(model, x, 2, softmax=True)))
    torch.testing.assert_close(method(layer="2", score="softmax")(model, x, TARGETS), expected, atol=1e-5, rtol=1e-3)


# where a ReLU follows and lets no gradient through below zero, as at layer 4, LayerCAM's map has no negative values
@pytest.mark.parametrize(
    ("method", "formula", "layer"),
    [(GradCAMPlusPlus, gradcam_plus_plus, 4), (LayerCAM, layercam, 0), (XGradCAM, xgradcam, 4)],
)
def test_published_map_is_cut_off_before_it_is_enlarged(method, formula, layer):
    model, x = small_cnn(inplace=False), pictures(2)
    model[1].bias.data += 1
    signed = formula(*features_and_gradients(model, x, layer))
    assert signed.min() < 0
    maps = method(layer=str(layer), relu=True)(model, x, TARGETS)
    torch.testing.assert_close(maps, upsampled(np.maximum(signed, 0)), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("method", "peer"), [(LayerCAM, "LayerCAM"), (XGradCAM, "XGradCAM"), (GradCAM, "GradCAM")])
def test_agrees_with_torchcam(method, peer):
    model, x = small_cnn(inplace=False), pictures(2)
    with getattr(torchcam.methods, peer)(model, "2", input_shape=(3, 12, 16)) as extractor:
        (expected,) = extractor(class_idx=TARGETS, scores=model(x), normalized=False)
    maps = method(layer="2", relu=True)(small_cnn(), x, TARGETS)
    torch.testing.assert_close(maps[:, 0], expected.detach().relu(), atol=1e-5, rtol=1e-4)


def test_small_gradients_do_not_underflow():
    """Scaling the score by c > 0 scales Grad-CAM++'s weights by about c, however small: g² would be 0 in float32."""
    features, gradients = torch.rand(1, 3, 4, 4), torch.rand(1, 3, 4, 4) - 0.5
    tiny = GradCAMPlusPlus().weights(features, gradients * 1e-25)
    torch.testing.assert_close(tiny * 1e25, gradients.relu().sum((2, 3), keepdim=True) / 2)


def test_features_that_divide_by_zero_have_no_weight():
    features = torch.tensor([[[[-1.0, -1.0]], [[1.0, -1.0]], [[0.0, 0.0]]]])
    assert GradCAMPlusPlus().weights(features, torch.ones_like(features)).flatten().tolist() == [0, 1, 1]
    assert XGradCAM().weights(features, torch.ones_like(features)).flatten().tolist() == [1, 0, 0]


def test_gradcam_plus_plus_agrees_with_pytorch_grad_cam():
    """On weights: that package rescales maps and adds 1e-6 to the denominator, which large gradients drown."""
    import_torchvision()  # which that package imports
    from pytorch_grad_cam import GradCAMPlusPlus as Peer

    model, x = small_cnn(inplace=False), pictures(2)
    features, gradients = features_and_gradients(model, x, 2)
    gradients = gradients * 1e4
    expected = Peer(model, [model[2]]).get_cam_weights(x, [model[2]], TARGETS, features, gradients)
    weights = GradCAMPlusPlus().weights(torch.from_numpy(features), torch.from_numpy(gradients))
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(weights[:, :, 0, 0].numpy(), expected, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(("method", "peer"), [(GradCAM, "GradCAM"), (XGradCAM, "XGradCAM")])
def test_agrees_with_pytorch_grad_cam(method, peer):
    import_torchvision()
    import pytorch_grad_cam

    model, x = small_cnn(inplace=False), pictures(2)
    features, gradients = features_and_gradients(model, x, 2)
    extractor = getattr(pytorch_grad_cam, peer)(model, [model[2]])
    expected = extractor.get_cam_weights(x, model[2], TARGETS, features, gradients)
    weights = method().weights(torch.from_numpy(features), torch.from_numpy(gradients))
    np.testing.assert_allclose(weights[:, :, 0, 0].numpy(), expected, rtol=1e-3, atol=1e-6)
