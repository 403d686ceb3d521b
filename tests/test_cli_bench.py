"""``fei bench`` and ``fei reproduce`` from end to end, on a network of two convolutions."""

import json

import commands
import numpy as np
import pytest
import torch
from commands import furnish
from commands import run as fei
from PIL import Image

from fei.bench.engine import runner
from fei.bench.plan import parse_plan
from fei.bench.store import Store
from fei.cli._bench_drive import in_words, shown_progress
from fei.cli.reproduce import Repetition

pytestmark = pytest.mark.slow

NETWORK = commands.NETWORK.replace("def net():", "def net():\n    print('loaded')  # is no result")
PLAN = """
name = "tiny"
retries = 0
[[pairs]]
model = "net.py:net"
data = "photos"
name = "tiny"
[[methods]]
name = "fei-vm"
label = "FEI"
options = { steps = 2 }
[[methods]]
name = "saliency"
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    return furnish(tmp_path, NETWORK, "photos/a.png", "photos/b.png")


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def keys(folder, kind="map"):
    with Store.open(folder, readonly=True) as store:
        return [key for (key,) in store.rows("SELECT unit FROM plan_units WHERE kind = ? ORDER BY 1", (kind,))]


def test_run_again_and_resume_compute_only_what_is_missing(place, capsys):
    assert fei("bench", "run", "plan.toml") == 0
    printed = capsys.readouterr()
    assert "runs/plan: 4 units computed" in printed.out
    assert "loaded" not in printed.out
    assert "fei bench report runs/plan" in printed.out
    assert fei("bench", "run", "plan.toml", "--json") == 0
    assert last_line(capsys) | {"seconds": 0} == {
        "schema": 1, "run": "runs/plan", "computed": 0, "skipped": 4, "failed": 0, "seconds": 0, "reasons": [],
    }  # fmt: skip
    (place / "more.toml").write_text(PLAN + '[[methods]]\nname = "random"\n', encoding="utf-8")
    assert fei("bench", "resume", "runs/plan", "--plan", "more.toml", "--json") == 0
    assert last_line(capsys)["computed"] == 2
    assert (place / "runs" / "plan" / "plan.toml").read_text(encoding="utf-8") == (place / "more.toml").read_text(
        encoding="utf-8"
    )
    assert fei("bench", "status", "runs/plan") == 0
    assert "tiny: 6 of 6 units done, 0 failed" in capsys.readouterr().out
    assert fei("bench", "status", "runs/plan", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert status["methods"][2] == {"method": "random", "units": 2, "done": 2, "failed": 0}


def test_failed_units_are_told_and_tried_again(place, capsys):
    good = (place / "photos" / "b.png").read_bytes()
    (place / "photos" / "b.png").write_bytes(good[:100])
    assert fei("bench", "run", "plan.toml", "--out", "r") == 1
    told = capsys.readouterr()
    assert "r: 2 units computed" in told.out
    assert "2 units failed:" in told.err
    assert "2 × " in told.err
    assert "b.png" in told.err
    assert "fei bench resume r --retry-failed" in told.err
    assert fei("bench", "resume", "r", "--json") == 1
    assert last_line(capsys)["failed"] == 2
    (place / "photos" / "b.png").write_bytes(good)
    assert fei("bench", "resume", "r", "--retry-failed", "--json") == 0
    assert last_line(capsys)["computed"] == 2


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_export_is_as_good_as_a_run(place, capsys, ending):
    assert fei("bench", "run", "plan.toml", "--out", "first") == 0
    assert fei("bench", "export", "first", f"first.{ending}") == 0
    assert f"first.{ending}: " in capsys.readouterr().out
    assert fei("bench", "run", "plan.toml", "--out", "second", "--reuse", f"first.{ending}", "--json") == 0
    summary = last_line(capsys)
    assert (summary["computed"], summary["skipped"]) == (0, 4)
    assert fei("bench", "diff", "first", "second") == 0
    assert "The runs agree in all " in capsys.readouterr().out
    with Store.open(place / "first", readonly=True) as first, Store.open(place / "second", readonly=True) as second:
        assert first.done_groups() == second.done_groups()
        sql = "SELECT * FROM curves ORDER BY unit, protocol, name"
        assert first.rows(sql) == second.rows(sql) != []


def test_units_that_lack_scores_are_not_told_to_be_all(place, capsys):
    assert fei("bench", "run", "plan.toml", "--out", "first") == 0
    assert fei("bench", "status", "first") == 0
    assert "Go on with" not in capsys.readouterr().out
    more = parse_plan(PLAN + '[metrics]\nprotocols = ["fei-paper", "torchcam"]\n')
    runner.run(more, "second", reuse=["first"], choose=lambda units: iter(()))  # as if broken off after taking over
    assert fei("bench", "status", "second") == 0
    told = capsys.readouterr().out
    assert "4 of 4 units done" in told
    assert "Some of them may lack scores that the plan asks for." in told
    assert "Go on with:  fei bench resume second" in told
    assert fei("bench", "resume", "second", "--json") == 0
    assert last_line(capsys)["computed"] == 4
    assert fei("bench", "status", "second", "--json") == 0
    assert json.loads(capsys.readouterr().out)["complete"] is True


def test_diff_and_merge(place, capsys):
    (place / "other.toml").write_text(PLAN.replace("steps = 2", "steps = 3"), encoding="utf-8")
    (place / "more.toml").write_text(PLAN.replace("saliency", "gradcam"), encoding="utf-8")
    for name in ("plan", "other", "more"):
        assert fei("bench", "run", f"{name}.toml", "--out", name) == 0
    capsys.readouterr()
    assert fei("bench", "diff", "plan", "other") == 1
    told = capsys.readouterr().out
    assert "from another computation by the same names" in told
    assert "tiny, FEI, insertion, fei-paper/1" in told
    assert "saliency" not in told
    assert fei("bench", "diff", "plan", "more", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["differing"] == 0
    assert found["only_first"] == found["only_second"] > 0
    assert fei("bench", "merge", "plan", "more", "--out", "both") == 0
    assert "both: 6 units done, 0 failed" in capsys.readouterr().out
    assert fei("bench", "resume", "both", "--json") == 0
    assert last_line(capsys)["computed"] == 0
    assert fei("bench", "merge", "plan", "other", "--out", "neither") == 2
    assert "mean different methods by 'FEI'" in capsys.readouterr().err


def test_report_and_presets(coarse_reports, place, capsys):
    assert fei("bench", "preset") == 0
    assert "table-external" in capsys.readouterr().out
    words = ("bench", "preset", "figure-1", "--quick", "--model", "net.py:net", "--data", "photos/a.png")
    assert fei(*words) == 0
    text = capsys.readouterr().out
    assert fei(*words, "--out", "figure.toml") == 0
    assert (place / "figure.toml").read_text(encoding="utf-8") == text
    assert "fei bench run figure.toml" in capsys.readouterr().out
    assert fei(*words, "--out", "figure.toml") == 2
    assert "is there already" in capsys.readouterr().err
    assert fei("bench", "run", "figure.toml", "--out", "r", "--threads", "1") == 0
    assert fei("bench", "report", "r") == 0
    assert "r/report/report.md" in capsys.readouterr().out
    assert "FEI-VM [fast]" in (place / "r" / "report" / "report.md").read_text(encoding="utf-8").replace("\\", "")


def test_ctrl_c_says_how_to_go_on(place, capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run", stop)
    assert fei("bench", "run", "plan.toml", "--out", "my run") == 130
    line = "Interrupted; what is computed is kept, go on with: fei bench resume 'my run'"
    assert capsys.readouterr().err.splitlines() == [line]
    assert fei("bench", "run", "plan.toml", "--out", "my run", "--json") == 130
    assert last_line(capsys) == {"error": line}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "none.toml"], "The plan 'none.toml' cannot be read"),
        (["run", "plan.toml", "--engine", "steam"], "There is no engine 'steam'; choose one of local"),
        (["run", "plan.toml", "--device", "abacus"], "abacus"),
        (["run", "plan.toml", "--reuse", "nothing"], "nothing"),
        (["resume", "none"], "There is no run in 'none'"),
        (["status", "none"], "There is no run in 'none'"),
        (["report", "none"], "There is no run in 'none'"),
        (["export", "none", "x.csv"], "There is no run in 'none'"),
        (["diff", "none", "none"], "There is no run in 'none'"),
        (["preset", "table-7"], "There is no preset 'table-7'"),
        (["preset", "sanity", "--model", "resnet50"], "There is no model 'resnet50'"),
        (["fly"], "No such command 'fly'"),
    ],
)
def test_wrong_words(place, capsys, words, told):
    assert fei("bench", *words) == 2
    assert told in capsys.readouterr().err
    assert fei("bench", *words, "--json") == 2
    assert told in last_line(capsys).get("error", told)


def test_progress_for_machines_and_without_a_terminal(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    pace = runner.Pace(10.0, 0.5, 3700.0)
    for as_json in (True, False):
        with shown_progress(as_json) as show:
            for second in range(61):
                now[0] += 1
                show(second, 1, 100, pace)
    printed = capsys.readouterr()
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert lines[0] == {"done": 0, "failed": 1, "total": 100, "rate": 0.5, "seconds_left": 3700.0}
    assert len(lines) == 61
    assert printed.err.splitlines() == [
        f"{done} of 100 units, 1 failed, one in 2 s, 1 h 1 min left" for done in (29, 59)
    ]
    assert [in_words(seconds) for seconds in (0, 59.6, 61, 90061)] == ["0 s", "1 min", "1 min 1 s", "1 d 1 h"]


def test_a_unit_comes_out_again(place, capsys):
    (place / "plan.toml").write_text(
        PLAN + "[black_image]\ntrials = 2\n[sanity]\nimages = 1\nlayers = 2\n", encoding="utf-8"
    )
    assert fei("bench", "run", "plan.toml", "--out", "r") == 0
    capsys.readouterr()
    for kind in ("map", "black-image", "sanity"):
        assert fei("reproduce", f"r#{keys(place / 'r', kind)[0]}") == 0
        assert "the same bits." in capsys.readouterr().out
    key = keys(place / "r")[0]
    assert fei("bench", "show", "r", key[:10]) == 0
    document = capsys.readouterr().out
    assert json.loads(document)["unit"] == key
    (place / "unit.json").write_text(document, encoding="utf-8")
    assert fei("reproduce", "unit.json", "--json") == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "identical"
    assert fei("bench", "show", "r", "0" * 32) == 2
    assert "has no unit '000" in capsys.readouterr().err


def test_a_unit_that_comes_out_otherwise(place, capsys):
    (place / "plan.toml").write_text(PLAN.replace("retries = 0", "keep_maps = true"), encoding="utf-8")
    assert fei("bench", "run", "plan.toml", "--out", "r") == 0
    key = keys(place / "r")[0]
    with Store.open(place / "r") as store, store._transaction() as sql:
        sql.execute("UPDATE scores SET value = value + 0.01 WHERE metric = 'insertion'")
    assert fei("reproduce", f"r#{key}") == 1
    assert "although nothing that is recorded differs" in capsys.readouterr().out
    with Store.open(place / "r") as store, store._transaction() as sql:
        sql.execute("UPDATE units SET threads = threads + 1")
    threads = torch.get_num_threads()
    assert fei("reproduce", f"r#{key}", "--threads", str(threads)) == 0
    told = capsys.readouterr().out
    assert "within tolerance (rank correlation of the maps 1.0000; insertion, fei-paper/1" in told
    assert f"the conditions differ: threads {threads + 1}, now {threads}." in told
    Image.new("RGB", (20, 20)).save(place / "photos" / "a.png")
    Image.new("RGB", (20, 20)).save(place / "photos" / "b.png")
    assert fei("reproduce", f"r#{key}") == 1
    assert "cannot be computed as it was" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["fei-vm", "rise"])
def test_an_explanation_comes_out_again(place, capsys, method):
    option = ["--steps", "2"] if method == "fei-vm" else ["--option", "samples=20"]
    words = ["explain", "photos/a.png", "--model", "net.py:net", "--method", method, "--target", "1", *option]
    assert fei(*words, "--seed", "7", "--quiet") == 0
    threads = torch.get_num_threads()
    assert fei("reproduce", "fei-out/a.json") == 0
    assert "fei-out/a.json: the same bits." in capsys.readouterr().out
    assert torch.get_num_threads() == threads
    record = json.loads((place / "fei-out" / "a.json").read_text(encoding="utf-8"))
    for part in ("network", "preprocessing", "hardware"):
        (place / "fei-out" / "wrong.json").write_text(json.dumps(record | {part: 1.5}), encoding="utf-8")
        assert fei("reproduce", "fei-out/wrong.json") == 1
        assert f"has 1.5 for '{part}'" in capsys.readouterr().err
    values = np.load("fei-out/a.map.npy")
    np.save("fei-out/a.map.npy", -values)
    assert fei("reproduce", "fei-out/a.json", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "different"
    assert document["spearman"] == pytest.approx(-1)
    Image.new("RGB", (20, 20)).save("photos/a.png")
    assert fei("reproduce", "fei-out/a.json") == 1
    assert "is not the one that the record tells of" in capsys.readouterr().err


def test_what_is_no_result(place, capsys):
    (place / "list.json").write_text("[]", encoding="utf-8")
    (place / "other.json").write_text('{"command": "fei sanity a.png"}', encoding="utf-8")
    for file, told in {
        "none.json": "cannot be read",
        "net.py": "is no JSON",
        "list.json": "is no record",
        "other.json": "is no record of 'fei explain' or 'fei bench show'",
        "none#123456": "There is no run in 'none'",
    }.items():
        assert fei("reproduce", file) == 2
        assert told in capsys.readouterr().err


RECORD = {
    "command": "fei explain a.png --model net.py:tiny --method saliency --seed 0", "image": {"sha256": ""},
    "config": {}, "versions": {}, "target": {"index": 0}, "seed": 0,
}  # fmt: skip
UNIT = {"unit": "k", "kind": "map", "status": "done", "plan": "", "scores": [], "versions": {}, "map": None}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (RECORD | {"versions": []}, "has [] for 'versions', which no record has"),
        (RECORD | {"image": "a.png"}, "has None for 'image.sha256'"),
        (RECORD | {"config": {"threads": 2**40}}, "has 1099511627776 for 'config.threads'"),
        (RECORD | {"command": "fei explain 'a.png"}, "in the record is none of 'fei explain'"),
        (RECORD | {"command": "fei explain a.png --seed"}, "in the record is none of 'fei explain'"),
        (UNIT | {"scores": [{"metric": "mse"}]}, "has [{'metric': 'mse'}] for 'scores'"),
        (UNIT | {"threads": "two"}, "has 'two' for 'threads'"),
    ],
)
def test_a_record_with_a_part_that_no_record_has(place, capsys, document, told):
    (place / "odd.json").write_text(json.dumps(document), encoding="utf-8")
    (place / "odd.map.npy").write_bytes(b"")
    assert fei("reproduce", "odd.json") == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("identical", "conditions", "spearman", "insertion", "matched"),
    [
        (True, {}, None, 0.5, True),
        (False, {}, 0.99, 0.5, False),
        (False, {"torch": ("2.4", "2.5")}, 0.95, 0.519, True),
        (False, {"torch": ("2.4", "2.5")}, 0.94, 0.5, False),
        (False, {"torch": ("2.4", "2.5")}, 0.99, 0.53, False),
        (False, {"torch": ("2.4", "2.5")}, None, 0.51, True),
    ],
)
def test_what_counts_as_the_same(identical, conditions, spearman, insertion, matched):
    comparison = Repetition(identical, conditions, spearman, {"insertion": (0.5, insertion)})
    assert comparison.matched == matched
    assert comparison.sentence().endswith(".")
    assert not Repetition(False, {"torch": ("2.4", "2.5")}, None).matched  # nothing to judge by
