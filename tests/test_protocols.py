"""Protocols: each against the procedure it is named after, run by someone else's code or restated from its paper."""

import contextlib
import dataclasses

import numpy as np
import pytest
import quantus
import torch
from networks import pictures, small_cnn
from scipy.ndimage import gaussian_filter
from torch import nn
from torch.nn import functional as F
from torchcam.metrics import DeletionInsertionMetric

import fei
from fei import protocols
from fei.errors import InputError
from fei.metrics import deletion, insertion
from fei.models import Classifier


def maps_for(x, seed=3):
    return torch.randn(len(x), 1, *x.shape[2:], generator=torch.Generator().manual_seed(seed))


def rise_by_the_book(model, x, explanation, mode):
    """RISE's evaluation of one image in its normalised space, one row of pixels a step, written as published."""
    height, width = x.shape[2:]
    pixels = height * width
    impulse = np.zeros((11, 11))
    impulse[5, 5] = 1
    blur = torch.zeros(3, 3, 11, 11)
    for channel in range(3):
        blur[channel, channel] = torch.from_numpy(gaussian_filter(impulse, 5)).float()
    with torch.no_grad():
        top = model(x).argmax().item()
        start, finish = (x.clone(), x * 0) if mode == "deletion" else (F.conv2d(x, blur, padding=5), x.clone())
        order = np.flip(np.argsort(explanation.reshape(-1), kind="stable"), -1)
        scores = []
        steps = (pixels + width - 1) // width
        for step in range(steps + 1):
            scores.append(model(start).softmax(1)[0, top].item())
            where = order[width * step : width * (step + 1)]
            start.reshape(1, 3, pixels)[..., where.copy()] = finish.reshape(1, 3, pixels)[..., where.copy()]
    scores = np.array(scores)
    return scores, (scores.sum() - scores[0] / 2 - scores[-1] / 2) / (len(scores) - 1)


@pytest.mark.parametrize("mode", ["insertion", "deletion"])
def test_rise_agrees_with_the_published_procedure(mode):
    model, x = small_cnn(), pictures(2)
    maps = maps_for(x)
    curve = {"insertion": insertion, "deletion": deletion}[mode](model, x, maps, protocol="rise")
    for i in range(2):
        scores, area = rise_by_the_book(model, x[i : i + 1], maps[i].numpy(), mode)
        ours = curve.scores[i].numpy()
        np.testing.assert_allclose(ours[::-1] if mode == "insertion" else ours, scores, atol=1e-6)
        assert curve.auc[i].item() == pytest.approx(area, abs=1e-6)


def test_rise_works_in_the_normalised_space_of_a_classifier():
    """A classifier on pixels gives what its bare network gives on normalised input."""
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
    network, x = small_cnn(), pictures(2)
    classifier = Classifier(network, mean=mean, std=std).eval()
    normalised = (x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    maps = maps_for(x)
    for metric in (insertion, deletion):
        pixels, bare = metric(classifier, x, maps, protocol="rise"), metric(network, normalised, maps, protocol="rise")
        torch.testing.assert_close(pixels.scores, bare.scores, atol=1e-5, rtol=0)


def test_rise_refuses_another_class():
    model, x = small_cnn(), pictures(2)
    top = model(x).argmax(1)
    insertion(model, x, maps_for(x), top, protocol="rise")
    with pytest.raises(InputError, match="protocol rise/1 scores the model's top class only; leave `target` out"):
        insertion(model, x, maps_for(x), (top + 1) % 4, protocol="rise")
    with pytest.raises(InputError, match="protocol rise/1 fixes what replaces pixels; leave `reference` out"):
        insertion(model, x, maps_for(x), protocol="rise", reference=0.0)


class FixedMaps:
    """What torchcam's metric needs of an extractor, with maps made elsewhere."""

    def __init__(self, model, maps):
        self.model, self.maps = model, maps

    def __call__(self, class_idx, scores, **kwargs):
        return [self.maps[:, 0]]

    def fuse_cams(self, cams):
        return cams[0]

    def _hooks_off(self):
        return contextlib.nullcontext()


def test_torchcam_agrees_with_the_installed_torchcam():
    model, x = small_cnn(), pictures(3, (13, 17))  # 221 pixels: twenty intervals do not divide them
    maps = maps_for(x)
    maps[1] = maps[1].round()  # with ties
    metric = DeletionInsertionMetric(FixedMaps(model, maps))
    metric.update(x)
    summary = metric.summary()
    assert insertion(model, x, maps, protocol="torchcam").auc.mean().item() == pytest.approx(
        summary["insertion_auc"], abs=1e-5
    )
    assert deletion(model, x, maps, protocol="torchcam").auc.mean().item() == pytest.approx(
        summary["deletion_auc"], abs=1e-5
    )


def test_quantus_pixel_flipping_agrees_with_the_installed_quantus():
    """Its curve point by point; its area by numpy's trapezoid, since Quantus calls one that numpy no longer has."""
    model, x = small_cnn(), pictures(2, (14, 16))
    maps = maps_for(x).round(decimals=1)
    targets = np.array([1, 2])
    metric = quantus.PixelFlipping(features_in_step=16, perturb_baseline="black", disable_warnings=True)
    theirs = metric(model=model, x_batch=x.numpy(), y_batch=targets, a_batch=maps.numpy(), device="cpu", softmax=True)
    ours = deletion(model, x, maps, targets.tolist(), protocol="quantus-pixelflipping")
    np.testing.assert_allclose(ours.scores.numpy(), np.array(theirs), atol=1e-6)
    np.testing.assert_allclose(ours.auc.numpy(), np.trapezoid(np.array(theirs), dx=1, axis=1), rtol=1e-6)


def test_the_same_map_gets_a_different_number_under_each_protocol():
    model, x = small_cnn(), pictures(1)
    numbers = {
        name: round(deletion(model, x, maps_for(x), protocol=name).auc.item(), 6) for name in protocols.available()
    }
    assert len(set(numbers.values())) == len(numbers)


def test_ids_and_versions():
    assert protocols.get("fei-paper") is protocols.get("fei-paper/1")
    assert protocols.available() == ["fei-paper/1", "fei-fine/1", "rise/1", "torchcam/1", "quantus-pixelflipping/1"]
    with pytest.raises(InputError, match="unknown protocol 'fei-papre'; did you mean fei-paper"):
        protocols.get("fei-papre")
    with pytest.raises(InputError, match="unknown protocol 'fei-paper/2'"):
        protocols.get("fei-paper/2")
    with pytest.raises(dataclasses.FrozenInstanceError):
        protocols.get("fei-paper").version = 2


def test_own_protocol_by_composition():
    mine = dataclasses.replace(
        protocols.get("fei-fine"), name="mine", levels=protocols.Quantiles((0.0, 0.5, 1.0)), score="logit"
    )
    model, x = small_cnn(), pictures(1)
    curve = insertion(model, x, maps_for(x), 1, protocol=mine, reference=0.0)
    assert curve.protocol == "mine/1"
    assert curve.fractions.tolist() == [0, 0.5, 1]
    assert curve.scores[0, 0].item() == pytest.approx(model(x)[0, 1].item(), abs=1e-6)
    assert curve.scores[0, 2].item() == pytest.approx(model(0 * x)[0, 1].item(), abs=1e-6)
    with pytest.raises(InputError, match=r"must lie in \[0,1\]"):
        protocols.Quantiles((0.5, 1.5))
    with pytest.raises(InputError, match="must increase"):
        protocols.Quantiles((0.5, 0.5))


def test_descriptions_are_plain_words():
    description = protocols.describe("rise")
    assert description["id"] == "rise/1"
    assert description["order"] == "reversed_argsort"
    assert description["replacement"] == ["rise_blur", "normalised_zero"]


def test_another_score_is_noted_in_the_id():
    model, x = small_cnn(), pictures(1)
    assert insertion(model, x, maps_for(x), score="logit").protocol == "fei-paper/1+score=logit"
    assert isinstance(fei.protocols.get("rise"), protocols.Protocol)
    assert isinstance(model, nn.Module)
