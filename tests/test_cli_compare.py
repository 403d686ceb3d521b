"""``fei compare``: the numbers are those of the library, the files are there, wrong words are told."""

import json

import pytest
import torch
from commands import NETWORK, furnish, run
from PIL import Image

import fei
from fei.data import read_image

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return furnish(tmp_path, NETWORK, "a.png", "b.png")


def compare(*words):
    return run("compare", *words, "--model", "net.py:net", "--steps", "2", "--out", "out")


def test_numbers_files_and_table(place, capsys, fine_pictures):
    assert compare("a.png", "--methods", "fei-vm,saliency", "--protocol", "fei-fine", "--target", "bright") == 0
    printed = capsys.readouterr().out
    document = json.loads((place / "out" / "a.comparison.json").read_text(encoding="utf-8"))
    assert document["target"] == {"index": 1, "label": "bright"}
    assert document["protocol"]["id"] == "fei-fine/1"
    model = fei.models.load("net.py:net")
    x = model.preprocess(read_image(place / "a.png"))[None]
    maps = fei.methods.create("saliency")(model, x, 1)
    expected = fei.metrics.evaluate(model, x, maps, 1, protocol="fei-fine")
    row = document["methods"][1]
    assert row["method"] == "saliency"
    assert row["insertion"] == pytest.approx(expected.insertion.auc.item(), abs=1e-5)
    assert row["deletion"] == pytest.approx(expected.deletion.auc.item(), abs=1e-5)
    last = model.feature_layers[-1]
    assert row["cosine"] == pytest.approx(expected.internal[last].cosine.item(), abs=1e-5)
    assert f"{row['insertion']:.3f}" in printed
    with Image.open(place / "out" / "a.comparison.png") as figure:
        assert figure.width > 500
    assert torch.tensor(row["curves"]["insertion"]).shape == (21,)
    assert "attention" not in row  # of a network that has none


def test_the_record_of_a_transformer_has_every_block_and_its_attention(place, capsys):
    network = (
        "from networks import tiny_transformer\n\n\ndef net():\n    model = tiny_transformer(size=(16, 16))\n"
        "    model.input_size = 16\n    return model\n"
    )
    (place / "net.py").write_text(network, encoding="utf-8")
    assert compare("a.png", "--methods", "saliency", "--protocol", "fei-fine", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["results"][0]["methods"]
    model = fei.models.load("net.py:net")
    x = model.preprocess(read_image(place / "a.png"))[None]
    maps = fei.methods.create("saliency")(model, x)
    expected = fei.metrics.attention_divergence(model, x, maps, protocol="fei-fine")
    assert list(row["layers"]) == list(expected) == ["network.blocks.0", "network.blocks.1"]
    for block, told in row["attention"].items():
        assert told["cls"] == pytest.approx(expected[block].cls[0].tolist(), abs=1e-5)
        assert told["kept"] == pytest.approx(expected[block].kept[0].tolist(), abs=1e-5)


def test_several_images_get_means_and_json_is_pure(place, capsys):
    assert compare("a.png", "b.png", "--methods", "random") == 0
    assert "Means over 2 images" in capsys.readouterr().out
    assert compare("a.png", "--methods", "random", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in document["results"][0]["methods"]] == ["random"]


def test_wildcards_and_all(place, capsys):
    quick = ("rise.samples=8", "areas=.1,.3", "cell=2", "sigma=4.0", "quantiles=.5", "permutations=2", "outer=2")
    quick += ("segments=4", "kernel-shap.samples=20", "inner_steps=2")
    words = [word for option in quick for word in ("-o", option)]
    assert compare("a.png", "--methods", "all", *words, "--json") == 0
    names = [row["method"] for row in json.loads(capsys.readouterr().out)["results"][0]["methods"]]
    # those for transformers alone are named
    assert names == [name for name in fei.methods.available() if fei.methods.describe(name).family != "attention"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["a.png", "--methods", "salience"], "Unknown method 'salience'; did you mean saliency?"),
        (["a.png", "--methods", "zzz*"], "No method matches 'zzz*'"),
        (["a.png", "--protocol", "rice"], "Unknown protocol 'rice'"),
        (["a.png", "--layers", "9"], "The network ran no module named '9'"),
        (["c.png"], "There is no image file 'c.png'"),
    ],
)
def test_wrong_words(place, capsys, words, text):
    assert compare(*words) == 2
    assert text in capsys.readouterr().err
