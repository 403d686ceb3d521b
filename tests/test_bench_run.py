"""Runs: nothing is computed twice, nothing that was committed is lost, and all ways lead to the same tables."""

import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import small_cnn
from PIL import Image
from waiting import until

from fei import metrics, models
from fei.bench import LocalEngine, Store, resume, run
from fei.bench.engine import runner
from fei.bench.plan import catalog as _catalog
from fei.bench.plan import keys, parse_plan
from fei.bench.store.exchange import export
from fei.errors import DataError, InputError, ModelError
from fei.methods import create
from fei.methods.gradients import Saliency
from fei.metrics.declaration import own
from fei.references import References

pytestmark = pytest.mark.slow

LOG, PAUSE = "FEI_TEST_LOG", "FEI_TEST_PAUSE"
MANY = 16
KILLS = int(os.environ.get("FEI_KILLS", "1"))
RESULTS = (
    "SELECT pair, method, item, seed, kind, metric, protocol, layer, value, status, target, label, probability "
    "FROM results ORDER BY 1, 2, 3, 4, 5, 6, 7, 8"
)
COUNTED = {"name": "test_bench_run:counted"}
OTHER = {"name": "test_bench_run:other"}
SALIENCY = {"name": "saliency"}
FEI = {"name": "fei-vm", "options": {"steps": 2}}


def tiny():
    """A network on 24×24 pixels."""
    network = small_cnn()
    network.input_size = 24
    return network


def counted(model, inputs, target):
    """A method that notes which image it is called on; the images' red is their number, times 5."""
    if PAUSE in os.environ:
        time.sleep(float(os.environ[PAUSE]))
    if LOG in os.environ:
        with open(os.environ[LOG], "a", encoding="utf-8") as file:
            file.write(f"{round(float(inputs[0, 0].mean()) * 255 / 5)}.png\n")
    return inputs[:, 1] - inputs[:, 2]


def other(model, inputs, target):
    return inputs[:, 2]


def fails_on_3(model, inputs, target):
    if round(float(inputs[0, 0].mean()) * 255 / 5) == 3:
        raise RuntimeError("not this\none")
    return inputs[:, 1]


def broken():
    raise ModelError("The weights are gone; find them.")


def make_plan(data, rows, top="", end="", model=f"{__file__}:tiny"):
    """A plan of one pair."""
    text = f"name = 'test'\n{top}\n[[pairs]]\nmodel = '{model}'\nname = 'Tiny'\n"
    text += f"data = '{data}'\n" if data else ""
    for row in rows:
        options = ", ".join(f"{name} = {value}" for name, value in row.get("options", {}).items())
        label = row.get("label", row["name"])
        text += f"[[methods]]\nname = '{row['name']}'\nlabel = '{label}'\noptions = {{ {options} }}\n"
    return parse_plan(text + end)


def table(folder):
    with Store.open(folder, readonly=True) as store:
        return store.rows(RESULTS)


def call(function, *args, **options):
    return function(*args, threads=1, device="cpu", **options)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Six images: red is their number, green and blue are noise."""
    return paint(tmp_path_factory.mktemp("photos"), 6)


def paint(folder, count):
    folder.mkdir(exist_ok=True)
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (30, 40, 3), dtype=np.uint8)
        pixels[..., 0] = number * 5
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def log(tmp_path, monkeypatch):
    """What the counted method was called on, since last asked."""
    file = tmp_path / "log"
    monkeypatch.setenv(LOG, str(file))

    def read():
        lines = file.read_text(encoding="utf-8").split() if file.exists() else []
        file.unlink(missing_ok=True)
        return sorted(lines)

    return read


EVERY = [f"{number}.png" for number in range(6)]


def test_a_plan_is_computed_once(photos, tmp_path, log, monkeypatch):
    plan = make_plan(photos, [COUNTED, FEI], "seeds = [0, 1]", "[metrics]\ncomplexity = true\n")
    told = []
    summary = call(run, plan, tmp_path / "run", on_progress=lambda *facts: told.append(facts))
    assert (summary.done, summary.failed, summary.skipped) == (24, 0, 0)
    assert log() == sorted(EVERY * 2)
    assert told[0][:3] == (0, 0, 24)
    assert told[-1][:3] == (24, 0, 24)
    assert told[-1][3].left == 0
    rows = table(tmp_path / "run")
    assert {row[5] for row in rows} == {
        *("insertion", "deletion", "ties", "mse", "cosine", "pearson", "gini", "rank_tv"),
    }
    # nothing is left to do, so nothing is even loaded
    monkeypatch.setattr(models, "load", None)
    again = call(resume, tmp_path / "run")
    assert (again.done, again.skipped, log()) == (0, 24, [])
    assert table(tmp_path / "run") == rows


def test_a_unit_is_what_the_library_computes(photos, tmp_path):
    call(run, make_plan(photos, [FEI], "seeds = [5]\nkeep_maps = true"), tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = models.load(f"{__file__}:tiny")
        x = model.preprocess(photos / "2.png")[None]
        generator = torch.Generator().manual_seed(5)
        explanation = create("fei-vm", steps=2).explain(model, x, generator=generator)  # type: ignore[attr-defined]
        expected = metrics.evaluate(
            model, x, explanation.maps, explanation.target, protocol="fei-paper", generator=generator
        )
    finally:
        torch.set_num_threads(threads)
    with Store.open(tmp_path, readonly=True) as store:
        (found,) = {row["unit"] for row in store.results() if row["item"] == "2.png"}
        values = dict(store.rows("SELECT metric, value FROM scores WHERE unit = ? AND layer = ''", (found,)))
        assert np.array_equal(store.map(found), explanation.maps[0, 0].numpy())
    assert values["insertion"] == float(expected.insertion.auc[0])
    assert values["deletion"] == float(expected.deletion.auc[0])


def test_the_reference_is_the_same_in_optimisation_and_evaluation(photos, tmp_path, monkeypatch):
    drawn = []
    draw = References._draw

    def noted(self, step):
        values = draw(self, step)
        drawn.append(values.flatten().tolist())
        return values

    monkeypatch.setattr(References, "_draw", noted)
    call(run, make_plan(photos / "1.png", [FEI], "seeds = [3]", "[metrics]\nprotocols = ['fei-fine']\n"), tmp_path)
    assert len(drawn) == 2
    assert drawn[0] == drawn[1]


def test_adding_a_method_computes_that_method_alone(photos, tmp_path, log):
    call(run, make_plan(photos, [COUNTED]), tmp_path / "run")
    log()
    before = table(tmp_path / "run")
    longer = make_plan(photos, [OTHER, COUNTED])
    with pytest.raises(InputError, match="holds the run of another plan; choose another folder, or go on there with"):
        call(run, longer, tmp_path / "run")
    summary = call(resume, tmp_path / "run", longer)
    assert (summary.done, summary.skipped, log()) == (6, 6, [])
    assert [row for row in table(tmp_path / "run") if row[1] == COUNTED["name"]] == before
    # and back again: what is no longer asked for is not forgotten
    summary = call(resume, tmp_path / "run", make_plan(photos, [COUNTED]))
    assert (summary.done, summary.skipped) == (0, 6)
    assert call(resume, tmp_path / "run", longer).done == 0


@pytest.mark.parametrize("keep", [True, False])
def test_adding_a_protocol_computes_its_scores_alone(photos, tmp_path, log, keep):
    top = f"keep_maps = {str(keep).lower()}"
    call(run, make_plan(photos, [COUNTED], top), tmp_path / "run")
    assert log() == EVERY
    with Store.open(tmp_path / "run") as store:
        store._connection.execute("UPDATE scores SET value = 7 WHERE metric = 'insertion'")
        store._connection.execute("UPDATE units SET seconds = 7")
        store._connection.execute("DROP TABLE digests")  # or this would be damage
    end = "[metrics]\nprotocols = ['fei-paper', 'fei-fine']\n"
    summary = call(resume, tmp_path / "run", make_plan(photos, [COUNTED], top, end))
    assert (summary.done, summary.skipped) == (6, 0)
    assert log() == ([] if keep else EVERY)
    with Store.open(tmp_path / "run", readonly=True) as store:
        insertion = {row["protocol"]: row for row in store.results() if row["metric"] == "insertion"}
        assert insertion["fei-paper/1"]["value"] == 7
        assert 0 < insertion["fei-fine/1"]["value"] < 1
        assert insertion["fei-fine/1"]["seconds"] == 7
    call(run, make_plan(photos, [COUNTED], top, end), tmp_path / "at once")
    fine = [[row for row in table(tmp_path / name) if row[6] == "fei-fine/1"] for name in ("run", "at once")]
    assert fine[0] == fine[1]


def test_rows_with_equal_settings_share_their_units(photos, tmp_path, log):
    plan = make_plan(photos, [COUNTED, COUNTED | {"label": "the same"}])
    summary = call(run, plan, tmp_path)
    assert (summary.done, log()) == (6, EVERY)
    assert {row[1] for row in table(tmp_path)} == {COUNTED["name"], "the same"}


def test_pairs_that_look_at_other_layers_share_the_rest(photos, tmp_path, log):
    one = make_plan(photos, [COUNTED], "keep_maps = true")
    pair = f"[[pairs]]\nmodel = '{__file__}:tiny'\ndata = '{photos}'\nlayers = ['4']\n[[methods]]"
    two = one.text.replace("[[methods]]", pair, 1)
    summary = call(run, parse_plan(two), tmp_path)
    assert (summary.done, summary.skipped) == (6, 0)
    with Store.open(tmp_path, readonly=True) as store:
        assert store.counts() == {"done": 6, "failed": 0, "pending": 0}
        assert {tuple(row) for row in store.rows("SELECT DISTINCT name FROM groups")} == {
            *(("map",), ("kept",), ("external/fei-paper/1",), ("internal/fei-paper/1",), ("internal/fei-paper/1:4",))
        }
    assert call(resume, tmp_path).done == 0


@pytest.mark.parametrize("how", ["run", "export"])
def test_results_are_taken_over_from_elsewhere(photos, tmp_path, log, how):
    source = tmp_path / "first"
    call(run, make_plan(photos, [COUNTED], "keep_maps = true"), source)
    log()
    if how == "export":
        source = tmp_path / "export.csv"
        with Store.open(tmp_path / "first", readonly=True) as store:
            export(store, source)
    summary = call(run, make_plan(photos, [COUNTED, OTHER]), tmp_path / "second", reuse=[source])
    assert (summary.done, summary.skipped, log()) == (6, 6, [])
    taken = [row for row in table(tmp_path / "second") if row[1] == COUNTED["name"]]
    assert taken == table(tmp_path / "first")
    with pytest.raises(InputError, match="There is nothing at"):
        call(run, make_plan(photos, [OTHER]), tmp_path / "third", reuse=[tmp_path / "nowhere"])


def test_kept_maps_of_another_run_are_scored_without_computing_them(photos, tmp_path, log):
    call(run, make_plan(photos, [COUNTED], "keep_maps = true"), tmp_path / "first")
    log()
    plan = make_plan(photos, [COUNTED], "", "[metrics]\nprotocols = ['fei-fine']\n")
    summary = call(run, plan, tmp_path / "second", reuse=[tmp_path / "first"])
    assert (summary.done, log()) == (6, [])
    call(run, plan, tmp_path / "alone")
    fine = [row for row in table(tmp_path / "second") if row[6] == "fei-fine/1"]
    assert fine == table(tmp_path / "alone")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("the engine broke")])
def test_what_came_before_an_interruption_is_committed(photos, tmp_path, log, error):
    class Interrupted:
        def run(self, units, context):
            for number, outcome in enumerate(LocalEngine(threads=1).run(units, context)):
                if number == 4:
                    raise error
                yield outcome

    plan = make_plan(photos, [COUNTED])
    with pytest.raises(type(error)):
        run(plan, tmp_path / "run", engine=Interrupted(), device="cpu")
    log()
    summary = call(resume, tmp_path / "run")
    assert (summary.done, summary.skipped, log()) == (2, 4, ["4.png", "5.png"])


def test_a_full_disk_ends_the_run_and_not_its_results(photos, tmp_path, log, monkeypatch):
    monkeypatch.setattr(runner, "_SECONDS", 0.0)  # commit each outcome at once
    monkeypatch.setattr(runner, "_SHARE", 1.0)
    commit = Store.commit

    def full(self, outcomes):
        if self.counts()["done"] == 3:
            raise DataError("The disk is full.")
        commit(self, outcomes)

    plan = make_plan(photos, [COUNTED])
    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", full)
        with pytest.raises(DataError, match="The disk is full"):
            call(run, plan, tmp_path / "run")
    log()
    assert (call(run, plan, tmp_path / "run").done, log()) == (3, EVERY[3:])


def test_what_fails_is_recorded_and_the_rest_goes_on(tmp_path):
    folder = paint(tmp_path / "photos", 5)
    (folder / "1.png").write_bytes((folder / "1.png").read_bytes()[:200])
    plan = make_plan(folder, [{"name": "test_bench_run:fails_on_3"}], "retries = 2")
    summary = call(run, plan, tmp_path / "run")
    assert (summary.done, summary.failed) == (3, 2)
    with Store.open(tmp_path / "run", readonly=True) as store:
        failed = {item: (error, n) for item, error, n in store.rows("SELECT item, error, attempts FROM units") if error}
    assert failed["3.png"] == ("unexpected RuntimeError: not this one", 3)
    assert "cannot be read as an image" in failed["1.png"][0]
    again = call(resume, tmp_path / "run")
    assert (again.done, again.failed, again.skipped) == (0, 2, 3)
    paint(folder, 5)  # the damaged image is whole again, and so another one
    again = call(resume, tmp_path / "run", retry_failed=True)
    assert (again.done, again.failed, again.skipped) == (1, 1, 3)


def test_a_score_that_fails_leaves_the_others(photos, tmp_path):
    # this protocol scores the predicted class alone
    lines = ["path,label", *(f"{photos}/{number}.png,{number % 4}" for number in range(6))]
    (tmp_path / "list.csv").write_text("\n".join(lines), encoding="utf-8")
    data, top = f"csv:{tmp_path}/list.csv", "target = 'label'"
    end = "[metrics]\ninternal = false\nprotocols = ['fei-paper', 'rise']\n"
    summary = call(run, make_plan(data, [COUNTED], top, end), tmp_path / "run")
    assert summary.failed > 0
    with Store.open(tmp_path / "run", readonly=True) as store:
        assert store.rows("SELECT count(*) FROM scores WHERE protocol = 'fei-paper/1'") == [(18,)]
        assert all("scores the model's top class only" in error for error in store.failed().values())
    # a plan that does not ask for it finds everything done
    summary = call(resume, tmp_path / "run", make_plan(data, [COUNTED], top, "[metrics]\ninternal = false\n"))
    assert (summary.done, summary.failed, summary.skipped) == (0, 0, 6)
    with Store.open(tmp_path / "run", readonly=True) as store:
        assert store.counts() == {"done": 6, "failed": 0, "pending": 0}
        assert {row["correct"] for row in store.results()} == {0, 1}


def test_a_network_that_fails_to_load_fails_its_units_alone(photos, tmp_path, monkeypatch):
    plan = make_plan(photos, [COUNTED, OTHER]).text
    bad = f"[[pairs]]\nmodel = '{__file__}:broken'\ndata = '{photos}'\n[[methods]]"
    loads = []
    load = models.load
    monkeypatch.setattr(models, "load", lambda spec: loads.append(spec) or load(spec))
    summary = call(run, parse_plan(plan.replace("[[methods]]", bad, 1)), tmp_path / "run")
    assert (summary.done, summary.failed) == (12, 12)
    assert loads.count(f"{__file__}:broken") == 1
    with Store.open(tmp_path / "run", readonly=True) as store:
        assert set(store.failed().values()) == {"The weights are gone; find them."}
    with pytest.raises(InputError, match="There is no model file"):  # what does not exist is the caller's mistake
        call(run, make_plan(photos, [OTHER], model="nowhere.py:tiny"), tmp_path / "other")
    # nothing was computed there, so that the corrected plan may take the folder
    assert call(run, make_plan(photos, [OTHER]), tmp_path / "other").done == 6


def test_a_second_driver_is_refused(photos, tmp_path):
    plan = make_plan(photos, [COUNTED])
    with Store.create(tmp_path, plan):
        for attempt in (lambda: call(run, plan, tmp_path), lambda: call(resume, tmp_path)):
            with pytest.raises(InputError, match="is being worked on by process"):
                attempt()


def test_code_that_is_not_there_is_told_when_it_is_to_run(photos, tmp_path):
    plan = make_plan(photos, [COUNTED, {"name": "no.such:thing"}])
    with pytest.raises(InputError, match=r"^`methods\[1\]`: 'no.such:thing' cannot be imported"):
        call(run, plan, tmp_path)
    assert call(run, make_plan(photos, [COUNTED]), tmp_path).failed == 0  # and the folder is free for a better plan


def test_an_engine_or_device_that_there_is_not(photos, tmp_path):
    plan = make_plan(photos, [COUNTED])
    with pytest.raises(InputError, match="There is no engine 'abacus'; choose one of local"):
        run(plan, tmp_path, engine="abacus")
    with pytest.raises(InputError, match="Unknown device 'abacus'; choose one of cpu"):
        run(plan, tmp_path, device="abacus")
    with pytest.raises(TypeError, match="a run has no option worker"):
        run(plan, tmp_path, worker=2)  # type: ignore[call-arg]


def test_black_images_and_sanity_checks(photos, tmp_path):
    end = "[black_image]\ntrials = 3\n[sanity]\nimages = 2\nlayers = 2\nmethods = ['saliency']\n"
    summary = call(run, make_plan(photos, [FEI, SALIENCY], "keep_maps = true", end), tmp_path)
    assert (summary.done, summary.failed) == (12 + 3 + 2, 0)
    model = models.load(f"{__file__}:tiny")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = metrics.black_image(model, create("fei-vm", steps=2), trials=3)
    torch.set_num_threads(threads)
    with Store.open(tmp_path, readonly=True) as store:
        rows = [row for row in store.results("black-image") if row["metric"] == "phi"]
        assert [row["value"] for row in sorted(rows, key=lambda row: int(row["item"]))] == expected.phi.tolist()
        assert [row["target"] for row in sorted(rows, key=lambda row: int(row["item"]))] == expected.target.tolist()
        stages = {row["layer"] for row in store.results("sanity")}
        assert stages == {"01 8", "02 4"}
        assert {row["metric"] for row in store.results("sanity")} == {"ssim", "spearman", "spearman_abs", "hog"}
        assert store.map(store.results("sanity")[0]["unit"]).shape == (3, 24, 24)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_trials_without_a_data_set_go_out_and_come_back(tmp_path, ending):
    plan = make_plan(None, [FEI], end="[black_image]\ntrials = 2\n")
    call(run, plan, tmp_path / "run")
    with Store.open(tmp_path / "run", readonly=True) as store:
        export(store, tmp_path / f"out.{ending}")
    summary = call(run, plan, tmp_path / "again", reuse=[tmp_path / f"out.{ending}"])
    assert (summary.done, summary.failed, summary.skipped) == (0, 0, 2)


def test_boxes_are_placed_on_the_preprocessed_image(photos, tmp_path):
    rows = ["path,label,left,top,right,bottom", f"{photos}/1.png,0,0,0,40,30", f"{photos}/2.png,0,0,0,1,30"]
    (tmp_path / "list.csv").write_text("\n".join(rows), encoding="utf-8")
    end = "[metrics]\nexternal = false\ninternal = false\nlocalization = true\n"
    call(run, make_plan(f"csv:{tmp_path}/list.csv", [COUNTED], "", end), tmp_path / "run")
    with Store.open(tmp_path / "run", readonly=True) as store:
        found = {(row["item"][-5:], row["metric"]): row["value"] for row in store.results()}
    # the whole image has all of it; a strip that the crop cuts off has no score
    assert found == {("1.png", "pointing-2"): 1.0, ("1.png", "energy"): 1.0, ("2.png", None): None}


def test_numbers_of_an_earlier_version_of_a_metric_are_measured_again(photos, tmp_path, log, monkeypatch):
    rows = ["path,label,left,top,right,bottom", f"{photos}/1.png,0,0,0,40,30"]
    (tmp_path / "list.csv").write_text("\n".join(rows), encoding="utf-8")
    end = "[metrics]\nexternal = false\ninternal = false\nlocalization = true\n"
    plan = make_plan(f"csv:{tmp_path}/list.csv", [COUNTED], "", end)
    quarter = metrics.Metric("pointing_game", "", True, "localization", lambda _: torch.tensor([0.25]), (), "pointing")
    with monkeypatch.context() as patch:
        patch.setitem(own(), "pointing_game", quarter)
        call(run, plan, tmp_path / "run")
    call(run, plan, tmp_path / "run")
    assert log() == ["1.png", "1.png"]
    with Store.open(tmp_path / "run", readonly=True) as store:
        found = {row["metric"]: row["value"] for row in store.results()}
    assert found == {"pointing": 0.25, "pointing-2": 1.0, "energy": 1.0}


def test_a_method_whose_maps_changed_has_other_keys(photos, monkeypatch):
    def key():
        return next(_catalog.Catalog(make_plan(photos, [SALIENCY])).entries()).unit.key

    before = key()
    monkeypatch.setattr(Saliency, "version", 2)
    after = key()
    monkeypatch.setattr(Saliency, "version", 1)
    assert before == key() != after


def test_fingerprints_tell_networks_apart_by_content(tmp_path):
    model, same = models.load(f"{__file__}:tiny"), models.Classifier(tiny(), input_size=24)
    assert keys.model_fingerprint(model) == keys.model_fingerprint(same)
    changes = [
        models.Classifier(tiny(), input_size=25),
        models.Classifier(tiny(), input_size=24, mean=(0, 0, 0), std=(1, 1, 1)),
        models.Classifier(tiny(), input_size=24, feature_layers=["5"]),
        models.Classifier(small_cnn(seed=1), input_size=24),
        models.Classifier(torch.nn.Sequential(*tiny(), torch.nn.ReLU()).eval(), input_size=24),
    ]
    assert len({keys.model_fingerprint(each) for each in [model, *changes]}) == 6


def test_images_with_equal_content_are_one_unit(tmp_path, log):
    folder = paint(tmp_path / "photos", 2)
    (folder / "copy.png").write_bytes((folder / "1.png").read_bytes())
    summary = call(run, make_plan(folder, [COUNTED]), tmp_path / "run")
    assert (summary.done, log()) == (2, ["0.png", "1.png"])
    assert {row[2] for row in table(tmp_path / "run")} == {"0.png", "1.png", "copy.png"}


def test_units_are_planned_pair_by_pair_and_image_by_image(photos):
    units = [entry.unit for entry in _catalog.Catalog(make_plan(photos, [COUNTED, OTHER], "seeds = [0, 1]")).entries()]
    assert [(unit.item, unit.seed, unit.method) for unit in units[:5]] == [
        *(("0.png", 0, 0), ("0.png", 0, 1), ("0.png", 1, 0), ("0.png", 1, 1), ("1.png", 0, 0)),
    ]
    assert len({unit.key for unit in units}) == 24


# Processes that are killed


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Images, a plan on them, and its table computed undisturbed, in this process."""
    folder = tmp_path_factory.mktemp("many")
    plan = make_plan(paint(folder / "photos", MANY), [COUNTED, FEI, SALIENCY], "keep_maps = true")
    (folder / "plan.toml").write_text(plan.text, encoding="utf-8")
    call(run, plan, folder / "undisturbed")
    return folder


def drive():
    """What a driver process does."""
    folder, workers = Path(sys.argv[1]), int(sys.argv[2])
    run(
        parse_plan((folder / "plan.toml").read_text(encoding="utf-8")),
        folder / "run",
        workers=workers,
        threads=1,
        device="cpu",
    )


def start_driver(folder, workers, log):
    paths = [str(Path(__file__).parent), *sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), LOG: str(log), PAUSE: "0.03"}
    script = "from test_bench_run import drive; drive()"
    return subprocess.Popen([sys.executable, "-c", script, str(folder), str(workers)], env=environment)


def processes_with(variable):
    """Those whose environment has it."""
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            found += [file.parent.name] if variable.encode() in file.read_bytes().split(b"\0") else []
    return found


def committed(folder):
    """The images whose unit of the counted method is committed."""
    if not Store.exists(folder) or not Store.begun(folder):
        return set()
    with Store.open(folder, readonly=True) as store:
        rows = store.rows("SELECT item FROM units WHERE method = ? AND status = 'done'", (COUNTED["name"],))
        return {item for (item,) in rows}


@pytest.mark.skipif(sys.platform == "win32", reason="kills processes by signals")
def test_drivers_that_are_killed_lose_nothing_and_compute_nothing_twice(many, tmp_path):
    (tmp_path / "plan.toml").write_text((many / "plan.toml").read_text(encoding="utf-8"), encoding="utf-8")
    folder, log = tmp_path / "run", tmp_path / "log"
    for number in range(KILLS):
        before = committed(folder)
        if len(before) == MANY:  # all done between two kills: begin again
            os.rename(folder, tmp_path / f"finished {number}")
            before = set()
        log.unlink(missing_ok=True)
        driver = start_driver(tmp_path, (1, 0, 0, 2)[number % 4], log)
        if number % 4 != 3:  # wait until it is at work; else it may be killed while it starts
            while not log.exists() and driver.poll() is None:
                time.sleep(0.01)
        time.sleep(random.random() * (1 if number % 4 != 3 else 6))
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        until(lambda: not processes_with(f"{LOG}={log}"))  # its workers end with it
        computed = log.read_text(encoding="utf-8").split() if log.exists() else []
        assert not before & set(computed), "a unit was computed again after its commit"
        assert before <= committed(folder), "a commit was lost"
    before = committed(folder)
    with pytest.MonkeyPatch.context() as patch:
        log.unlink(missing_ok=True)
        patch.setenv(LOG, str(log))
        summary = call(run, parse_plan((tmp_path / "plan.toml").read_text(encoding="utf-8")), folder)
    assert summary.failed == 0
    assert summary.done + summary.skipped == 3 * MANY
    assert (
        set(log.read_text(encoding="utf-8").split() if log.exists() else [])
        == {f"{n}.png" for n in range(MANY)} - before
    )
    assert table(folder) == table(many / "undisturbed")
    assert list(folder.rglob(".fei-*")) == []  # nor is half a file left


@pytest.mark.skipif(sys.platform == "win32", reason="kills processes by signals")
def test_two_workers_one_of_them_killed_give_the_same_tables(many, tmp_path):
    killed = []

    def kill_once(done, failed, total, pace):
        if 0 < done < total and not killed:
            killed.append(multiprocessing.active_children()[0])
            killed[0].kill()

    plan = parse_plan((many / "plan.toml").read_text(encoding="utf-8"))
    summary = call(run, plan, tmp_path, workers=2, on_progress=kill_once)
    assert len(killed) == 1
    assert (summary.done, summary.failed) == (3 * MANY, 0)
    assert table(tmp_path) == table(many / "undisturbed")
    assert multiprocessing.active_children() == []
