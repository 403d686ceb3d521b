"""Protocols: each against the procedure it is named after, run by someone else's code or restated from its paper."""

import contextlib
import dataclasses
import sys
from functools import partial

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
from fei.errors import InputError, PackageError
from fei.metrics import deletion, insertion
from fei.models import Classifier
from fei.references import normalised_zero


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
    return scores, (scores.sum() - scores[0] / 2 - scores[-1] / 2) / (len(scores) - 1)  # type: ignore[attr-defined]


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
    with pytest.raises(InputError, match="Protocol rise/1 scores the model's top class only; leave `target` out"):
        insertion(model, x, maps_for(x), (top + 1) % 4, protocol="rise")
    with pytest.raises(InputError, match="Protocol rise/1 fixes what replaces pixels; leave `reference` out"):
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


@pytest.mark.parametrize("version", [1, 2])
def test_quantus_pixel_flipping_agrees_with_the_installed_quantus(version, monkeypatch):
    """Its curve point by point; its area by numpy's trapezoid, since Quantus calls one that numpy no longer has."""
    model, x = small_cnn(), pictures(2, (14, 16))
    maps = maps_for(x).round(decimals=1)
    targets = np.array([1, 2])
    metric = quantus.PixelFlipping(features_in_step=16, perturb_baseline="black", disable_warnings=True)
    if version == 2:  # Quantus, had it asked for a stable order
        monkeypatch.setattr(np, "argsort", partial(np.argsort, kind="stable"))
    theirs = metric(model=model, x_batch=x.numpy(), y_batch=targets, a_batch=maps.numpy(), device="cpu", softmax=True)
    ours = deletion(model, x, maps, targets.tolist(), protocol=f"quantus-pixelflipping/{version}")
    np.testing.assert_allclose(ours.scores.numpy(), np.array(theirs), atol=1e-6)
    np.testing.assert_allclose(ours.auc.numpy(), np.trapezoid(np.array(theirs), dx=1, axis=1), rtol=1e-6)


def test_the_same_map_gets_a_different_number_under_each_protocol():
    model, x = small_cnn(), pictures(1)
    names = {name.partition("/")[0] for name in protocols.available() if not protocols.get(name).drops_tokens}
    numbers = {name: round(deletion(model, x, maps_for(x), protocol=name).auc.item(), 6) for name in names}
    assert len(set(numbers.values())) == len(numbers)


def test_ids_and_versions():
    assert protocols.get("fei-paper") is protocols.get("fei-paper/1")
    assert protocols.available() == [
        "fei-paper/1",
        "held-out/1",
        "fei-fine/1",
        "held-out-fine/1",
        "rise/1",
        "torchcam/1",
        *(f"quantus-pixelflipping/{version}" for version in (1, 2)),
        "token-drop/1",
    ]
    assert protocols.get("quantus-pixelflipping") is protocols.get("quantus-pixelflipping/2")
    with pytest.raises(InputError, match="Unknown protocol 'fei-papre'; did you mean fei-paper"):
        protocols.get("fei-papre")
    with pytest.raises(InputError, match="Unknown protocol 'fei-paper/2'"):
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
    for values in ((0.5, 0.5), (0.1, 0.5, 0.3)):
        with pytest.raises(InputError, match="must increase"):
            protocols.Quantiles(values)


PUBLISHED = {
    "token-drop/1": (["left out of the sequence"], "softmax", "plain_mean", "raster", False, False),
    "fei-paper/1": (["reference"], "softmax", "plain_mean", "jittered", False, False),
    "fei-fine/1": (["reference"], "softmax", "trapezoid", "jittered", False, False),
    "rise/1": (["rise_blur", "normalised_zero"], "softmax", "trapezoid", "reversed_argsort", True, False),
    "torchcam/1": (["zeros", "zeros"], "logit", "trapezoid", "raster", False, False),
    "quantus-pixelflipping/1": (
        ["input_minimum", "input_minimum"], "softmax", "unit_steps", "numpy_per_value", False, True,
    ),
    "quantus-pixelflipping/2": (
        ["input_minimum", "input_minimum"], "softmax", "unit_steps", "raster_per_value", False, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_protocols_are_what_the_documentation_says(name):
    """A change of any field needs a new version."""
    says = protocols.describe(name)
    replacement = says["replacement"] if isinstance(says["replacement"], list) else [says["replacement"]]
    fields = [says[field] for field in ("score", "area", "order", "top_class_only", "per_value")]
    assert (replacement, *fields) == PUBLISHED[name]
    assert f"{says['name']}/{says['version']}" == says["id"] == name
    assert " at 0x" not in str(says)  # the same words in every process


def test_published_levels_by_hand():
    """How many of 40 values of rows of 8 are replaced, for insertion and deletion."""
    levels = {name: protocols.get(name).levels(40, 8) for name in PUBLISHED}
    tenths = [4, 12, 20, 28, 36]
    assert levels["fei-paper/1"] == levels["token-drop/1"] == (tenths, tenths)
    assert levels["fei-fine/1"] == ([*range(0, 41, 2)],) * 2
    assert levels["rise/1"] == ([0, 8, 16, 24, 32, 40],) * 2
    assert levels["torchcam/1"] == ([*range(0, 41, 2)],) * 2
    assert levels["quantus-pixelflipping/1"] == levels["quantus-pixelflipping/2"] == ([8, 16, 24, 32, 40],) * 2
    assert protocols.get("torchcam").levels(43, 8)[0] == [0, 1, *range(4, 44, 3)]
    assert protocols.get("torchcam").levels(43, 8)[1] == [*range(0, 43, 3), 43]


def test_orders_of_equal_values():
    values = torch.tensor([1.0, 3.0, 1.0, 3.0, 2.0])
    assert protocols.raster(values, "", 0, 1).tolist() == [1, 3, 4, 0, 2]
    assert protocols.reversed_argsort(values, "", 0, 1).tolist() == [3, 1, 4, 2, 0]
    assert protocols.raster_per_value(values, "", 0, 2).tolist() == [1, 3, 6, 8, 4, 9, 0, 2, 5, 7]
    orders = {tuple(protocols.jittered(values, digest, seed, 1).tolist()) for digest in "abcd" for seed in range(4)}
    assert orders == {(a, b, 4, c, d) for a, b in ((1, 3), (3, 1)) for c, d in ((0, 2), (2, 0))}
    assert sorted(protocols.numpy_per_value(values, "", 0, 3).tolist()[:6]) == [1, 3, 6, 8, 11, 13]


def test_areas_by_hand():
    scores, fractions = torch.tensor([[4.0, 2.0, 1.0]]), torch.tensor([0.0, 0.5, 0.75], dtype=torch.float64)
    assert protocols.plain_mean(scores, fractions).tolist() == pytest.approx([7 / 3])
    assert protocols.trapezoid(scores, fractions).tolist() == [3 * 0.5 + 1.5 * 0.25]
    assert protocols.trapezoid(scores, fractions).dtype == torch.float32
    assert protocols.unit_steps(scores, fractions).tolist() == [3 + 1.5]


def test_the_newest_version_of_a_name(monkeypatch):
    old = protocols.get("fei-paper")
    new = dataclasses.replace(old, version=2)
    for published in ((old, new), (new, old)):
        monkeypatch.setattr(protocols, "_PUBLISHED", published)
        assert protocols.get("fei-paper") is new
        assert protocols.get("fei-paper/1") is old


def test_a_name_like_none_is_answered_with_all():
    with pytest.raises(InputError, match="Unknown protocol 'zzz'; choose one of fei-paper/1, held-out/1, fei-fine"):
        protocols.get("zzz")
    with pytest.raises(InputError, match="Unknown protocol 'fei-pine'; did you mean fei-fine or fei-fine/1\\?"):
        protocols.get("fei-pine")


def test_the_order_of_ties_is_that_of_the_published_version():
    """Another stream of random numbers would need a new version of the protocol."""
    assert protocols.jittered(torch.zeros(6), "digest", 0, 1).tolist() == [1, 0, 3, 5, 4, 2]


def test_replacements_have_the_shape_of_the_images():
    x = pictures(2)
    for replace in (protocols.zeros, protocols.input_minimum, normalised_zero, protocols.rise_blur):
        assert replace(x, small_cnn()).shape == x.shape
    assert protocols.input_minimum(x, small_cnn())[1].unique().tolist() == [x[1].min().item()]


@pytest.mark.parametrize("values", [(), (-0.1, 0.5), (0.5, float("nan")), ("a",)])
def test_quantiles_outside_the_unit_interval_are_refused(values):
    with pytest.raises(InputError, match=r"The quantiles of a protocol must lie in \[0,1\]; got \["):
        protocols.Quantiles(values)


def test_schedules_cannot_be_changed():
    for schedule, name in (
        (protocols.Quantiles((0.5,)), "values"),
        (protocols.Intervals(3), "steps"),
        (protocols.WithoutStart(protocols.rows), "levels"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(schedule, name, None)
    with pytest.raises(InputError, match="`steps` must be a whole number of at least 1; got 0"):
        protocols.Intervals(0)
    with pytest.raises(InputError, match="Unknown score 'prob'"):
        dataclasses.replace(protocols.get("rise"), score="prob")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.bool])
def test_maps_of_other_types_rank_as_their_values_do(dtype):
    """Quantus' order negates the map, which has no meaning in bytes; a map that needs a gradient is taken as it is."""
    model, x = small_cnn(), pictures(1)
    maps = maps_for(x).abs().mul(3).to(dtype)
    expected = deletion(model, x, maps.double(), 1, protocol="quantus-pixelflipping").scores
    torch.testing.assert_close(deletion(model, x, maps, 1, protocol="quantus-pixelflipping").scores, expected)
    needs = (maps if maps.is_floating_point() else maps.double()).requires_grad_()
    torch.testing.assert_close(deletion(model, x, needs, 1, protocol="quantus-pixelflipping").scores, expected)


def test_descriptions_are_plain_words():
    description = protocols.describe("rise")
    assert description["id"] == "rise/1"
    assert description["order"] == "reversed_argsort"
    assert protocols.describe("fei-paper")["levels"] == "Quantiles(values=(0.1, 0.3, 0.5, 0.7, 0.9))"
    assert description["replacement"] == ["rise_blur", "normalised_zero"]
    cautions = {name: protocols.describe(name)["caution"] for name in protocols.available()}
    assert {name: text for name, text in cautions.items() if text} == {
        "quantus-pixelflipping/1": "the order of equal values depends on the processor, and with it the score; "
        "version 2 has none of that"
    }


def test_another_score_is_noted_in_the_id():
    model, x = small_cnn(), pictures(1)
    assert insertion(model, x, maps_for(x), score="logit").protocol == "held-out/1+score=logit"
    assert insertion(model, x, maps_for(x), score="softmax").protocol == "held-out/1"

    def margin(logits, chosen):
        return logits[:, 0] - logits[:, 1]

    assert insertion(model, x, maps_for(x), score=margin).protocol == "held-out/1+score=margin"
    assert isinstance(fei.protocols.get("rise"), protocols.Protocol)
    assert isinstance(model, nn.Module)


def test_a_mean_over_replacements_is_described():
    both = protocols.Averaged((protocols.zeros, protocols.input_minimum))
    mine = dataclasses.replace(protocols.get("fei-paper"), name="mine", replacement=both)
    assert protocols.describe(mine)["replacement"] == {"mean over": ["zeros", "input_minimum"]}


@pytest.mark.parametrize("made", [protocols.Averaged(()), protocols.LeftOut()])
def test_what_stands_in_is_never_changed(made):
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.makers = (protocols.zeros,)


def test_without_scipy_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(PackageError) as refused:
        protocols.rise_blur(torch.rand(1, 3, 8, 8), small_cnn())
    told = 'The protocol rise needs scipy, which is not installed; run pip install "fei[bench]".'
    assert str(refused.value) == told
