"""Runs exchanged: what goes out as a table comes back as results, two runs become one, differences are found."""

import contextlib
import csv
import math
import sqlite3
import sys

import numpy as np
import pytest

from fei.bench.plan import parse_plan
from fei.bench.store import Store, exchange
from fei.bench.units import Outcome
from fei.errors import DataError, InputError, PackageError

PLAN = """
name = "p"
seeds = [0]
keep_maps = true
[[pairs]]
model = "efficientnet_lite0"
data = "photos"
name = "Photos, β"
[[methods]]
name = "saliency"
label = "Saliency, \\"quoted\\""
[[methods]]
name = "random"
"""
KEYS = {0: "a" * 32, 1: "b" * 32}
LIMIT = csv.field_size_limit()  # the process's own, which is nobody's to change


def outcome(method=0, status="done", insertion=0.1 + 0.2, **more):
    facts = {
        "key": KEYS[method], "kind": "map", "model": "efficientnet_lite0", "data": "photos", "item": "cat,\n1.png",
        "method": ("saliency", "random")[method], "config": '{"score":"logit"}', "seed": 0, "status": status,
        "attempts": 2, "target": 285, "label": "Egyptian cat", "probability": 1 / 3, "correct": True, "seconds": 0.125,
        "forwards": 1, "backwards": 1, "peak_bytes": 2**40, "threads": 1, "finished": "2026-01-02T03:04:05+00:00",
        "scores": (("insertion", "fei-paper/1", "", insertion), ("mse", "fei-paper/1", "features.3", 1e-300)),
        "curves": (("fei-paper/1", "insertion", [0.1, 0.9], [0.7, 1 / 3]),),
        "groups": ("external/fei-paper/1", "internal/fei-paper/1", "map"),
    }  # fmt: skip
    return Outcome(**facts | more)


def failed(method=1):
    return outcome(method, "failed", error='it "failed"', scores=(), curves=(), groups=(), correct=None, target=None)


def make(folder, outcomes, text=PLAN, methods=(0, 1)):
    store = Store.create(folder, parse_plan(text))
    store.commit(outcomes)
    store.link([(0, method, "cat,\n1.png", 0, "map", KEYS[method]) for method in methods], layers=[["features.3"]])
    return store


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_goes_out_comes_back(tmp_path, ending):
    file = tmp_path / f"out.{ending}"
    with make(tmp_path / "run", [outcome(), failed()]) as store:
        assert exchange.export(store, file) == 3  # two scores, and the row of what failed
        expected = {o.key: o for o in exchange.stored_outcomes(store)}
    back = {o.key: o for o in exchange.import_results(file)}
    assert csv.field_size_limit() == LIMIT
    assert back == expected
    assert back[KEYS[0]] == outcome()
    assert back[KEYS[1]] == failed()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_number_that_is_none_and_a_kept_map(tmp_path, ending):
    """NaN stays NaN; a table has no maps, so it must not say that they are kept."""
    one = outcome(insertion=math.nan, groups=("kept", "map"), map=np.ones((2, 2), np.float32))
    with make(tmp_path / "run", [one]) as store:
        exchange.export(store, tmp_path / f"out.{ending}")
    (back,) = exchange.import_results(tmp_path / f"out.{ending}")
    assert math.isnan({score[0]: score[3] for score in back.scores}["insertion"])
    assert back.groups == ("map",)
    assert back.map is None


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_trials_of_a_pair_without_data_can_be_taken_over(tmp_path, ending):
    text = PLAN.replace('data = "photos"\n', "").replace("saliency", "fei-vm") + "[black_image]\ntrials = 1\n"
    trial = outcome(
        kind="black-image", item="0", data="", scores=(("fired", "", "", 1.0),), curves=(), groups=("black-image",)
    )
    with Store.create(tmp_path / "a", parse_plan(text)) as store:
        store.commit([trial])
        store.link([(0, 0, "0", 0, "black-image", KEYS[0])], layers=[[]])
        exchange.export(store, tmp_path / f"a.{ending}")
    with Store.create(tmp_path / "b", parse_plan(text)) as store:
        store.commit(exchange.outcomes_of(tmp_path / f"a.{ending}", {KEYS[0]}))
    with Store.open(tmp_path / "b", readonly=True) as store:  # which refuses what no run would write
        assert list(exchange.stored_outcomes(store, [KEYS[0]])) == [trial]


def test_a_unit_of_two_rows_is_written_for_both(tmp_path):
    with make(tmp_path / "run", [outcome()], methods=(0,)) as store:
        store.link([(0, method, "cat.png", 0, "map", KEYS[0]) for method in (0, 1)])
        exchange.export(store, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["method"] for row in rows if row["metric"] == "mse"] == ['Saliency, "quoted"', "random"]
    assert list(rows[0]) == list(exchange.COLUMNS)
    assert len({o.key for o in exchange.import_results(tmp_path / "out.csv")}) == 1


def test_wrong_files_are_told(tmp_path, monkeypatch):
    with make(tmp_path / "run", [outcome()]) as store:
        with pytest.raises(InputError, match="ends in neither .parquet nor .csv"):
            exchange.export(store, tmp_path / "out.xlsx")
        with pytest.raises(InputError, match="There is no folder"):
            exchange.export(store, tmp_path / "none" / "out.csv")
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(
            PackageError, match=r'needs pyarrow, which is not installed; run pip install "fei\[parquet\]"'
        ):
            exchange.export(store, tmp_path / "out.parquet")
        assert not (tmp_path / "out.parquet").exists()
    with pytest.raises(InputError, match="There is no exported table"):
        next(exchange.import_results(tmp_path / "none.csv"))
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(DataError, match="is no table of 'fei bench export'"):
        next(exchange.import_results(tmp_path / "other.csv"))
    monkeypatch.undo()
    (tmp_path / "other.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="is no table of 'fei bench export'"):
        next(exchange.import_results(tmp_path / "other.parquet"))


def test_equal_runs_have_no_difference(tmp_path):
    with make(tmp_path / "a", [outcome()]) as first, make(tmp_path / "b", [outcome()]) as second:
        found = exchange.diff(first, second)
    assert found.same
    assert (found.common, found.differing, found.largest, found.means) == (2, 0, [], [])


def test_differences_are_found_and_measured(tmp_path):
    mine = [outcome(insertion=0.5), outcome(1, insertion=0.1)]
    other = outcome(insertion=0.75, scores=(("insertion", "fei-paper/1", "", 0.75),))
    with make(tmp_path / "a", mine) as first, make(tmp_path / "b", [other]) as second:
        found = exchange.diff(first, second)
    assert not found.same
    assert (found.common, found.differing, found.only_first, found.only_second) == (1, 1, 3, 0)
    (mean,) = found.means
    assert (mean["first"], mean["second"], mean["difference"], mean["largest"]) == (0.5, 0.75, 0.25, 0.25)
    (worst,) = found.largest
    assert (worst["method"], worst["item"], worst["same_unit"]) == ('Saliency, "quoted"', "cat,\n1.png", 1)


def test_a_merged_run_has_what_either_has(tmp_path):
    kept = outcome(groups=("kept", "map"), map=np.full((2, 2), 0.25, np.float32))
    done = outcome(1, insertion=0.9)
    with make(tmp_path / "a", [kept, failed(1)]) as first, make(tmp_path / "b", [done], methods=(1,)) as second:
        with exchange.merge(first, second, tmp_path / "c") as merged:
            assert merged.plan.text == first.plan.text
            assert merged.counts() == {"done": 2, "failed": 0, "pending": 0}
            np.testing.assert_array_equal(merged.map(KEYS[0]), kept.map)
            values = merged.rows("SELECT method, value FROM results WHERE metric = 'insertion' ORDER BY method")
            assert values == [('Saliency, "quoted"', 0.1 + 0.2), ("random", 0.9)]
            assert merged.rows("SELECT layer FROM layers") == [("features.3",)]
        with pytest.raises(InputError, match="holds a run already"):
            exchange.merge(first, second, tmp_path / "c")


def test_plans_of_different_rows_and_columns_merge(tmp_path):
    other = PLAN.replace('"random"', '"gradcam"').replace("[0]", "[1]").replace("Photos, β", "Else")
    other = other.replace('label = "Saliency, \\"quoted\\""', "").replace("= true", "= false")
    with (
        make(tmp_path / "a", [outcome()], methods=[0]) as first,
        make(tmp_path / "b", [outcome(1)], other, methods=[1]) as second,
        exchange.merge(first, second, tmp_path / "c") as merged,
    ):
        plan = merged.plan
        assert [pair.name for pair in plan.pairs] == ["Photos, β", "Else"]
        assert [row.label for row in plan.methods] == ['Saliency, "quoted"', "random", "saliency", "gradcam"]
        assert plan.seeds == (0, 1)
        assert plan.keep_maps
        found = merged.rows("SELECT DISTINCT pair, method FROM results WHERE metric IS NOT NULL")
        assert sorted(found) == [("Else", "gradcam"), ("Photos, β", 'Saliency, "quoted"')]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('"random"', '"random"\noptions = {}\ngroup = "x"'), "mean different methods by 'random'"),
        (('"photos"', '"others"'), "mean different pairs by 'Photos, β'"),
        (("seeds = [0]", 'target = "label"\nseeds = [0]'), "differ in 'target'"),
    ],
)
def test_plans_that_contradict_each_other_do_not(tmp_path, change, told):
    with (
        make(tmp_path / "a", []) as first,
        make(tmp_path / "b", [], PLAN.replace(*change)) as second,
        pytest.raises(InputError, match=told),
    ):
        exchange.merge(first, second, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_the_lines_of_the_documentation_work(tmp_path):
    """docs/bench.md promises that pandas and DuckDB open a run, and what was exported, in one line."""
    pandas, duckdb = pytest.importorskip("pandas"), pytest.importorskip("duckdb")
    with make(tmp_path / "run", [outcome()]) as store:
        exchange.export(store, tmp_path / "run.parquet")
    with contextlib.closing(sqlite3.connect(tmp_path / "run" / "run.sqlite")) as connection:
        read = pandas.read_sql("SELECT * FROM results", connection)
    assert read["value"].dropna().sum() == pytest.approx(0.3)
    found = duckdb.sql(f"SELECT count(value) FROM '{tmp_path / 'run.parquet'}'").fetchall()
    assert found == [(2,)]


def test_damaged_tables_are_told(tmp_path):
    with make(tmp_path / "run", [outcome()], methods=(0,)) as store:
        exchange.export(store, tmp_path / "run.parquet")
        exchange.export(store, tmp_path / "run.csv")
    content = (tmp_path / "run.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(content[:4] + b"\xff" * 100 + content[104:])
    with (tmp_path / "run.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    for name, column, text in (("large", "seed", "9" * 30), ("none", "status", ""), ("deep", "curve", "[" * 100_000)):
        place = rows[0].index(column)
        with (tmp_path / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([rows[0], [*rows[1][:place], text, *rows[1][place + 1 :]]])
    told = {"cut.parquet": "OSError", "large.csv": "more than 64 bits for seed", "none.csv": "a row has no status"}
    for name, words in (told | {"deep.csv": "stands where"}).items():
        with pytest.raises(DataError, match=words):
            list(exchange.import_results(tmp_path / name))
