"""The record of an explanation, and the page to print: enough for somebody who was not there."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import NETWORK, furnish
from commands import run as fei
from PIL import Image

from fei.models.identity import source_digests, weights_digest
from fei.report.drawing import colorize, place
from fei.report.sheet import Check, pdf_bytes, sheet
from fei.service.sheet import checks

OUT = Path("fei-out")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(furnish(tmp_path, NETWORK, "photo.png", size=(20, 40)))
    return tmp_path


def explain(*more):
    assert fei("explain", "photo.png", "--model", "net.py:net", "--method", "gradcam", *more) == 0
    return json.loads((OUT / "photo.json").read_text(encoding="utf-8"))


def test_the_record_tells_which_weights_code_machine_and_time(folder):
    before = datetime.now(UTC).replace(microsecond=0)
    record = explain()
    assert record["network"]["source"] == {"net.py": hashlib.sha256((folder / "net.py").read_bytes()).hexdigest()}
    assert len(record["network"]["weights"]) == 64
    assert before <= datetime.fromisoformat(record["made"]) <= datetime.now(UTC)
    assert record["versions"].keys() >= {"fei", "torch", "python", "numpy", "pillow"}
    assert record["hardware"].keys() >= {"machine", "processors", "device", "instructions"}


def test_a_digest_of_weights_is_about_their_names_types_shapes_and_values():
    def net():
        layer = torch.nn.Linear(2, 3)
        torch.nn.init.ones_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        return layer

    same = weights_digest(net())
    assert weights_digest(net()) == same
    # by hand: each name, a zero byte, type and shape, a zero byte, the values
    content = b"bias\0torch.float32 (3,)\0" + np.zeros(3, np.float32).tobytes()
    content += b"weight\0torch.float32 (3, 2)\0" + np.ones((3, 2), np.float32).tobytes()
    assert same == hashlib.sha256(content).hexdigest()
    other = net()
    with torch.no_grad():
        other.weight[0, 0] = 1.0000001
    assert weights_digest(other) != same
    assert weights_digest(net().double()) != same
    assert source_digests(net()) == {}


def test_reproduce_names_what_changed_and_weights_first(folder, capsys):
    explain()
    assert fei("reproduce", "fei-out/photo.json", "--trust-code") == 0
    changed = (folder / "net.py").read_text(encoding="utf-8").replace("manual_seed(0)", "manual_seed(1)")
    (folder / "net.py").write_text(changed, encoding="utf-8")
    capsys.readouterr()
    assert fei("reproduce", "fei-out/photo.json", "--trust-code") == 1
    said = capsys.readouterr().out
    assert "the conditions differ: weights " in said
    assert said.index("weights ") < said.index("source of net.py ")
    assert fei("reproduce", "fei-out/photo.json", "--trust-code", "--json") == 1
    assert list(json.loads(capsys.readouterr().out)["conditions"]) == ["weights", "source of net.py"]


def test_a_map_is_placed_where_the_network_looked():
    photograph = Image.new("RGB", (8, 6), (10, 20, 30))
    attribution = np.array([[0.0, 1.0], [1.0, 0.0]])
    result = place(photograph, (2, 1, 4, 3), attribution, opacity=1.0)
    assert result.shape == (6, 8, 3)
    assert np.array_equal(result[1:3, 2:4], colorize(attribution))
    outside = result.copy()
    outside[1:3, 2:4] = (10, 20, 30)
    assert (outside == (10, 20, 30)).all()


def test_the_page_says_what_the_map_claims_and_what_was_checked(folder, monkeypatch):
    pages = []
    monkeypatch.setattr("fei.service.sheet.pdf_bytes", lambda page: pages.append(page) or pdf_bytes(page))
    record = explain("--pdf", "--stability")
    content = (OUT / "photo.sheet.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert content.count(b"/Type /Page ") == 1
    said = "\n".join(text.get_text() for text in pages[0].texts)
    assert "The half of the pixels that the map ranks first keeps" in said
    for word in ("passed", record["network"]["weights"], record["image"]["sha256"], record["prediction"]["label"]):
        assert word in said.replace("\n", "")
    digest = hashlib.sha256((OUT / "photo.json").read_bytes()).hexdigest()
    assert digest in said.replace("\n", "")
    explain("--stability")  # a page of an earlier run does not stay behind
    assert not (OUT / "photo.sheet.pdf").exists()


@pytest.mark.parametrize(("left", "passed"), [(0.996, False), (0.5, True)])
def test_what_reads_as_equal_is_not_told_to_be_more(left, passed):
    ends = {"insertion": [1.0, 1.0], "deletion": [1.0, 2 * left - 1]}  # half way: 1 and `left`
    fractions = torch.tensor([0.0, 1.0])
    curves = {name: SimpleNamespace(fractions=fractions, scores=torch.tensor([two])) for name, two in ends.items()}
    found = SimpleNamespace(evaluation=SimpleNamespace(**curves))
    made = checks(found, {"notes": [], "evidence": None, "stability": None})
    (more,) = [check for check in made if check.what == "it keeps more than the other half"]
    assert more.passed is passed
    assert more.found == f"1.00 against {left:.2f}"


def test_a_page_is_the_same_for_the_same_content():
    photograph, attribution = Image.new("RGB", (40, 20)), np.eye(4)
    made = [Check("a", True, "b"), Check("c", False, "d $x$"), Check("e", None, "f")]
    words = {"headline": "h", "claim": "c", "checks": made, "facts": {"k": "v"}, "unit": "u"}
    first, second = (pdf_bytes(sheet(photograph, (10, 0, 30, 20), attribution, **words)) for _ in range(2))
    assert first == second
