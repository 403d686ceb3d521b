"""Every benchmark at toy size: it runs, its rows have their fields, its tables render. Times are not looked at."""

import importlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "benchmarks"
FIELDS = {
    "step": {"network", "variant", "preset", "ratio", "low", "high", "repeats", "threads"},
    "startup": {"what", "seconds", "ratio", "ratio_low", "ratio_high", "modules", "torch", "beyond"},
    "metrics": {"what", "seconds", "network", "repeats", "threads"},
    "passes": {"protocol", "points", "reported", "together", "apart"},
    "layout": {"network", "seconds", "ratio", "score_difference", "mse_difference", "cosine_difference", "threads"},
    "growth": {
        "axis",
        "size",
        "batch",
        "quantiles",
        "sites",
        "rows",
        "seconds",
        "ratio",
        "work",
        "peak_bytes",
        "threads",
    },
    "peers": {
        "network",
        "photo",
        "method",
        "seconds",
        "fei_seconds",
        "ratio",
        "insertion",
        "deletion",
        "mse",
        "cosine",
    },
}


def started(*words, **environment):
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, env=os.environ | environment, cwd=FOLDER, encoding="utf-8"
    )


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """What `run.py --toy` printed and wrote."""
    path = tmp_path_factory.mktemp("bench") / "toy.json"
    done = started("run.py", "--toy", "--json", path)
    assert done.returncode == 0, done.stderr
    assert not any(
        '"toy"' in file.read_text(encoding="utf-8") for file in (FOLDER / "results").glob("*.jsonl")
    )  # toys leave nothing behind
    return done.stdout, json.loads(path.read_text(encoding="utf-8"))


def test_the_document_says_how_it_was_measured(toy):
    _, document = toy
    assert document["toy"] is True
    assert document["threads"] == 1
    assert set(document["versions"]) == {"torch", "python"}
    assert set(document["parts"]) == set(FIELDS)


@pytest.mark.parametrize("part", FIELDS)
def test_rows_have_their_fields(toy, part):
    rows = toy[1]["parts"][part]
    assert rows
    for row in rows:
        assert set(row) >= FIELDS[part]
        assert all(math.isfinite(value) for value in row.values() if isinstance(value, float))
        assert row.get("threads", 1) == 1


def test_every_table_is_printed(toy):
    printed, _ = toy
    for head in (
        "fresh interpreter",
        "protocol | points per curve",
        "network | seconds",
        "along",
        "`internal_batch",
        "network | method",
    ):
        assert f"| {head}" in printed


def test_peers_are_all_there_and_measured_beside_fei(toy):
    rows = toy[1]["parts"]["peers"]
    assert rows[0]["method"] == "fei"
    assert {"rise", "extremal-perturbation", "scorecam", "smoothgrad", "integrated-gradients", "gradcam"} < {
        row["method"] for row in rows
    }
    assert all(row["ratio"] == pytest.approx(row["seconds"] / row["fei_seconds"]) for row in rows)


def test_the_three_metrics_share_their_forwards(toy):
    """The paper's protocol has 5 levels per curve, the fine one 21; the first and the last image are shared."""
    rows = {row["protocol"]: row for row in toy[1]["parts"]["passes"]}
    assert {name: rows[f"{name}/1"]["reported"] for name in ("fei-paper", "fei-fine", "torchcam")} == {
        "fei-paper": 11,
        "fei-fine": 40,
        "torchcam": 40,
    }
    for row in rows.values():
        assert row["together"] == row["reported"] + 1  # to find the layers
        assert row["together"] < row["apart"]


def test_channels_last_changes_no_number(toy):
    (row,) = toy[1]["parts"]["layout"]
    assert max(row[f"{kind}_difference"] for kind in ("score", "mse", "cosine")) < 1e-5


def test_work_grows_as_the_axes_say(toy):
    rows = {(row["axis"], row[row["axis"]]): row["work"] for row in toy[1]["parts"]["growth"] if row["axis"] != "rows"}
    assert rows["size", 64] == 4
    assert rows["batch", 2] == 2
    assert rows["quantiles", 3] == 3 / 5


def test_command_lines_do_not_load_torch(toy):
    rows = {row["what"]: row for row in toy[1]["parts"]["startup"]}
    assert [rows[what]["torch"] for what in ("import torch", "import fei", "fei --help")] == [True, False, False]


def test_an_unknown_part_is_one_sentence():
    done = started("run.py", "--only", "setp")
    assert done.returncode == 2
    assert "no part 'setp'; choose from step, startup, metrics, growth, peers" in done.stderr


def test_tables_of_the_documentation_are_those_of_the_results():
    done = started("pages.py", "--check")
    assert done.returncode == 0, done.stderr


def test_growth_fits_and_draws(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("FEI_BENCH_RESULTS", str(tmp_path))
    import growth

    rows = [{"work": work, "ratio": 3 * work**0.5} for work in (0.25, 1, 4)]
    assert growth.exponent(rows, "ratio") == pytest.approx(0.5)
    assert math.isnan(growth.exponent([*rows, {"work": 9, "ratio": -0.1}], "ratio"))  # as a busy machine may have it
    assert [growth.share(word) for word in ("first:1/4", "activation")] == [0.25, 1]


def test_what_a_user_with_a_gpu_runs(monkeypatch, capsys):
    monkeypatch.syspath_prepend(FOLDER)
    gpu, kept = importlib.import_module("gpu"), []
    monkeypatch.setattr(gpu, "Results", lambda name: kept)
    gpu.main(["--toy", "--repeats", "1"])
    assert [row["precision"] for row in kept] == ["float32", "bfloat16"]
    assert all(row["images"] > 0 for row in kept)
    assert capsys.readouterr().out.count("| toy |") == 2
    with pytest.raises(SystemExit):
        gpu.main(["--device", "mps" if torch.cuda.is_available() else "cuda"])
    assert "device that torch can reach; name another with --device" in capsys.readouterr().err
