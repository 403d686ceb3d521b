"""The command line in one mould: options mean the same everywhere, and results are told in words."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import NETWORK, furnish, run

import fei

pytestmark = pytest.mark.slow

OUT = Path("fei-out")
FLAGS = (
    "--json",
    "--html",
    "--force",
    "--pdf",
    "--stability",
    "--quiet",
    "--debug",
    "--keep-maps",
    "--whole",
    "--quick",
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(furnish(tmp_path, NETWORK, *(f"{name}.png" for name in "abcde")))
    return tmp_path


def helped(command, capsys):
    assert run(*command.split(), "--help") == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["explain", "compare", "figure", "sanity", "trust"])
def test_commands_on_images_share_their_options(command, capsys):
    said = helped(command, capsys)
    for option in ("--reference", "--option", "--sample", "--steps", "--preset", "--seed", "--batch-size", "--device"):
        assert option in said, option
    assert "Image files, folders, patterns" in said


def test_the_black_image_test_takes_options_of_methods(capsys):
    words = ["black-image", "--model", "net.py:net", "--methods", "fei-none", "--trials", "2", "--json"]
    assert run(*words, "-o", "steps=1") == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["config"]["steps"] == 1


@pytest.mark.parametrize("command", ["explain", "compare", "finetune", "bench run", "bench preset", "serve"])
def test_flags_are_shown_as_flags(command, capsys):
    for line in helped(command, capsys).splitlines():
        if any(flag in line.split() for flag in FLAGS):
            assert "bool" not in line.lower(), line


def test_a_reference_and_several_images_for_sanity(capsys):
    words = ["sanity", "a.png", "b.png", "--model", "net.py:net", "--method", "integrated-gradients", "--layers", "1"]
    assert run(*words, "--reference", "black", "-o", "steps=5", "--json") == 0
    both = json.loads(capsys.readouterr().out)["results"]
    assert [one["image"]["path"] for one in both] == ["a.png", "b.png"]
    assert "--reference black" in both[0]["command"]
    assert "--option steps=5" in both[0]["command"]
    assert run(*words, "--reference", "white", "-o", "steps=5", "--json", "--out", "white") == 0
    other = json.loads(capsys.readouterr().out)["results"]
    assert other[0]["similarity"] != both[0]["similarity"]


def test_methods_show_real_defaults(capsys):
    assert run("methods", "fei", "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)["methods"]
    defaults = {option["name"]: option["default"] for option in entry["options"]}
    settings = fei.methods.create("fei").config  # type: ignore[attr-defined]
    for name in ("steps", "lr", "quantiles", "constraint", "focus", "prior", "smooth", "reference"):
        assert defaults[name] is not None
        assert defaults[name] == (list(settings[name]) if isinstance(settings[name], tuple) else settings[name])
    assert run("methods", "fei") == 0
    assert "color+clouds:resample" in capsys.readouterr().out


def test_compare_keeps_maps_and_prints_intervals_and_notes(capsys):
    words = ["compare", *(f"{name}.png" for name in "abcde"), "--model", "net.py:net", "--methods", "gradcam,random"]
    assert run(*words, "--keep-maps") == 0
    said = capsys.readouterr().out
    kept = np.load(OUT / "b.gradcam.map.npy")
    model = fei.models.load("net.py:net")
    expected = fei.methods.create("gradcam")(model, model.preprocess("b.png")[None])
    assert np.array_equal(kept, expected[0, 0].numpy())
    assert "Means over 5 images, with 95 % bootstrap intervals" in said
    means = said.partition("Means over")[2]
    values = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(OUT.glob("*.comparison.json"))]
    insertion = [next(m for m in one["methods"] if m["method"] == "gradcam")["insertion"] for one in values]
    low, high = fei.metrics.bootstrap_interval(insertion)
    assert f"[{low:.3f}, {high:.3f}]" in means
    assert "Note: The network sees RGB in [0, 1] as it is" in " ".join(said.split())
    assert "Passes: forward + backward" in said


def test_sanity_and_black_image_end_in_a_verdict(capsys):
    assert run("sanity", "a.png", "--model", "net.py:net", "--method", "edges") == 0
    said = capsys.readouterr().out
    assert "The map hardly changes with its layers: its mean rank correlation with the original is 1.00." in said
    assert run("black-image", "--model", "net.py:net", "--methods", "fei-vm,fei-none", "--trials", "3") == 0
    said = capsys.readouterr().out
    for method in ("fei-vm", "fei-none"):
        assert any(f"{method} {words}" in said for words in ("finds no evidence", "makes evidence up", "not clear")), (
            said
        )


def test_numbers_of_a_table_are_never_cut(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "50")
    words = ["compare", "a.png", "--model", "net.py:net", "--methods", "gradcam,smooth-noise"]
    assert run(*words) == 0
    said = capsys.readouterr().out
    (row,) = [line for line in said.splitlines() if "smooth-noise (control)" in line]
    (one,) = json.loads((OUT / "a.comparison.json").read_text(encoding="utf-8"))["methods"][1:]
    assert f"{one['insertion']:.3f}" in row
    assert f"{one['forwards']:.0f} + {one['backwards']:.0f}" in row
    assert "relevant cosine" in said


def test_a_method_from_elsewhere_is_described_only_where_it_is(capsys):
    assert run("methods", "captum.attr:Saliency") == 0
    assert run("methods", "mine.py:mine") == 2
    assert "There is no method file 'mine.py'" in capsys.readouterr().err
