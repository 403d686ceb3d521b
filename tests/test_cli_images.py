"""Folders, patterns and data sets as images of a command."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_cli_compare import compare, place, run  # noqa: F401  # place is a fixture

from fei.cli._common import find_images

pytestmark = pytest.mark.slow


@pytest.fixture
def photos(place):  # noqa: F811
    """Two classes of two photographs, one of which is cut short, with equal names in both."""
    rng = np.random.default_rng(1)
    for kind in ("cat", "dog"):
        (place / "photos" / kind).mkdir(parents=True)
        for name in ("1", "2"):
            pixels = rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / "photos" / kind / f"{name}.png")
    broken = place / "photos" / "dog" / "2.png"
    broken.write_bytes(broken.read_bytes()[:200])
    return place


def test_what_words_stand_for(photos):
    assert len(find_images(["photos"], None, 0)) == 4
    assert find_images(["a.png", "photos/cat/*.png", "a.png"], None, 0) == [
        Path("a.png"),
        Path("photos/cat/1.png"),
        Path("photos/cat/2.png"),
    ]
    assert len(find_images(["imagefolder:photos"], 3, 0)) == 3
    assert find_images(["missing.png"], None, 0) == [Path("missing.png")]


def test_explain_a_folder_reports_what_it_cannot_read(photos, capsys):
    assert run("explain", "photos", "--model", "net.py:net", "--method", "saliency", "--out", "out", "--json") == 1
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert len(document["results"]) == 3
    assert len({result["files"]["map"] for result in document["results"]}) == 3
    assert "2.png" in document["failures"][0]["error"]
    assert "1 of 4 images could not be explained." in captured.err


def test_compare_a_data_set(photos, capsys):
    assert compare("imagefolder:photos", "--methods", "saliency", "--json") == 1
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["results"]) == 3
    assert "1 of 4 images could not be read." in captured.err
    assert len(list((photos / "out").glob("*.comparison.json"))) == 3


def test_bad_words(photos, capsys):
    assert run("explain", "imagenett:photos", "--model", "net.py:net") == 2
    assert "did you mean imagenet:DIR?" in capsys.readouterr().err
    (photos / "empty").mkdir()
    assert run("explain", "empty", "--model", "net.py:net") == 1
    assert "empty" in capsys.readouterr().err
