"""The inside weighted by relevance: by hand, against the gradient itself, and as a declared metric."""

import dataclasses

import pytest
import torch
from networks import pictures, small_cnn
from test_metrics import fine
from test_protocols import maps_for
from torch import nn

import fei
from fei.errors import InputError
from fei.metrics import evaluate, internal
from fei.metrics.declaration import Subject
from fei.metrics.evaluation import METRICS
from fei.protocols import Quantiles


class Weighed(nn.Module):
    """Two units per pixel, the pixel and its double; the first class reads the one and the second the other."""

    def __init__(self):
        super().__init__()
        self.units = nn.Conv2d(1, 2, 1, bias=False)
        self.read = nn.Linear(2, 2, bias=False)
        self.units.weight.data = torch.tensor([1.0, 2.0]).view(2, 1, 1, 1)
        self.read.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]])

    def forward(self, x):
        return self.read(self.units(x).sum((2, 3)))


def test_the_inside_weighted_by_relevance_by_hand():
    """On pixels (1, 3): h = ((1, 3), (2, 6)), and with the logit of a class its own channel alone has weights, h/Σh."""
    model, x = Weighed().eval().double(), torch.tensor([1.0, 3.0], dtype=torch.float64).view(1, 1, 1, 2)
    options = {"layers": ["units"], "protocol": fine((0.5,)), "reference": 0.0, "relevance": True, "score": "logit"}
    for target, size in ((0, 1.0), (1, 2.0)):
        # the pixel of 3 stays: the unit of 1 (or 2), whose weight is 1/4, is lost
        found = evaluate(model, x, x, target, **options).internal["units"]
        assert found.relevant_mse.item() == pytest.approx(size**2 / 4)
        assert found.relevant_cosine.item() == pytest.approx((0.75 * 9) / (0.75 * 9 * (0.25 + 0.75 * 9)) ** 0.5)
        assert found.mse.item() == pytest.approx((1 + 4) / 4)


def test_relevance_under_softmax_is_that_of_its_gradient_also_where_it_is_saturated():
    model, x = small_cnn().double(), pictures(1).double()
    chosen = int(model(x).argmax())

    def weights(model):
        kept = {}
        handle = model[5].register_forward_hook(lambda module, args, out: kept.update(h=out))
        phi = model(x).softmax(1)[0, chosen]
        handle.remove()
        return (kept["h"] * torch.autograd.grad(phi, kept["h"])[0]).abs()[0]

    w, kept = weights(model), []
    found = internal(model, x, maps_for(x), layers=["5"], protocol="fei-paper", reference=0.0, relevance=True)["5"]
    model[5].register_forward_hook(lambda module, args, out: kept.append(out.detach()))
    model(x)
    ranked = maps_for(x).flatten().argsort(descending=True, stable=True)
    for q in (0.1, 0.3, 0.5, 0.7, 0.9):
        image = x.clone().flatten(2)
        image[:, :, ranked[len(ranked) - round(q * len(ranked)) :]] = 0.0
        model(image.view_as(x))
    expected = torch.stack([((h - kept[0]).square()[0] * w).sum() / w.sum() for h in kept[1:]]).mean()
    assert found.relevant_mse.item() == pytest.approx(expected.item(), rel=1e-6)
    single = Weighed().eval()
    bright = torch.tensor([40.0, 60.0]).view(1, 1, 1, 2)  # the softmax of the second class is 1 to the last bit
    assert single(bright).softmax(1)[0, 1] == 1
    half = dataclasses.replace(fine((0.5,)), score="softmax")
    found = internal(single, bright, bright, layers=["units"], protocol=half, reference=0.0, relevance=True)
    # weights are (40, 60, 80, 120) / 300, and the pixel of 40 is lost
    assert found["units"].relevant_mse.item() == pytest.approx((40 * 40**2 + 80 * 80**2) / 300, rel=1e-5)


def test_a_network_of_one_logit_has_no_other_class_to_be_relevant_against():
    model, x = nn.Sequential(nn.Conv2d(3, 1, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval(), pictures(1)
    with pytest.raises(InputError, match="softmax"):
        internal(model, x, maps_for(x), layers=["0"], relevance=True)


def test_declared_metrics_are_read_off_one_evaluation():
    """Quick, since mutants are tried on it: what plans name is what the functions return."""
    x = pictures(1, (4, 6))
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3)).eval()
    protocol = dataclasses.replace(fei.protocols.get("fei-paper"), name="half", levels=Quantiles((0.5,)))
    given = {"boxes": [], "layers": ["1"], "seed": 7, "batch_size": 3, "protocol": protocol}
    subject = Subject(model, x, maps_for(x), 1, **given)
    options = {"layers": ["1"], "protocol": protocol, "generator": torch.Generator().manual_seed(7), "batch_size": 3}
    expected = evaluate(model, x, maps_for(x), 1, **options)
    weighed = internal(model, x, maps_for(x), 1, relevance=True, **options)["1"]
    found = {metric.name: metric.measure(subject) for metric in METRICS}
    for name in ("insertion", "deletion"):
        assert torch.equal(found[name].scores, getattr(expected, name).scores)
    assert torch.equal(found["ties"], expected.insertion.ties)
    for name in ("mse", "cosine", "pearson"):
        assert found[name].keys() == {"1"}
        assert torch.equal(found[name]["1"], getattr(expected.internal["1"], name))
    for name in ("relevant_mse", "relevant_cosine"):
        assert torch.equal(found[name]["1"], weighed.numbers[name])
        assert getattr(expected.internal["1"], name) is None
    assert set(weighed.numbers) == set(expected.internal["1"].numbers) | {"relevant_mse", "relevant_cosine"}
    (relevant,) = [metric for metric in METRICS if metric.name == "relevant_mse"]
    assert relevant.measure(Subject(model, x, maps_for(x), 1, **given | {"layers": ["0"]})).keys() == {"0"}
    nowhere = evaluate(model, x, maps_for(x), 1, **options | {"layers": []}, relevance=True)
    assert nowhere.forwards == expected.forwards
    assert evaluate(model, x, maps_for(x), 1, **options, relevance=True).forwards == expected.forwards + 1


def test_metrics_of_an_evaluation_are_declared_as_tables_show_them():
    network = ("network", "protocol")
    shown = ("heading", "group", "higher_is_better", "needs", "format", "logarithmic", "detail")
    declared = {metric.name: tuple(getattr(metric, name) for name in shown) for metric in METRICS}
    assert declared == {
        "insertion": ("insertion ↑", "external", True, network, ".3f", False, False),
        "deletion": ("deletion ↓", "external", False, network, ".3f", False, False),
        "ties": ("ties", "external", None, network, ".0%", False, True),
        "mse": ("MSE ↓", "internal", False, (*network, "layers"), ".4g", True, False),
        "cosine": ("cosine ↑", "internal", True, (*network, "layers"), ".3f", False, False),
        "pearson": ("Pearson ↑", "internal", True, (*network, "layers"), ".3f", False, False),
        "cls_mse": ("class MSE ↓", "internal", False, (*network, "layers"), ".4g", True, False),
        "cls_cosine": ("class cosine ↑", "internal", True, (*network, "layers"), ".3f", False, False),
        "patch_mse": ("patch MSE ↓", "internal", False, (*network, "layers"), ".4g", True, False),
        "patch_cosine": ("patch cosine ↑", "internal", True, (*network, "layers"), ".3f", False, False),
        "relevant_mse": ("relevant MSE ↓", "relevance", False, (*network, "layers"), ".4g", True, False),
        "relevant_cosine": ("relevant cosine ↑", "relevance", True, (*network, "layers"), ".3f", False, False),
    }


def test_relevance_of_several_images_is_that_of_each():
    x, targets = pictures(3, (4, 6)), [2, 0, 1]
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3)).eval()
    options = {"layers": ["1"], "protocol": "fei-paper", "relevance": True}
    together = internal(model, x, maps_for(x), targets, batch_size=10, **options)["1"]
    for number, target in enumerate(targets):
        alone = slice(number, number + 1)
        one = internal(model, x[alone], maps_for(x)[alone], target, batch_size=5, **options)["1"]
        for name, values in one.numbers.items():
            assert values.item() == pytest.approx(together.numbers[name][number].item(), rel=1e-5, abs=1e-7)
