"""What is said about each method, and options as words on the command line."""

import json

import pytest
from networks import pictures
from test_cli_compare import compare, place, run  # noqa: F401  # place is a fixture
from test_methods import network_for

import fei
from fei.errors import InputError
from fei.methods import Option, describe
from fei.service.request import read_options

pytestmark = pytest.mark.slow

every_method = pytest.mark.parametrize("name", fei.methods.available())


@every_method
def test_every_option_is_described(name):
    entry = describe(name)
    for option in entry.options:
        assert option.help, option.name
        assert option.type != "Any", option.name


@every_method
def test_every_method_has_a_source_a_cost_and_words_on_its_licence(name):
    entry = describe(name)
    assert entry.source
    assert entry.cost
    if entry.family != "chance" and not name.startswith("fei"):
        assert any(words in entry.documentation for words in ("captum (BSD-3)", "Written from the"))
        assert any(year in entry.documentation for year in map(str, range(2013, 2026)))


@pytest.mark.parametrize(
    "name", [n for n in fei.methods.available() if describe(n).cost.replace(" + ", "").isdecimal()]
)
def test_the_cost_is_what_is_said(name):
    """Backward rows to the row, but for two that check what FEI folds; forward rows but for a few that look around.

    Those of FEI include the recording of the original and the scores of the final masks, five rows each.
    """
    model = network_for(name)
    options = {"cell": 2, "sigma": 4.0, "steps": 20} if name == "extremal-perturbation" else {}
    options |= {"segments": 6} if name == "kernel-shap" else {"window": 2, "stride": 1} if name == "occlusion" else {}
    method = fei.methods.create(name, **options)
    _, cost = fei.metrics.measure_cost(model, lambda: method(model, pictures(1), 1))
    forwards, backwards = map(int, describe(name).cost.split(" + "))
    if name == "extremal-perturbation":  # as many steps as there are by default take long
        forwards, backwards = (rows * 20 // 800 for rows in (forwards, backwards))
    if name == "occlusion":  # one pass a window: 11 × 15 here, 13 × 13 in a photograph
        forwards = 11 * 15 + 1
    optimises = describe(name).family == "optimisation"
    assert cost.backwards == backwards + (2 if optimises else 0)
    assert 0 <= cost.forwards - forwards <= (7 + 10 if optimises else 5 + 8)


@every_method
def test_config_is_plain_and_complete(name):
    config = fei.methods.create(name).config  # type: ignore[attr-defined]
    assert json.loads(json.dumps(config)) is not None
    # than 0.1: results from before keep their keys
    later = {"contrast", "focus", "prior", "smooth", "coarse", "tries", "reference"}
    assert {option.name for option in describe(name).options} - {"model"} - later <= set(config)
    assert later & set(config) == (later - {"contrast", "coarse", "tries"} if name == "fei" else set())
    if describe(name).family != "chance" and name != "attention-rollout":
        assert config["score"] in {"logit", "softmax"}


def test_config_tells_options_apart():
    plain, other = (fei.methods.create("gradcam", score=score).config for score in ("logit", "softmax"))  # type: ignore[attr-defined]
    assert plain != other
    assert fei.methods.create("fei-vm", preset="paper").config["steps"] == 100  # type: ignore[attr-defined]
    assert fei.methods.create("captum.attr:Saliency", abs=False).config == {  # type: ignore[attr-defined]
        "source": "captum.attr:Saliency",
        "options": {"abs": "False"},
    }


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "5", 5),
        ("float", ".5", 0.5),
        ("float", "1e-3", 1e-3),
        ("bool", "True", True),
        ("str | None", "none", None),
        ("str | None", "features.3", "features.3"),
        ("str | None", "4", "4"),
        ("Sequence[float]", "0.1, .3", [0.1, 0.3]),
        ("Sequence[float]", "[0.1, 0.3]", [0.1, 0.3]),
        ("Sequence[float] | None", ".5", [0.5]),
        ("int | tuple[int, int] | None", "4,8", [4, 8]),
        ("str", "mean", "mean"),
        ("Any", "7", 7),
    ],
)
def test_words_become_values(kind, text, value):
    parsed = Option("x", kind, None, "").parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_options_go_to_the_methods_that_take_them():
    entries = [describe(name) for name in ("fei-vm", "rise", "gradcam")]
    assert read_options(["steps=3", "rise.samples=7", "score=softmax", "gradcam.score=logit"], entries) == {
        "fei-vm": {"steps": 3, "score": "softmax"},
        "rise": {"samples": 7, "score": "softmax"},
        "gradcam": {"score": "logit"},
    }
    with pytest.raises(InputError, match="None of the methods has an option 'grid_size'; see 'fei methods NAME'"):
        read_options(["grid_size=3"], entries)
    with pytest.raises(InputError, match="The option 'steps' has no value; write NAME=VALUE"):
        read_options(["steps"], entries)


def test_explain_records_options_and_how_to_repeat_them(place, capsys):  # noqa: F811
    words = ("a.png", "--model", "net.py:net", "--method", "smoothgrad", "-o", "samples=3", "--option", "score=softmax")
    assert run("explain", *words, "--out", "out", "--json") == 0
    record = json.loads(capsys.readouterr().out)["results"][0]
    assert record["config"]["settings"] == {"samples": 3, "noise": 0.15, "score": "softmax"}
    assert "--option samples=3 --option score=softmax" in record["command"]
    assert run("explain", *words, "-o", "sample=3", "--out", "out") == 2
    assert "method 'smoothgrad' has no option 'sample'; it takes samples, noise, score" in capsys.readouterr().err
    assert run("explain", *words, "-o", "samples=0", "--out", "out") == 2
    assert "`samples` must be a whole number of at least 1; got 0" in capsys.readouterr().err


def test_foreign_methods_by_name_in_explain_and_compare(place, capsys):  # noqa: F811
    foreign = "captum.attr:InputXGradient"
    assert run("explain", "a.png", "--model", "net.py:net", "--method", foreign, "--out", "out", "--json") == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["config"]["settings"]["source"] == foreign
    assert compare("a.png", "--methods", f"{foreign},torchcam.methods:LayerCAM,own.py:maps", "--json") == 2
    assert "own" in capsys.readouterr().err
    assert compare("a.png", "--methods", f"{foreign},torchcam.methods:LayerCAM,saliency", "--json") == 0
    methods = json.loads(capsys.readouterr().out)["results"][0]["methods"]
    assert [row["method"] for row in methods] == [foreign, "torchcam.methods:LayerCAM", "saliency"]


def test_listing_and_description(capsys):
    assert run("methods", "--json") == 0
    listed = json.loads(capsys.readouterr().out)["methods"]
    assert [entry["name"] for entry in listed] == fei.methods.available()
    rise = next(entry for entry in listed if entry["name"] == "rise")
    assert (rise["family"], rise["cost"]) == ("perturbation", "4000 + 0")
    assert rise["options"][0] == {"name": "samples", "type": "int", "default": 4000, "help": rise["options"][0]["help"]}
    assert run("methods", "gradcam++") == 0
    text = capsys.readouterr().out
    assert "Σ_ij α·ReLU(g)" in text
    assert "relu" in text
    assert run("methods", "gradcamm") == 2
    assert "did you mean gradcam" in capsys.readouterr().err
