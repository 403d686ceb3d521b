"""A preview: a map in few passes that says everywhere what it is, and is replaced in place by the map itself."""

import json

import numpy as np
import pytest
import torch
from commands import NETWORK, furnish
from commands import run as cli
from networks import pictures, small_cnn

import fei
from fei.metrics.cost import measure_cost
from fei.models import Classifier
from fei.report.drawing import notebook_figure
from fei.report.explorer import explorer_html
from fei.report.explorer._payload import payload
from fei.service import collect

pytestmark = pytest.mark.slow

TOLD = "The map of fei is a preview, made in few steps to look at while waiting; leave that preset out for the map."


@pytest.fixture
def model():
    return Classifier(small_cnn(), input_size=16)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(furnish(tmp_path, NETWORK, "photo.png"))
    return tmp_path


def test_it_takes_ten_rows_back_through_the_network(model):
    x, explainer = pictures(1, size=(16, 16)), fei.FEI(model, preset="preview")
    _, cost = measure_cost(model, lambda: explainer.explain(x, evidence=False))
    rows = 1 + explainer.settings.steps * explainer.settings.tried  # to see where the evidence is, and the steps
    assert rows <= 10
    assert cost.backwards <= rows + 2  # that look at the network


def test_a_preview_comes_first_and_then_the_very_map(model):
    x, ticks = pictures(1, size=(16, 16)), []
    explainer = fei.FEI(model, seed=3)
    first, last = explainer.refine(x, 2, "noise", progress=lambda *done: ticks.append(done))
    assert torch.equal(last.maps, explainer.explain(x, 2, "noise").maps)
    alone = fei.FEI(model, preset="preview", seed=3).explain(x, 2, "noise")
    assert torch.equal(first.maps, alone.maps)
    assert first.config == alone.config
    assert (first.preview, last.preview) == (True, False)
    assert (first.evidence is None, last.evidence is None) == (True, False)
    assert ticks[-1] == (20, 20)
    assert len(ticks) == 20  # the preview's steps are not counted


def test_what_was_asked_for_holds_for_the_preview_too(model):
    given = {"quantiles": (0.2, 0.8), "score": "logit", "seed": 4, "smooth": 1.0}
    preview = fei.FEI(model, **given).preview
    assert preview is not None
    assert preview.config == fei.FEI(model, preset="preview", **given).config
    assert fei.FEI(model, early_stop=0.1).preview.settings.nesting == "independent"


@pytest.mark.parametrize("given", [{"variant": "vm"}, {"preset": "paper"}, {"preset": "preview"}, {"steps": 1}])
def test_where_it_would_be_another_map_or_no_quicker_there_is_none(model, given):
    assert fei.FEI(model, **given).preview is None
    options = {name: value for name, value in given.items() if name != "variant"}
    assert fei.methods.create("fei-vm" if "variant" in given else "fei", **options).preview is None  # type: ignore[attr-defined]
    assert fei.methods.create("fgvis", preset="fei").preview is None  # type: ignore[attr-defined]


def test_the_method_by_name_has_the_same_preview(model):
    x = pictures(1, size=(16, 16))
    method = fei.methods.create("fei", quantiles=[0.2, 0.8])
    preview = method.preview  # type: ignore[attr-defined]
    assert preview.name == "fei"
    expected = fei.FEI(model, preset="preview", quantiles=(0.2, 0.8)).attribute(x, target=1)
    assert torch.equal(preview(model, x, 1), expected)


def test_a_notebook_and_the_explorer_say_so(model):
    x = pictures(1, size=(16, 16))
    found = {name: fei.FEI(model, preset=name).explain(x) for name in ("preview", "fei")}
    titles = {name: found[name].show().axes[1].get_title() for name in found}
    assert titles["preview"] == f"{titles['fei']}\npreview"
    assert repr(found["preview"]).startswith("Explanation(a preview, 1 image(s) of 16 × 16")
    assert "preview" not in repr(found["fei"])
    shown = collect(
        model, x, {"fei": fei.methods.create("fei", preset="preview"), "gradcam": fei.methods.create("gradcam")}
    )
    assert [panel["preview"] for panel in payload(shown)["images"][0]["panels"]] == [True, False]
    assert shown[0].provenance["note"].startswith(TOLD)
    assert "fei (preview)" in [axis.get_title() for axis in shown.show().findobj() if hasattr(axis, "get_title")]
    assert TOLD in explorer_html(shown)


def test_picture_terminal_and_record_of_explain_say_so(folder, monkeypatch, capsys):
    drawn = {}
    monkeypatch.setattr("fei.service.record.draw", lambda *_, **words: drawn.update(words) or notebook_figure())
    words = ("explain", "photo.png", "--model", "net.py:net?mean=none", "--preset", "preview")
    assert cli(*words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "method fei (preview), seed 0" in printed
    assert TOLD in printed
    record = json.loads((folder / "fei-out" / "photo.json").read_text(encoding="utf-8"))
    assert record["preview"] is True
    assert TOLD in record["notes"]
    assert "  ·  fei (preview)  ·  " in drawn["details"]
    assert TOLD in drawn["notes"]
    assert cli(*words[:-2], "--steps", "4", "--force", "--json") == 0
    (plain,) = json.loads(capsys.readouterr().out)["results"]
    assert plain["preview"] is False
    assert TOLD not in plain["notes"]


def test_comparisons_and_tests_of_a_preview_say_so(folder, capsys):
    network = ("--model", "net.py:net?mean=none", "--preset", "preview")
    assert cli("compare", "photo.png", *network, "--methods", "fei,gradcam") == 0
    printed = capsys.readouterr().out
    assert "fei (preview)" in printed
    assert f"Note: {TOLD}" in printed
    (file,) = (folder / "fei-out").glob("*.comparison.json")
    rows = json.loads(file.read_text(encoding="utf-8"))["methods"]
    assert [(row["method"], row["preview"]) for row in rows] == [("fei", True), ("gradcam", False)]
    for command in (("black-image", "--methods", "fei", "--trials", "1"), ("sanity", "photo.png", "--method", "fei")):
        assert cli(*command, *network) == 0
        assert f"Note: {TOLD}" in " ".join(capsys.readouterr().out.split())


def test_its_page_to_print_says_so(folder, monkeypatch):
    said = {}

    def sheet(*_, **words):
        said.update(words)
        return notebook_figure()

    monkeypatch.setattr("fei.service.sheet.sheet", sheet)
    assert cli("explain", "photo.png", "--model", "net.py:net?mean=none", "--preset", "preview", "--pdf") == 0
    assert said["headline"].endswith("(a preview)")
    assert said["facts"]["method"].startswith("fei, a preview, seed 0")
    (remarks,) = [check for check in said["checks"] if check.what.startswith("no remarks")]
    assert not remarks.passed
    assert np.isfinite(said["checks"][0].passed)
