"""Declarations of metrics: each is made once, in the metric's own file, and all that show or measure it follow."""

import csv
import re
from dataclasses import replace

import numpy as np
import pytest
from networks import small_cnn
from PIL import Image

import fei
from fei.bench import Store, resume, run
from fei.bench.plan import parse_plan
from fei.bench.plan.catalog import Catalog
from fei.bench.plan.keys import plan_key
from fei.bench.report import write_report
from fei.bench.report.page import bench_html
from fei.bench.report.tables import table
from fei.bench.store.exchange import export, merge
from fei.errors import InputError
from fei.metrics import Metric, declared, describe, group_of, groups
from fei.metrics.declaration import own

TOY = '''"""The brightest pixel of a map."""

from fei.metrics.declaration import Metric, of_maps


def brightest(maps):
    return maps.flatten(1).amax(1)


METRICS = (Metric("brightest", "brightest pixel", True, measure=of_maps(brightest)),)
'''


def tiny():
    """A network on 24×24 pixels."""
    network = small_cnn()
    network.input_size = 24
    return network


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """One more file among the metrics, and nothing else."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "brightest.py").write_text(TOY, encoding="utf-8")
    monkeypatch.setattr(fei.metrics, "__path__", [*fei.metrics.__path__, str(folder)])
    own.cache_clear()
    yield
    monkeypatch.undo()
    own.cache_clear()


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(2):
        pixels = np.random.default_rng(number).integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def plan(photos, metrics, method="saliency"):
    pair = f"[[pairs]]\nmodel = '{__file__}:tiny'\nname = 'Tiny'\ndata = '{photos}'\n"
    return parse_plan(f"name = 'test'\n{metrics}\n{pair}[[methods]]\nname = '{method}'\n")


@pytest.mark.usefixtures("toy")
def test_a_new_metric_is_one_file(photos, tmp_path):
    named = plan(photos, "metrics = ['brightest']")
    assert named.metrics.groups == ("brightest",)
    first, second = tmp_path / "first", tmp_path / "second"
    run(named, first, threads=1, device="cpu")
    run(plan(photos, "metrics = ['gini']", "random"), second, threads=1, device="cpu")
    with Store.open(first) as one, Store.open(second) as other, merge(one, other, tmp_path / "both") as both:
        assert both.plan.metrics.groups == ("complexity", "brightest")
        assert parse_plan(both.plan.text).metrics == both.plan.metrics
    resume(tmp_path / "both", threads=1, device="cpu")  # each has what the other was asked for
    with Store.open(tmp_path / "both", readonly=True) as store:
        ((count,),) = store.rows("SELECT count(*) FROM scores WHERE metric = 'brightest' AND value > 0")
        assert count == 4
        export(store, tmp_path / "all.csv")
        with open(tmp_path / "all.csv", encoding="utf-8", newline="") as file:
            assert [row["metric"] for row in csv.DictReader(file)].count("brightest") == 4
        shown = table(store, "plain")
        (column,) = [column for column in shown.columns if column.quantity.metric == "brightest"]
        assert column.heads[-1] == "brightest pixel ↑"
        assert column.higher_is_better is True
        write_report(store, tmp_path / "report")
        assert "brightest pixel ↑" in (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
        assert "brightest pixel ↑" in bench_html(store)


def test_plans_name_metrics_or_switch_groups(photos):
    switched = plan(photos, "metrics = { complexity = true, internal = false }")
    named = plan(photos, "metrics = { measure = ['insertion', 'rank_tv'] }")
    assert named.metrics == plan(photos, "metrics = ['external', 'gini', 'deletion']").metrics == switched.metrics
    assert plan_key(named) == plan_key(switched)
    assert "measure" not in named.model_dump()["metrics"]
    assert plan(photos, "metrics = []").metrics.groups == ()
    assert plan(photos, "metrics = { measure = ['infidelity'], internal = true }").metrics.groups == (
        "internal",
        "infidelity",
    )
    with pytest.raises(InputError, match="There is no metric 'insertoin'; did you mean insertion"):
        plan(photos, "metrics = ['insertoin']")
    with pytest.raises(InputError, match=r"`metrics.measure\[0\]` is 1; give a text in quotes."):
        plan(photos, "metrics = [1]")


def test_the_groups_of_a_unit_are_those_of_stored_runs(photos):
    every = "protocols = ['fei-paper', 'rise'], complexity = true, localization = true, confidence = true"
    unit = next(Catalog(plan(photos, f"keep_maps = true\nmetrics = {{ {every} }}")).entries()).unit
    assert unit.scores == (
        *("map", "external/fei-paper/1", "internal/fei-paper/1", "external/rise/1", "internal/rise/1"),
        *("complexity", "localization", "confidence", "kept"),  # no boxes, nothing that could be stale
    )


def test_a_number_that_changed_its_meaning_is_stored_under_another_name():
    first = Metric("hits", "hits", True, score="hit")
    second = replace(first, version=2)
    assert (first.score, second.score, replace(second, title="Hits").score) == ("hit", "hit-2", "hit-2")
    assert describe("pointing-2") is describe("pointing_game")
    with pytest.raises(InputError, match="There is no metric 'pointing'"):  # of runs from before
        describe("pointing")


def test_metrics_go_by_their_own_name_and_by_that_of_stored_scores():
    assert describe("rank_tv") is describe("rank_total_variation")
    assert describe("mse").heading == "MSE ↓"
    assert [describe("road", f"road-{order}/1").heading for order in ("morf", "lerf")] == ["ROAD ↓", "ROAD ↑"]
    assert describe("road").heading == "ROAD"
    assert group_of("road") == group_of("average_drop") == "confidence"
    for name in ("seconds", "ssim", "no such thing"):  # of the first two there is no measure of a map
        with pytest.raises(InputError, match=f"There is no metric '{name}'; "):
            group_of(name)
    with pytest.raises(InputError, match="There is no metric 'ginni'; did you mean gini"):
        describe("ginni")


def test_declarations_agree_with_each_other():
    for group, metrics in groups().items():
        for need in ("protocol", "layers"):  # the name of a group in a run says them for all its metrics
            assert len({need in metric.needs for metric in metrics}) == 1, (group, need)
    stored = [metric.score for metric in declared().values()]
    assert {name for name in stored if stored.count(name) > 1} == {"road"}
    for name, metric in declared().items():
        assert re.fullmatch(r"[a-z_-]+", name)
        assert format(1, metric.format)
    assert {name: metric.higher_is_better for name, metric in declared().items()} == fei.metrics.HIGHER_IS_BETTER
