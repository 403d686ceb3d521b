"""A network is fed what it was trained on, or it is said that it may not be."""

import json
import math

import pytest
import torch
from commands import NETWORK, furnish
from commands import run as fei
from torch import nn

from fei import models
from fei.data import demo_image
from fei.errors import DataError, InputError
from fei.models.classifier import IMAGENET_MEAN, IMAGENET_STD
from fei.models.feeding import doubt
from fei.models.preprocessing import in_words, join_spec, split_spec

pytestmark = pytest.mark.slow

PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket")


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(furnish(tmp_path, NETWORK, "photo.png", size=(40, 20)))
    return tmp_path


def trained(normalised, seed=0):
    """A network whose BatchNorm has the statistics of photographs, as they are or normalised."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        norm = nn.BatchNorm2d(8, momentum=None)
        net = nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    images = torch.stack([models.Classifier(net, input_size=64).preprocess(demo_image(name)) for name in PHOTOGRAPHS])
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    with torch.no_grad():
        net.train()((images - mean) / std if normalised else images)
    return net.eval()


def test_what_is_told_replaces_what_the_network_says(place):
    (place / "names.txt").write_text("a\nb\nc\n\n", encoding="utf-8")
    plain = models.load("net.py:net")
    told = models.load("net.py:net?mean=imagenet&input_size=24&labels=names.txt")
    assert (told.input_size, told.resize, told.labels) == (24, 27, ["a", "b", "c"])  # 24 · 256/224
    x = torch.rand(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    assert torch.allclose(told(x), plain.network((x - mean) / std), atol=1e-6)
    assert models.load("net.py:net?std=0.5&mean=0.1,0.2,0.3").std.flatten().tolist() == [0.5] * 3
    assert not models.load("net.py:net?mean=none").normalizes
    assert in_words(told) == (
        "the central 24 × 24 of the photograph resized to 27 pixels on its short side (bicubic), normalised by mean "
        "0.485, 0.456, 0.406 and std 0.229, 0.224, 0.225"
    )


@pytest.mark.parametrize(
    ("suffix", "error", "words"),
    [
        ("mean=1,2", InputError, "give three numbers"),
        ("mean=0.5", InputError, "give both or neither"),
        ("colour=1", InputError, "word after the model's"),
        ("mean", InputError, "cannot be read; write NAME=VALUE"),
        ("input_size=-1", InputError, "give a number of pixels"),
        ("labels=no.txt", InputError, "There is no file of labels"),
        ("labels=two.txt", InputError, "names 2 classes and the network has 3; give a line for each"),
        ("labels=empty.txt", DataError, "names no classes"),
        ("labels=bad.json", DataError, "cannot be read"),
    ],
)
def test_what_cannot_be_told_is_one_sentence(place, suffix, error, words):
    for name, text in {"two.txt": "a\nb", "empty.txt": "\n", "bad.json": "[1"}.items():
        (place / name).write_text(text, encoding="utf-8")
    with pytest.raises(error, match=words):
        models.load(f"net.py:net?{suffix}")


def test_a_specification_comes_apart_as_it_was_put_together():
    told = {"mean": "imagenet", "labels": "a folder/na&mes?.txt", "resize": None, "input_size": 299}
    spec = join_spec("C:/net.py:build:w.pt?mean=none", told)
    assert split_spec(spec) == (
        "C:/net.py:build:w.pt",
        {"mean": "imagenet", "labels": "a folder/na&mes?.txt", "input_size": "299"},
    )


def test_batch_statistics_tell_how_a_network_was_fed():
    for seed in range(5):
        assert doubt(models.Classifier(trained(False, seed), input_size=64)) is None
        assert "statistics in its first BatchNorm" in doubt(models.Classifier(trained(True, seed), input_size=64))


class Normalising(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net((x - 0.5) / 0.25)


def test_who_normalises_is_not_doubted_and_who_cannot_be_known_is(place):
    bare = models.load("net.py:net").network
    assert "nothing shows whether it was trained so; tell" in doubt(models.Classifier(bare, input_size=16))
    assert doubt(models.Classifier(Normalising(bare), input_size=16)) is None
    assert doubt(models.Classifier(bare, mean=[0.5] * 3, std=[0.5] * 3, input_size=16)) is None
    assert doubt(models.load("net.py:net?mean=none")) is None


@pytest.mark.needs_assets
def test_a_real_network_with_its_normalisation_taken_away_is_doubted(squeezenet):
    assert doubt(squeezenet) is None
    bare = models.Classifier(squeezenet.network.net, input_size=squeezenet.input_size)
    assert doubt(bare) is not None


def test_terminal_record_and_page_say_how_the_network_was_fed(place, capsys):
    (place / "names.txt").write_text("a\nb\nc\n", encoding="utf-8")
    words = ["explain", "photo.png", "--model", "net.py:net", "--method", "gradcam", "--html"]
    assert fei(*words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "input the central 16 × 16 of the photograph resized to 18 pixels on its short side" in said
    assert "RGB in [0, 1] as it is" in said
    assert "tell what it was trained on with --mean imagenet" in said
    record = json.loads((place / "fei-out" / "photo.json").read_text(encoding="utf-8"))
    assert record["notes"][0].startswith("The network sees RGB in [0, 1] as it is")
    assert record["notes"][0] in (place / "fei-out" / "explorer.html").read_text(encoding="utf-8")
    # 20 × 40 pixels become 18 × 36, of which the central 16 × 16 are seen
    assert record["preprocessing"]["crop"] == pytest.approx(
        [1 * 20 / 18, 10 * 20 / 18, 17 * 20 / 18, 26 * 20 / 18], abs=1e-3
    )
    assert record["preprocessing"]["photograph"] == [20, 40]

    assert (
        fei(*words, "--mean", "imagenet", "--input-size", "18", "--resize", "20", "--labels", "names.txt", "--force")
        == 0
    )
    said = " ".join(capsys.readouterr().out.split())
    assert "18 × 18 of the photograph resized to 20 pixels" in said
    assert "normalised by mean 0.485" in said
    assert "trained on normalised" not in said
    again = json.loads((place / "fei-out" / "photo.json").read_text(encoding="utf-8"))
    assert again["model"] == "net.py:net?mean=imagenet&input_size=18&resize=20&labels=names.txt"
    assert again["preprocessing"]["mean"] == pytest.approx(IMAGENET_MEAN)
    assert again["prediction"]["label"] in ("a", "b", "c")
    assert fei("reproduce", "fei-out/photo.json", "--trust-code") == 0


@pytest.mark.parametrize(
    "command",
    [
        *("explain", "compare", "figure", "sanity", "black-image", "trust", "audit", "finetune", "serve"),
        "bench preset",
    ],
)
def test_every_command_with_a_network_takes_them(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert fei(*command.split(), "--help") == 0
    said = capsys.readouterr().out
    for option in ("--mean", "--std", "--input-size", "--resize", "--labels"):
        assert option in said, option


def test_a_plan_takes_them(place, capsys):
    assert fei("bench", "preset", "table-external", "--quick", "--model", "net.py:net", "--mean", "imagenet") == 0
    assert 'model = "net.py:net?mean=imagenet"' in capsys.readouterr().out
    assert fei("bench", "preset", "table-external", "--quick", "--mean", "imagenet") == 2
    assert "name it with --model" in capsys.readouterr().err


def test_a_single_output_is_not_told_to_be_certain(place, capsys):
    one = NETWORK.replace("nn.Linear(6, 3)", "nn.Linear(6, 1)").replace('["dark", "bright", "striped"]', '["ill"]')
    (place / "one.py").write_text(one, encoding="utf-8")
    assert fei("explain", "photo.png", "--model", "one.py:net", "--method", "gradcam", "--json") == 0
    (record,) = json.loads(capsys.readouterr().out)["results"]
    model = models.load("one.py:net")
    with torch.no_grad():
        logit = model(model.preprocess("photo.png")[None]).item()
    assert record["prediction"]["probability"] == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-6)
    assert any("one output" in note for note in record["notes"])
