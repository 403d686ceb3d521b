"""What earlier versions wrote still opens, still means what it meant, and is never computed again."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run as fei

from fei import Explanation
from fei.bench import Store
from fei.bench.store.exchange import diff

pytestmark = pytest.mark.slow

STORED = Path(__file__).parent / "stored"
MADE_WITH = "2.13"  # the torch of 0.1's results; another one may draw and print otherwise
# Hard clipping amplifies round-off: without vector instructions a rank moved by .0104.
CLOSE = 0.02


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A copy of what version 0.1 wrote, and the folder it was written from."""
    shutil.copytree(STORED / "0.1", tmp_path / "0.1")
    monkeypatch.chdir(tmp_path / "0.1")
    return tmp_path / "0.1"


def printed(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_run_opens_and_is_complete(place, capsys):
    assert fei("bench", "status", "run", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["done"], status["failed"], status["pending"]) == (32, 0, 0)
    assert fei("bench", "report", "run", "--html") == 0
    assert (place / "run" / "report" / "report.html").is_file()
    with Store.open(place / "run", readonly=True) as store:
        assert len(store.rows("SELECT * FROM results")) == 472
        (key,) = store.rows("SELECT unit FROM plan_units WHERE kind = 'map' ORDER BY 1 LIMIT 1")[0]
        assert store.map(key).shape == (24, 24)


def test_the_same_work_has_the_same_key(place, capsys):
    """Nothing is computed again, neither in the run itself nor in a new one that takes over an export."""
    if not torch.__version__.startswith(MADE_WITH):
        pytest.skip(f"fingerprints of networks are those of torch {MADE_WITH}")
    assert fei("bench", "run", "plan.toml", "--out", "run", "--json") == 0
    assert (lines := printed(capsys))["computed"] == 0, lines
    maps = "keep_maps = true\n"  # which exports have not
    (place / "plan.toml").write_text(
        (place / "plan.toml").read_text(encoding="utf-8").replace(maps, ""), encoding="utf-8"
    )
    for file in ("results.csv", "results.parquet", "run"):
        assert fei("bench", "run", "plan.toml", "--out", f"new {file}", "--reuse", file, "--json") == 0
        assert (lines := printed(capsys))["computed"] == 0, lines
        assert lines["skipped"] == 32


def test_the_same_work_has_the_same_result(place, capsys):
    assert fei("bench", "run", "plan.toml", "--out", "again", "--threads", "1", "--json") == 0
    assert printed(capsys)["computed"] == 32
    with Store.open(place / "run", readonly=True) as then, Store.open(place / "again", readonly=True) as now:
        found = diff(then, now)
    assert (found.only_first, found.only_second) == (0, 0)
    assert max((abs(row["first"] - row["second"]) for row in found.largest), default=0) < CLOSE


@pytest.mark.parametrize("file", ["explained/a.json", "explained/b.json", "cam/a.json", "unit.json"])
def test_a_record_is_reproduced(place, capsys, file):
    assert_reproduced(file, capsys)


def assert_reproduced(result, capsys):
    """The same bits, or, on another processor, what hard clipping leaves of them."""
    fei("reproduce", result, "--trust-code", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] in ("identical", "within tolerance"), found


def test_a_unit_of_a_run_is_reproduced(place, capsys):
    with Store.open(place / "run", readonly=True) as store:
        keys = [key for (key,) in store.rows("SELECT min(unit) FROM plan_units GROUP BY kind ORDER BY kind")]
    for key in keys:
        assert_reproduced(f"run#{key}", capsys)


def test_an_explanation_is_loaded(place):
    for name in "ab":
        explanation = Explanation.load(place / "explained" / f"{name}.explanation.safetensors")
        np.testing.assert_array_equal(explanation.maps[0, 0].numpy(), np.load(place / "explained" / f"{name}.map.npy"))


def test_a_comparison_is_made_again(place, capsys):
    then = json.loads((place / "compared" / "a.comparison.json").read_text(encoding="utf-8"))
    words = ["--model", "net.py:net", "--methods", "fei-vm,gradcam", "--steps", "3", "--out", "new", "--json"]
    words += ["--protocol", then["protocol"]["id"]]  # another one is the default now
    assert fei("compare", "photos/a.png", *words) == 0
    (now,) = json.loads(capsys.readouterr().out)["results"]
    assert now.keys() >= then.keys()
    for old, new in zip(then["methods"], now["methods"], strict=True):
        assert new.keys() >= old.keys()
        for name in ("insertion", "deletion", "mse", "cosine", "ties"):
            assert new[name] == pytest.approx(old[name], abs=CLOSE)
