"""Pictures as people read them: all of the photograph, curves that rise, units, names of classes, marked controls."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import NETWORK, furnish, run
from networks import pictures, small_cnn
from one_file_pages import data_of
from PIL import Image
from torch import nn

import fei
from fei.bench.report.grids import visual_comparison
from fei.methods import is_control
from fei.models import Classifier
from fei.report.comparison import comparison
from fei.report.drawing import panel
from fei.report.whole import Whole
from fei.service import collect, look

pytestmark = pytest.mark.slow

OUT = Path("fei-out")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    nameless = NETWORK.replace("model.input_size, model.labels = 16, ", "model.input_size, _ = 16, ")
    monkeypatch.chdir(furnish(tmp_path, nameless, "photo.png", size=(20, 40)))
    return tmp_path


def test_insertion_rises_with_what_is_shown_and_deletion_falls():
    model, x = Classifier(small_cnn(), input_size=16), pictures(1, size=(16, 16))
    (shown,) = collect(model, x, ["gradcam", "random"], target=1)
    evaluations = {one.method: one.evaluation for one in shown.panels}
    figure = comparison(np.zeros((16, 16, 3), np.uint8), {"gradcam": np.eye(16)}, evaluations, "h")
    axes = [axis for part in figure.subfigs for axis in part.axes if axis.get_xlabel().startswith("share")]
    assert [axis.get_xlabel() for axis in axes] == ["share of pixels shown", "share of pixels removed"]
    whole = model(x).softmax(1)[0, 1].item()
    shares, scores = axes[0].lines[0].get_data()
    assert scores[np.argmax(shares)] == pytest.approx(whole, abs=1e-6)  # all pixels shown, at the right
    assert shares.max() == 1
    shares, scores = axes[1].lines[0].get_data()
    assert scores[np.argmin(shares)] == pytest.approx(whole, abs=1e-6)  # nothing removed, at the left
    assert [line.get_label() for line in axes[0].lines] == ["gradcam", "random (control)"]


def test_a_picture_shows_the_whole_photograph_the_frame_and_the_unit():
    photograph = Image.new("RGB", (40, 20))
    how = {"headline": "h", "details": "d", "unit": "mean of the masks"}
    figure = panel(np.zeros((16, 16, 3), np.uint8), np.eye(16), whole=Whole(photograph, (10, 0, 30, 20)), **how)
    first, *_, bar = figure.axes
    assert first.images[0].get_array().shape[:2] == (20, 40)
    (frame,) = first.patches
    assert (frame.get_x(), frame.get_y(), frame.get_width(), frame.get_height()) == (9.5, -0.5, 20, 20)  # type: ignore[attr-defined]
    assert "framed: what the network saw" in first.texts[0].get_text()
    assert bar.get_ylabel() == "mean of the masks"


def test_explain_draws_it_so(monkeypatch):
    drawn = {}
    monkeypatch.setattr("fei.service.record.draw", lambda *_, **how: drawn.update(how) or panel(*_, **how))
    assert run("explain", "photo.png", "--model", "net.py:net", "--method", "gradcam") == 0
    photograph, box = drawn["whole"]
    assert photograph.size == (40, 20)
    record = json.loads((OUT / "photo.json").read_text(encoding="utf-8"))
    assert box == pytest.approx(record["preprocessing"]["crop"], abs=1e-3)
    assert drawn["notes"] == record["notes"] != []  # what a reader should know is in the caption
    assert record["target"]["label"] == f"class {record['target']['index']}"  # not "2" alone
    assert fei.models.load("net.py:net").index("class 2") == 2


def test_compare_and_the_explorer_show_all_of_it_too(monkeypatch):
    drawn = []
    monkeypatch.setattr("fei.report.comparison.comparison", lambda *given: drawn.append(comparison(*given)) or drawn[0])
    assert run("compare", "photo.png", "--model", "net.py:net", "--methods", "gradcam", "--html") == 0
    first = drawn[0].get_axes()[0]
    assert first.get_title() == "photograph, framed:\nwhat the network saw"
    assert first.images[0].get_array().shape[:2] == (20, 40)
    (image,) = data_of((OUT / "explorer.html").read_text(encoding="utf-8"))["images"]
    whole = Image.open(io.BytesIO(base64.b64decode(image["whole"]["jpeg"])))
    assert whole.size == (40, 20)
    left, top, right, bottom = image["whole"]["box"]
    assert (left + right, top + bottom) == pytest.approx((1, 1), abs=0.06)  # the middle, to half a pixel
    assert (right - left) * 40 == pytest.approx((bottom - top) * 20, abs=1e-4)  # a square


def test_a_figure_shows_all_of_it_and_keeps_the_height_of_its_maps(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "fei.bench.report.grids.visual_comparison", lambda *given: drawn.append(visual_comparison(*given)) or drawn[0]
    )
    assert run("figure", "photo.png", "--model", "net.py:net", "--methods", "gradcam", "--out", "figure.png") == 0
    first, second = drawn[0].axes
    assert first.images[0].get_array().shape[:2] == (20, 40)
    assert len(first.patches) == 1
    heights = [axes.get_position(original=True).height for axes in (first, second)]
    assert heights[0] == pytest.approx(heights[1])
    assert "Framed: what the network saw." in [text.get_text() for text in drawn[0].texts]


def test_what_the_network_saw_whole_is_not_framed():
    square = Classifier(small_cnn(), input_size=16, resize=16)
    assert look(square, Image.new("RGB", (40, 40))).whole is None
    assert look(square, Image.new("RGB", (40, 20))).whole is not None


def grid_share(values, period):
    """The share of a map's variance at the frequencies of a grid of that period."""
    power = torch.fft.fft2((values - values.mean()).double()).abs() ** 2
    step = len(values) // period
    places = {(u % len(values), v % len(values)) for u in (0, step, -step) for v in (0, step, -step)} - {(0, 0)}
    return float(sum(power[place] for place in places) / power.sum())


def test_the_grid_of_strides_is_in_the_gradient_and_not_in_the_flagships_map():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        strided = [nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1)]
        head = [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)]
        model = nn.Sequential(*strided, *head).eval()
    x = pictures(1, size=(32, 32))
    shares = {
        name: sum(grid_share(fei.methods.create(name)(model, x, 1)[0, 0], period) for period in (2, 4))
        for name in ("saliency", "fei-vm", "fei")
    }
    assert shares["saliency"] > 0.05, shares
    assert shares["fei-vm"] > 0.05, shares
    assert shares["fei"] < 0.01, shares


def test_controls_are_marked(capsys):
    assert [name for name in fei.methods.available() if is_control(name)] == [
        *("fei-none", "random", "smooth-noise", "centre", "brightness", "edges")
    ]
    words = ["compare", "photo.png", "--model", "net.py:net", "--methods", "gradcam,edges", "--html"]
    assert run(*words) == 0
    said = capsys.readouterr().out
    assert "edges (control)" in said
    assert "gradcam (control)" not in said
    page = (OUT / "explorer.html").read_text(encoding="utf-8")
    assert '"method":"edges","control":true' in page
    assert '"method":"gradcam","control":false' in page
    assert run("methods") == 0
    assert "controls" in capsys.readouterr().out
