"""The quick benchmark convinces: confident photographs, default steps, kept maps, and equal rows explained."""

import pytest
import torch
from commands import NETWORK, furnish
from commands import run as cli

import fei
from fei.bench import Store
from fei.bench.plan import parse_plan, presets
from fei.bench.report.tables import table


def test_a_quick_plan_takes_default_steps_and_keeps_maps():
    plan = parse_plan(presets.preset("table-external", quick=True))
    assert plan.keep_maps
    for row in plan.methods:
        if row.name.startswith("fei-"):
            assert fei.methods.create(row.name, **row.options).config["steps"] == 20  # type: ignore[attr-defined]


def test_its_photographs_are_such_as_the_network_is_sure_of(embedded):
    plan = parse_plan(presets.preset("table-external", quick=True))
    (pair,) = plan.pairs
    items = list(fei.data.load(pair.data))
    assert [item.id for item in items] == ["camera.png", "coffee.png"]
    for item in items:
        with torch.no_grad():
            assert embedded(embedded.preprocess(item.path)[None]).softmax(1).max() > 0.9


PLAN = """
name = "equal"
seeds = [0]
layout = "external"
keep_maps = true
[[pairs]]
model = "net.py:net"
data = "photos"
[[methods]]
name = "gradcam"
label = "Grad-CAM"
[[methods]]
name = "xgradcam"
label = "XGrad-CAM"
[[methods]]
name = "random"
label = "chance"
[metrics]
protocols = ["fei-paper"]
external = true
internal = false
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(furnish(tmp_path, NETWORK, "photos/a.png", "photos/b.png"))
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    return tmp_path


def test_rows_that_must_be_equal_are_explained(folder):
    assert cli("bench", "run", "plan.toml", "--out", "run") == 0
    assert len(list((folder / "run" / "maps").rglob("*.npy"))) == 6
    with Store.open(folder / "run", readonly=True) as store:
        notes = table(store, "external").notes
    told = [note for note in notes if "equal numbers" in note]
    assert told == [
        "Grad-CAM and XGrad-CAM have equal numbers: on a network that ends in pooling and one linear layer they are "
        "the same map, whatever the image."
    ]
