"""Score-CAM against a plain loop over the channels, in both of its variants, and against torchcam."""

import pytest
import torch
import torchcam.methods
from networks import pictures, small_cnn
from torch import nn
from torch.nn import functional as F

from fei.errors import InputError
from fei.methods.masking import ScoreCAM
from fei.models import Classifier

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def by_channel(network, x, target, channel_softmax=False, fill=0.0):
    """Σ_k w_k A_k of one image at the last features of a sequential network."""
    features = network[:6](x).detach()
    weights = []
    for k in range(features.shape[1]):
        mask = F.interpolate(features[:, k : k + 1], x.shape[2:], mode="bilinear")
        if mask.max() == mask.min():
            weights.append(-torch.inf if channel_softmax else 0.0)
            continue
        mask = (mask - mask.min()) / (mask.max() - mask.min())
        logits = network(x * mask + fill * (1 - mask))[0].detach()
        weights.append((logits if channel_softmax else logits.softmax(0))[target].item())
    weights = torch.tensor(weights).softmax(0) if channel_softmax else torch.tensor(weights)
    return F.interpolate(torch.einsum("k,nkhw->nhw", weights, features)[:, None], x.shape[2:], mode="bilinear")


@pytest.mark.parametrize("weighting", ["probability", "channel-softmax"])
@pytest.mark.parametrize("batch_size", [1, 5, None])
def test_loop_over_the_channels(weighting, batch_size):
    network, x = small_cnn(inplace=False), pictures(2)
    maps = ScoreCAM(weighting=weighting)(small_cnn(), x, [1, 2], batch_size=batch_size)
    for i, target in enumerate((1, 2)):
        expected = by_channel(network, x[i : i + 1], target, channel_softmax=weighting == "channel-softmax")
        torch.testing.assert_close(maps[i : i + 1], expected, atol=1e-5, rtol=1e-4)


def test_agrees_with_torchcam():
    """At a layer of the image's size: torchcam scales channels to [0,1] before it enlarges them, not after."""
    model, x = small_cnn(inplace=False), pictures(1)
    with torchcam.methods.ScoreCAM(model, "2", input_shape=(3, 12, 16)) as extractor:
        model(x)
        (expected,) = extractor(class_idx=1, normalized=False)
    maps = ScoreCAM(layer="2", weighting="channel-softmax", relu=True)(model, x, 1)
    torch.testing.assert_close(maps[:, 0], expected, atol=1e-5, rtol=1e-4)


def test_constant_channels_have_weight_zero_and_cost_nothing():
    model, rows = small_cnn(), []
    model[4].weight.data[:7] = 0
    model[4].bias.data[:7] = torch.arange(7.0)  # constant, one of them dead, the others alive
    model.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    x = pictures(1)
    maps = ScoreCAM()(model, x, 1, batch_size=2)
    assert sum(size == 2 for size in rows) == 3  # five channels are left
    torch.testing.assert_close(maps, by_channel(model, x, 1), atol=1e-5, rtol=1e-4)


def test_no_channel_varies():
    model = small_cnn()
    model[4].weight.data[:] = 0
    for weighting in ("probability", "channel-softmax"):
        assert (ScoreCAM(weighting=weighting)(model, pictures(1), 1) == 0).all()


def test_mean_fill_is_zero_in_normalised_space():
    network, x = small_cnn(inplace=False), pictures(1)
    model = Classifier(network, mean=MEAN, std=STD, input_size=16).eval()
    normalised = (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    torch.testing.assert_close(ScoreCAM()(model, x, 1), by_channel(network, normalised, 1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("fill", "colour"), [("black", 0.0), ("reference", 0.7)])
def test_other_fills(fill, colour):
    network, x = small_cnn(inplace=False), pictures(1)
    model = Classifier(network, input_size=16).eval()
    maps = ScoreCAM(fill=fill)(model, x, 1, reference=0.7)
    torch.testing.assert_close(maps, by_channel(network, x, 1, fill=colour), atol=1e-5, rtol=1e-4)


def test_relu_gives_the_published_map():
    model, x = small_cnn(), pictures(1)
    signed, published = (ScoreCAM(layer="0", relu=relu)(model, x, 1) for relu in (False, True))
    assert signed.min() < 0
    torch.testing.assert_close(published, signed.relu())


def test_networks_with_a_single_logit():
    model, x = nn.Sequential(*small_cnn(classes=1)).eval(), pictures(1)
    with pytest.raises(InputError, match="softmax of a single logit is always 1"):
        ScoreCAM()(model, x)
    assert ScoreCAM(score="sigmoid")(model, x).unique().numel() > 1


def test_refusals():
    with pytest.raises(InputError, match="Unknown weighting 'softmax'; choose one of probability, channel-softmax"):
        ScoreCAM(weighting="softmax")
    with pytest.raises(InputError, match="Unknown fill 'grey'; choose one of mean, black, reference"):
        ScoreCAM(fill="grey")
    with pytest.raises(InputError, match="'black' needs a network on RGB"):
        ScoreCAM(fill="black")(small_cnn(), pictures(1))
