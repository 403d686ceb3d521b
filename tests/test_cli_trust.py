"""``fei trust`` as its users meet it."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fei import methods, metrics, models
from fei.cli import main
from fei.data import read_image
from fei.metrics.criteria import CRITERIA

pytestmark = pytest.mark.slow

NETWORK = """
import torch
from torch import nn


class Paints(nn.Module):
    input_size = 16
    labels = ["red", "green", "blue", "white"]

    def __init__(self):
        super().__init__()
        self.paint, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 4)
        weight = 0.01 * torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(0))
        weight[:, :, 1, 1] += torch.cat([1.5 * torch.eye(3) - 0.5, torch.ones(1, 3) / 3])
        self.paint.weight.data, self.paint.bias.data = weight, torch.tensor([0, 0, 0, -0.4])
        self.head.weight.data, self.head.bias.data = 30 * torch.eye(4) + 1, torch.zeros(4)

    def forward(self, x):
        print("hello from the network")
        return self.head(self.paint(x).relu().mean((2, 3)))
"""
COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "white": (1, 1, 1)}
ALL = " ".join(f"{name}.png" for name in COLOURS)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run ``fei trust`` in a folder with a network and four images: exit code, standard output, standard error."""
    (tmp_path / "net.py").write_text(NETWORK, encoding="utf-8")
    noise = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        pixels = 60 * noise.random((20, 20, 3)) + 190 * np.array(colour)
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"{name}.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")  # so that no words go on in the next line

    def call(words):
        with pytest.raises(SystemExit) as stop:
            main(["trust", "--model", "net.py:Paints", *shlex.split(words)])
        printed = capsys.readouterr()
        return stop.value.code, printed.out, printed.err.replace("hello from the network\n", "")

    return call


def test_it_prints_a_table_with_verdicts_and_writes_a_record(run):
    code, out, err = run(f"{ALL} --method gradcam")
    assert (code, err) == (0, "")
    assert "gradcam on net.py:Paints, 4 image(s), seed 0" in out
    assert re.search(r"property +measure +mean +chance +verdict", out)
    assert re.search(r"seed +ρ between seeds ↑ +1\.00 +– +stable", out)
    assert re.search(r"place +top pixels in the cell ↑ +\d\.\d\d, 1 mosaic\(s\) +0\.25 ", out)
    assert [file.name for file in Path("fei-out").iterdir()] == ["gradcam.trust.json"]


def test_what_ignores_the_network_is_told_so(run):
    _, out, _ = run(f"{ALL} --method edges")
    for row in (
        r"class +ρ with another class ↓ +1\.00 +– +hardly depends on the class\b",
        r"weights +ρ, classifier redrawn ↓ +1\.00 +– +hardly depends on the classifier\b",
        r"weights +rise of complexity ↑ +0\.00 +– +no simpler than without the weights\b",
        r"seed +ρ between seeds ↑ +1\.00 +– +stable\b",
    ):
        assert re.search(row, out), row
    assert "Flat" not in out


def test_flat_maps_are_counted(run, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    code = "def zeros(model, inputs, target):\n    return 0 * inputs[:, :1]\n"
    Path("maps_of_zeros.py").write_text(code, encoding="utf-8")
    _, out, _ = run("red.png --method maps_of_zeros:zeros")
    assert re.search(r"class +ρ with another class ↓ +1\.00 +– +hardly depends on the class; 1 flat\b", out)
    assert "Flat is a map of which more than half is tied" in out


def test_the_numbers_are_those_of_the_metrics(run):
    code, out, _ = run(f"{ALL} --method smoothgrad -o samples=3 --seed 5 --confidence 0.8 --json")
    assert code == 0
    document = json.loads(out)
    files = document.pop("files")
    assert files == {"record": "fei-out/smoothgrad.trust.json"}
    assert json.loads(Path(files["record"]).read_text(encoding="utf-8")) == document
    again = json.loads(run(shlex.join([*shlex.split(document["command"])[2:], "--json"]))[1])
    assert again["results"] == document["results"]
    model = models.load("net.py:Paints")
    x = torch.stack([model.preprocess(read_image(f"{name}.png")) for name in COLOURS])
    given = (model, methods.create("smoothgrad", samples=3), x)
    options = {"generator": torch.Generator().manual_seed(5)}
    classes = metrics.class_sensitivity(*given, **options)
    grid = metrics.grid_pointing_game(*given, confidence=0.8, **options)
    expected = {
        "random_class": classes.random.correlation,
        "runner_up": classes.runner_up.correlation,
        "stability": metrics.stability(*given, **options).correlation,
        "classifier_randomization": metrics.classifier_randomization(*given, **options).correlation,
        "cascade": metrics.weight_sensitivity(*given, **options).cascade.correlation,
        "emprt": metrics.emprt(*given, **options).rise,
        "grid_rank": grid.rank.mean(1),
    }
    assert [row["metric"] for row in document["results"]] == [criterion.metric for criterion in CRITERIA]
    for row in document["results"]:
        assert row["values"] == expected[row["metric"]].tolist(), row["metric"]
        assert row["mean"] == pytest.approx(expected[row["metric"]].mean().item())
        assert (row["n"], row["interval"]) == (1 if row["metric"] == "grid_rank" else 4, None)
        assert row["verdict"]
    assert document["results"][-1]["cells"]["energy"] == grid.energy.tolist()
    assert [image["target"]["label"] for image in document["images"]] == list(COLOURS)


def test_five_images_have_an_interval(run):
    noise = np.random.default_rng(1)
    Image.fromarray(noise.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save("fifth.png")
    document = json.loads(run(f"{ALL} fifth.png --method saliency --json")[1])
    for row in document["results"][:6]:
        assert row["n"] == 5
        assert row["interval"] == list(metrics.bootstrap_interval(row["values"]))


def test_too_few_photographs_for_a_mosaic_are_told_in_one_sentence(run):
    code, out, err = run("red.png green.png --method captum.attr:Saliency")
    assert (code, err) == (0, "")
    assert re.search(r"place +top pixels in the cell ↑ +– +– +not measured", out)
    assert re.search(r"\nA mosaic needs 4 photographs of distinct classes.*have 2; give more.*\.\n", out)
    assert Path("fei-out/captum.attr-Saliency.trust.json").is_file()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "Missing argument 'IMAGE"),
        ("nope.png", "no image file 'nope.png'"),
        ("red.png --method gradcan", "did you mean gradcam"),
        ("red.png --size 1", "Invalid value for '--size'"),
        ("red.png --confidence 2", "`confidence` must be a number strictly between 0 and 1"),
        ("red.png --method gradcam --steps 3", "has no option 'steps'"),
        ("red.png --seed -1", "The seed is -1"),
        ("red.png --out net.py", r"cannot be written to 'net.py' \(it is not a folder\)"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_2(run, words, expected):
    code, out, err = run(words)
    assert code == 2
    assert re.search(expected, err)
    assert out == ""
    assert len(err.splitlines()) == 1
