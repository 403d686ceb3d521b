"""The diagnostic commands as their users meet them."""

import csv
import hashlib
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fei import methods, models
from fei.cli import main
from fei.data import read_image
from fei.metrics.black_image import black_image
from fei.metrics.randomization import MODES, SIMILARITIES, cascading_randomization

pytestmark = pytest.mark.slow

NETWORK = '''
import torch
from torch import nn


class Small(nn.Module):
    """Two convolutions and a head."""

    input_size = 24
    labels = ["dark", "bright, light", "[red]striped", "dotted"]

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.features = nn.Sequential(
                nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()
            )
            self.head = nn.Linear(8, 4)
            for parameter in self.parameters():
                parameter.data *= 4

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


class Chatty(Small):
    def forward(self, x):
        print("hello from the network")
        return super().forward(x)
'''


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder to work in, with a network and an image."""
    (tmp_path / "net.py").write_text(NETWORK, encoding="utf-8")
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(place, capsys):
    """Run a command on the small network with two steps: exit code, standard output, standard error."""

    def call(words, model="net.py:Small"):
        words = shlex.split(words)
        with pytest.raises(SystemExit) as stop:
            main([words[0], "--model", model, "--steps", "2", *words[1:]])
        printed = capsys.readouterr()
        return stop.value.code, printed.out, printed.err

    return call


# fei black-image


def test_black_image_prints_a_table_and_writes_nothing_unless_asked(run, place):
    before = sorted(place.iterdir())
    code, out, err = run("black-image --trials 3")
    assert (code, err) == (0, "")
    assert re.search(r"method +rate +95 % interval +φ≥0.1 +φ≥0.5 +φ≥0.9 +gain", out)
    for name in ("fei", r"fei-none \(control\)"):
        assert re.search(rf"{name} +\d+\.\d% +\d+\.\d% to \d+\.\d%", out)
    assert "3 trials" in out
    assert [path for path in sorted(place.iterdir()) if path.name != "__pycache__"] == before
    assert max(map(len, out.splitlines())) <= 80


def test_black_image_is_the_metric(run):
    code, out, _ = run("black-image --methods fei-ibm,FEI-None,fei-ibm --trials 4 --seed 5 --json --out here")
    assert code == 0
    document = json.loads(out)
    assert [entry["method"] for entry in document["results"]] == ["fei-ibm", "fei-none"]
    model = models.load("net.py:Small")
    for entry in document["results"]:
        method = methods.create(entry["method"], steps=2)
        expected = black_image(model, method, trials=4, generator=torch.Generator().manual_seed(5))
        assert entry["rate"] == expected.rate
        assert entry["interval"] == list(expected.interval)
        assert entry["thresholds"] == {str(level): share for level, share in expected.thresholds.items()}
        assert entry["gain"] == expected.gain
        assert (entry["trials"], entry["redrawn"], entry["dropped"]) == (4, expected.redrawn, 0)
        assert [outcome["phi"] for outcome in entry["outcomes"]] == expected.phi.tolist()
        assert [outcome["target"] for outcome in entry["outcomes"]] == expected.target.tolist()
        assert [outcome["label"] for outcome in entry["outcomes"]] == [model.label(int(t)) for t in expected.target]
        assert entry["config"]["steps"] == 2


def test_black_image_files_hold_all_trials_and_the_command_repeats_it(run):
    code, out, _ = run("black-image --trials 3 --preset paper --out here --json")
    assert code == 0
    document = json.loads(out)
    files = document.pop("files")
    assert files == {"table": "here/black-image.csv", "record": "here/black-image.json"}
    assert json.loads(Path(files["record"]).read_text(encoding="utf-8")) == document
    with open(files["table"], newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    outcomes = [entry | {"method": r["method"]} for r in document["results"] for entry in r["outcomes"]]
    assert len(rows) == len(outcomes) == 6
    for row, outcome in zip(rows, outcomes, strict=True):
        assert row["method"] == outcome["method"]
        assert int(row["trial"]) == outcome["trial"]
        assert row["label"] == outcome["label"]
        assert [float(row[c]) for c in ("red", "green", "blue")] == outcome["reference"]
        assert float(row["phi"]) == outcome["phi"]
        assert bool(int(row["success"])) == outcome["success"]
    again = json.loads(run(" ".join([*shlex.split(document["command"])[1:], "--json"]))[1])
    assert [entry | {"seconds": 0} for entry in again["results"]] == [
        entry | {"seconds": 0} for entry in document["results"]
    ]


# fei sanity


def test_sanity_prints_a_table_and_writes_picture_and_record(run, fine_pictures):
    code, out, err = run("sanity a.png --seed 3")
    assert (code, err) == (0, "")
    assert re.search(r"re-initialised +SSIM +Spearman +\|Spearman\| +HOG", out)
    order = [out.index(f"network.{layer} ") for layer in ("head", "features.2", "features.0")]
    assert order == sorted(order)
    assert sorted(path.name for path in Path("fei-out").iterdir()) == ["a.sanity.json", "a.sanity.png"]
    assert "fei-out/a.sanity.png" in out
    with Image.open("fei-out/a.sanity.png") as picture:
        assert picture.width > 4 * picture.height / 2  # five pictures in a row: input, original, three stages
        colours = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    assert len(np.unique(colours, axis=0)) > 50


@pytest.mark.parametrize("mode", MODES)
def test_sanity_is_the_metric(run, mode):
    code, out, _ = run(f"sanity a.png --method fei-ibm --layers 2 --mode {mode} --seed 3 --target dotted --json")
    assert code == 0
    document = json.loads(out)
    model = models.load("net.py:Small")
    expected = cascading_randomization(
        model,
        methods.create("fei-ibm", steps=2),
        model.preprocess(read_image("a.png"))[None],
        target=3,
        layers=2,
        mode=mode,
        generator=torch.Generator().manual_seed(3),
    )
    assert document["layers"] == expected.layers == ["network.head", "network.features.2"]
    assert document["similarity"] == {name: expected.similarity[name][:, 0].tolist() for name in SIMILARITIES}
    assert document["target"] == {"index": 3, "label": "dotted"}
    assert document["mode"] == mode
    assert document["method"] == "fei-ibm"
    assert document["image"] == {"path": "a.png", "sha256": hashlib.sha256(Path("a.png").read_bytes()).hexdigest()}
    files = document.pop("files")
    assert json.loads(Path(files["record"]).read_text(encoding="utf-8")) == document
    again = json.loads(run(" ".join([*shlex.split(document["command"])[1:], "--json", "--out", "again"]))[1])
    assert again["similarity"] == document["similarity"]


def test_sanity_takes_layers_by_name_and_methods_without_masks(run, capsys):
    with pytest.raises(SystemExit) as stop:
        main(shlex.split("sanity a.png --model net.py:Small --method saliency --layers 'features.0, head' --json"))
    assert stop.value.code == 0
    assert json.loads(capsys.readouterr().out)["layers"] == ["network.head", "network.features.0"]


# Both


def test_what_a_network_prints_does_not_spoil_the_json(run):
    for words in ("black-image --trials 1 --method fei-none --json", "sanity a.png --layers 1 --json"):
        code, out, err = run(words, model="net.py:Chatty")
        assert code == 0
        assert json.loads(out)["model"] == "net.py:Chatty"
        assert "hello from the network" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("black-image --methods fei-wm", "did you mean fei-vm"),
        ("black-image --methods fei-vm,saliency", "saliency does not; choose one of fei, fei-vm"),
        ("black-image --trials 0", "Invalid value for '--trials'"),
        ("black-image --preset quick", "Unknown preset 'quick'"),
        ("black-image --seed -1", "The seed is -1"),
        ("black-image --out net.py", r"cannot be written to 'net.py' \(it is not a folder\)"),
        ("sanity", "Missing argument 'IMAGE"),
        ("sanity nope.png", "no image file 'nope.png'"),
        ("sanity a.png --mode both", "Unknown mode 'both'; choose one of cascading, independent"),
        ("sanity a.png --layers 0", "`layers` must be a number of layers, at least 1"),
        ("sanity a.png --layers features.1", "The network ran no module named 'features.1'"),
        ("sanity a.png --target spotted", "did you mean 'dotted'"),
        ("sanity a.png --out net.py", r"cannot be written to 'net.py' \(it is not a folder\)"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_2(run, words, expected):
    code, out, err = run(words)
    assert code == 2
    assert re.search(expected, err)
    assert out == ""
    assert len(err.splitlines()) == 1
