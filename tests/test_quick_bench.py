"""The quick benchmark convinces: confident photographs, default steps, kept maps, and equal rows explained."""

import pytest
import torch
from commands import NETWORK, furnish
from commands import run as cli
from PIL import Image

import fei
from fei.bench import Store
from fei.bench.plan import parse_plan, presets
from fei.bench.report.tables import table
from fei.errors import InputError


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


# The lighter a photograph, the surer it is: at .5 of nothing, at 1 of "bright".
SURE_OF_LIGHT = """
import torch
from torch import nn


class Light(nn.Module):
    input_size = 16

    def __init__(self, strength):
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(strength))

    def forward(self, x):
        light = self.strength * (x.mean((1, 2, 3)) - 0.5)
        return torch.stack([-light, light], 1)


def net():
    return Light(10.0)


def weak():
    return Light(0.1)
"""


@pytest.mark.parametrize(
    ("light", "networks"), [([0.95, 0.9, 0.5, 0.55, 0.5, 0.45], ["net"]), ([0.9, 0.6, 0.5], ["net", "weak"])]
)
def test_of_given_photographs_it_takes_those_that_the_networks_are_sure_of(tmp_path, monkeypatch, light, networks):
    monkeypatch.chdir(furnish(tmp_path, SURE_OF_LIGHT))
    (tmp_path / "photos").mkdir()
    for number, value in enumerate(light):
        Image.new("RGB", (16, 16), (round(255 * value),) * 3).save(tmp_path / "photos" / f"{number}.png")
    (tmp_path / "photos" / "damaged.png").write_bytes(b"\x89PNG")
    text = presets.preset(
        "table-external", quick=True, models=[f"net.py:{name}?mean=none" for name in networks], data=["photos"]
    )
    pairs = parse_plan(text).pairs
    assert [pair.model for pair in pairs] == [f"net.py:{name}?mean=none" for name in networks]
    for pair in pairs:
        drawn = fei.data.load(pair.data).sample(pair.sample, pair.sample_seed)
        assert [item.id for item in drawn] == ["0.png", "1.png"]
    least = "1.00" if len(networks) == 1 else "0.50"
    assert f"# Of photos a draw is taken in which every network gives its best class {least} or more." in text


def test_photographs_that_are_not_there_are_told_with_the_plan():
    with pytest.raises(InputError, match="nowhere"):
        presets.preset("table-external", quick=True, data=["nowhere"])


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
