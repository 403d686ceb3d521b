"""Results do not overwrite each other."""

import json
from pathlib import Path

import pytest
from commands import NETWORK, furnish
from commands import run as fei

pytestmark = pytest.mark.slow

OUT = Path("fei-out")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(furnish(tmp_path, NETWORK, "photo.png", "other/photo.png"))
    return tmp_path


def records():
    return sorted(file.name for file in OUT.glob("*.json"))


def explain(*words):
    assert fei("explain", "photo.png", "--model", "net.py:net", *words) == 0


def test_other_methods_classes_and_seeds_have_names_of_their_own():
    explain("--method", "gradcam")
    first = (OUT / "photo.json").read_bytes()
    explain("--method", "saliency")
    explain("--method", "saliency", "--target", "dark")
    explain("--method", "saliency", "--target", "dark", "--seed", "1")
    expected = ["photo.json", "photo.saliency.dark-2.json", "photo.saliency.dark.json", "photo.saliency.json"]
    assert records() == expected
    assert (OUT / "photo.json").read_bytes() == first
    assert (OUT / "photo.saliency.overlay.png").is_file()


def test_the_same_question_replaces_its_result_and_force_any():
    for _ in range(2):
        explain("--method", "gradcam")
    assert records() == ["photo.json"]
    explain("--method", "saliency", "--force")
    assert records() == ["photo.json"]
    assert json.loads((OUT / "photo.json").read_text(encoding="utf-8"))["method"] == "saliency"


def test_another_image_of_that_name_and_another_network_are_other_questions(folder):
    explain("--method", "gradcam")
    assert fei("explain", "other/photo.png", "--model", "net.py:net", "--method", "gradcam") == 0
    assert records() == ["photo.gradcam.json", "photo.json"]
    (folder / "net.py").write_text(NETWORK.replace("manual_seed(0)", "manual_seed(1)"), encoding="utf-8")
    explain("--method", "gradcam")
    assert len(records()) == 3


def test_what_is_no_result_is_not_replaced():
    OUT.mkdir()
    (OUT / "photo.json").write_text("{}", encoding="utf-8")
    (OUT / "photo.gradcam.overlay.png").write_bytes(b"a picture of mine")
    explain("--method", "gradcam")
    assert (OUT / "photo.json").read_text(encoding="utf-8") == "{}"
    assert (OUT / "photo.gradcam.overlay.png").read_bytes() == b"a picture of mine"
    assert len(list(OUT.glob("photo.gradcam.*.map.npy"))) == 1


def test_comparisons_pages_and_tests_are_kept_too():
    compare = ["compare", "photo.png", "--model", "net.py:net", "--html"]
    for methods in ("gradcam,random", "saliency,random", "gradcam,random"):
        assert fei(*compare, "--methods", methods) == 0
    assert records() == ["photo-2.comparison.json", "photo.comparison.json"]
    assert sorted(page.name for page in OUT.glob("*.html")) == ["explorer-2.html", "explorer.html"]
    for method in ("gradcam", "saliency", "gradcam"):
        assert fei("sanity", "photo.png", "--model", "net.py:net", "--method", method, "--layers", "1") == 0
    assert sorted(file.name for file in OUT.glob("*.sanity.json")) == [
        "photo.saliency.sanity.json",
        "photo.sanity.json",
    ]
