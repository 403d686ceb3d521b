"""The page of a run: the numbers that it is given are the run's, pictures are kept within bounds, nothing does harm."""

import base64
import hashlib
import io
import json
import re
import zlib
from dataclasses import dataclass

import matplotlib
import numpy as np
import pytest
from one_file_pages import check_policy
from PIL import Image
from test_cli_bench import NETWORK, PLAN, fei
from test_explorer import HOSTILE, data_of, unpacked

from fei.bench.plan import parse_plan
from fei.bench.report import _statistics
from fei.bench.report import page as bench_page
from fei.bench.report._page_pictures import pictures
from fei.bench.report.numbers import Numbers
from fei.bench.report.page import bench_html, write_bench_page
from fei.bench.report.tables import table
from fei.bench.store import Store
from fei.bench.units import Outcome
from fei.common.consent import remembering
from fei.errors import InputError
from fei.metrics import bootstrap_interval, wilson_interval
from fei.models import load

pytestmark = pytest.mark.slow

PROTOCOL, OTHER = "fei-paper/1", "rise/1"
METHODS = {"Saliency": "saliency", "FEI-VM": "fei-vm", "FEI-NONE": "fei-none"}
PAIRS = ("Set, Net", "Set, Other")
ITEMS = [f"{number}.png" for number in range(6)]
CLASSES = ["cat", "cat", "dog", "dog", "dog", "owl"]
CORRECT = [True, False, True, False, True, True]
SEEDS = (0, 7)
SIDE = 16
FRACTIONS = [0.1, 0.5, 0.9]
FAILED, WAITING = ("Saliency", 5, 7), ("FEI-VM", 4, 7)  # on the first pair


def insertion(label, item, seed, pair=0):
    """High for FEI-NONE, low for Saliency; grows with the image's number; on the second pair FEI-VM is last."""
    base = {"Saliency": 0.1, "FEI-VM": 0.2 if pair == 0 else 0.05, "FEI-NONE": 0.4}[label]
    return base + 0.05 * item + (0.01 if seed else 0)


def mse(label, item):
    return {"Saliency": 2.0, "FEI-VM": 0.5, "FEI-NONE": 8.0}[label] * (1 + item)


def attribution(label, item):
    return np.random.default_rng([len(label), item]).random((SIDE, SIDE), dtype=np.float32)


def key_of(*parts):
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def outcome(pair, label, item, seed, protocols):
    failed = (label, item, seed) == FAILED and pair == 0
    scores, curves = [], []
    for protocol in protocols if not failed else ():
        shift = 0.0 if protocol == PROTOCOL else 0.3
        level = insertion(label, item, seed, pair) + shift
        scores += [
            ("insertion", protocol, "", level),
            ("deletion", protocol, "", 1 - level),
            ("ties", protocol, "", 0.25),
        ]
        for layer, factor in (("layer9", 3.0), ("layer10", 1.0)):
            scores += [("mse", protocol, layer, mse(label, item) * factor), ("cosine", protocol, layer, 0.9 / factor)]
        curves += [
            (protocol, "insertion", FRACTIONS, [level, level / 2, 0.0]),
            (protocol, "deletion", FRACTIONS, [1.0, 0.5, 1 - level]),
        ]
    return Outcome(
        key_of(pair, label, item, seed), "map", "model", "data", ITEMS[item], METHODS[label], '{"steps": 3}', seed,
        "failed" if failed else "done", error="the disk is full" if failed else None, target=item, label=CLASSES[item],
        probability=0.5 + item / 20, correct=CORRECT[item], seconds=1.5, forwards=10, backwards=5,
        scores=tuple(scores), curves=tuple(curves), map=attribution(label, item) if seed == 0 else None,
    )  # fmt: skip


def benchmark(folder, *, keep_maps=True, protocols=(PROTOCOL, OTHER), pairs=PAIRS, data="photos"):
    """A run of three methods on six images with two seeds, on two pairs; one unit failed, one is not there yet."""
    network = folder / "net.py"
    network.write_text(
        "from torch import nn\n"
        "def make():\n"
        "    print('loaded')\n"
        "    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
        f"    net.input_size = {SIDE}\n"
        "    return net\n",
        encoding="utf-8",
    )
    with remembering():
        load(f"{network}:make")
    (folder / "photos").mkdir()
    for item, name in enumerate(ITEMS):
        pixels = np.full((20, 24, 3), 40 * item, np.uint8)
        pixels[5:15, 5:15, 0] = 200
        Image.fromarray(pixels).save(folder / "photos" / name)
    lines = ['name = "a run"', f"seeds = {list(SEEDS)}", f"keep_maps = {str(keep_maps).lower()}"]
    for name, place in zip(pairs, (data, "nowhere"), strict=True):
        lines.append(f'[[pairs]]\nmodel = "{network}:make"\ndata = "{folder / place}"\nname = {json.dumps(name)}')
    lines += [f'[[methods]]\nname = "{name}"\nlabel = "{label}"' for label, name in METHODS.items()]
    lines.append(f"[metrics]\nprotocols = {list(protocols)}\n[black_image]\ntrials = 4")
    plan = parse_plan("\n".join(lines))
    links, outcomes = [], []
    for pair in range(2):
        for place, label in enumerate(METHODS):
            for item in range(len(ITEMS)):
                for seed in SEEDS:
                    links.append((pair, place, ITEMS[item], seed, "map", key_of(pair, label, item, seed)))
                    if (label, item, seed) != WAITING or pair:
                        outcomes.append(outcome(pair, label, item, seed, protocols))
            for trial in range(4) if label.startswith("FEI") else ():
                key = key_of("black", pair, label, trial)
                links.append((pair, place, str(trial), 0, "black-image", key))
                fired = float(label == "FEI-NONE" and trial != 3)
                outcomes.append(
                    Outcome(key, "black-image", "model", "", str(trial), METHODS[label], "{}", 0, "done",
                            scores=(("fired", "", "", fired), ("phi", "", "", fired)))
                )  # fmt: skip
    store = Store.create(folder / "run", plan)
    store.link(links, layers=[["layer9", "layer10"]] * 2)
    store.commit(outcomes)
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with benchmark(tmp_path_factory.mktemp("bench")) as store:
        yield store


@pytest.fixture(scope="module")
def data(store):
    return data_of(bench_html(store))


@dataclass
class Unpacked:
    """A pair of the page, read as the page reads it."""

    pair: dict

    def text(self, name):
        return unpacked(self.pair[name], np.uint8).tobytes().decode().split("\n")

    def values(self, metric, protocol="", layer=""):
        shape = (len(self.pair["quantities"]), len(METHODS), len(ITEMS), len(SEEDS))
        values = unpacked(self.pair["values"], np.float32).reshape(shape)
        return values[self.pair["quantities"].index([metric, protocol, layer])]


# Numbers


def test_every_number_of_every_unit_is_on_the_page(data):
    for number, pair in enumerate(data["pairs"]):
        found = Unpacked(pair).values("insertion", PROTOCOL)
        for row, label in enumerate(METHODS):
            for item in range(len(ITEMS)):
                for column, seed in enumerate(SEEDS):
                    if number == 0 and (label, item, seed) in (FAILED, WAITING):
                        assert np.isnan(found[row, item, column])
                    else:
                        expected = np.float32(insertion(label, item, seed, number))
                        assert found[row, item, column] == expected
        assert Unpacked(pair).values("mse", OTHER, "layer9")[1, 3, 0] == np.float32(3 * mse("FEI-VM", 3))
        assert Unpacked(pair).values("seconds")[1, 3, 0] == 1.5


def test_the_table_is_the_reports(data, store):
    columns = {(column["metric"], column["protocol"]): place for place, column in enumerate(data["columns"])}
    external = table(store, "external")
    for column, cells in zip(external.columns, zip(*external.cells, strict=True), strict=True):
        place = columns[column.quantity.metric, column.quantity.protocol]
        assert data["columns"][place]["better"] is column.higher_is_better
        for cell, row in zip(cells, data["pairs"][column.pair]["estimates"], strict=True):
            estimate = cell.estimate
            assert row[place] == pytest.approx([estimate.mean, estimate.low, estimate.high, estimate.images], rel=1e-6)
    mean = np.mean([0.2 + 0.05 * item for item in range(6)] + [0.21 + 0.05 * item for item in range(6) if item != 4])
    by_seed = np.mean(
        [np.mean([0.2 + 0.05 * i for i in range(6)]), np.mean([0.21 + 0.05 * i for i in (0, 1, 2, 3, 5)])]
    )
    assert mean != pytest.approx(by_seed)  # the one that is waiting makes a difference between these two
    assert data["pairs"][0]["estimates"][1][columns["insertion", PROTOCOL]][0] == pytest.approx(by_seed, rel=1e-6)


def test_metrics_with_layers_stand_in_the_table_with_their_deepest(data):
    place = next(place for place, column in enumerate(data["columns"]) if column["metric"] == "mse")
    pair = data["pairs"][0]
    assert pair["quantities"][pair["columns"][place]] == ["mse", data["columns"][place]["protocol"], "layer10"]
    assert pair["estimates"][2][place][0] == pytest.approx(8 * np.mean([1, 2, 3, 4, 5, 6]), rel=1e-6)
    layers = [layer for metric, protocol, layer in pair["quantities"] if (metric, protocol) == ("mse", PROTOCOL)]
    assert layers == ["layer9", "layer10"]  # shallow to deep, not by the alphabet


def test_black_images_have_their_rate_with_wilsons_interval(data):
    assert data["pairs"][0]["fired"] == {
        "1": pytest.approx([0, *wilson_interval(0, 4), 4]),
        "2": pytest.approx([0.75, *wilson_interval(3, 4), 4]),
    }


def test_images_have_a_class_a_probability_and_a_verdict(data):
    pair = data["pairs"][0]
    assert Unpacked(pair).text("items") == ITEMS
    assert [pair["classes"][i] for i in unpacked(pair["class"], np.uint16)] == CLASSES
    np.testing.assert_allclose(unpacked(pair["probability"], np.float32), 0.5 + np.arange(6) / 20)
    assert unpacked(pair["correct"], np.uint8).tolist() == [int(correct) for correct in CORRECT]


def test_units_have_a_key_that_the_command_line_takes_and_a_state(data, store):
    from fei.cli._bench_unit import unit_document

    pair = Unpacked(data["pairs"][0])
    keys, states = pair.text("keys"), unpacked(pair.pair["states"], np.uint16)
    place = (1 * len(ITEMS) + 3) * len(SEEDS) + 1  # the second method, the fourth image, the second seed
    assert unit_document(store, keys[place])["unit"] == key_of(0, "FEI-VM", 3, 7)
    states = states.reshape(len(METHODS), len(ITEMS), len(SEEDS))
    assert states[0, 5, 1] == 2
    assert pair.pair["reasons"] == ["the disk is full"]
    assert states[1, 4, 1] == 1
    assert (states > 0).sum() == 2
    assert data["counts"] == {"done": 2 * 36 - 2 + 16, "failed": 1, "waiting": 1}
    assert pair.pair["settings"][1] == {"steps": 3}


def test_curves_are_there_to_four_digits(data):
    pair = data["pairs"][0]
    curves = {(curve["protocol"], curve["name"]): curve for curve in pair["curves"]}
    assert set(curves) == {(p, name) for p in (PROTOCOL, OTHER) for name in ("insertion", "deletion")}
    curve = curves[PROTOCOL, "insertion"]
    assert (curve["fractions"], curve["points"]) == (FRACTIONS, 3)
    levels = unpacked(curve["levels"], np.uint16).reshape(len(METHODS), len(ITEMS), len(SEEDS), 3)
    level = insertion("FEI-NONE", 2, 0)
    scores = curve["low"] + levels[2, 2, 0] / 65534 * (curve["high"] - curve["low"])
    np.testing.assert_allclose(scores, [level, level / 2, 0], atol=1e-5)
    assert (levels[0, 5, 1] == 65535).all()  # it failed


def test_long_curves_are_thinned_and_keep_their_ends():
    from fei.bench.report._page_numbers import Units, _curves

    fractions = np.linspace(0, 1, 225)

    class Runs:
        def rows(self, *_):
            return [
                (0, "a", 0, PROTOCOL, "insertion", json.dumps(fractions.tolist()), json.dumps((2 * fractions).tolist()))
            ]

    (curve,) = _curves(Runs(), 0, Units([0], ["a"], (0,)))
    assert (len(curve["fractions"]), curve["points"]) == (33, 225)
    assert (curve["fractions"][0], curve["fractions"][-1]) == (0, 1)
    scores = curve["low"] + unpacked(curve["levels"], np.uint16) / 65534 * (curve["high"] - curve["low"])
    np.testing.assert_allclose(scores, 2 * np.array(curve["fractions"]), atol=1e-4)


def test_a_thousand_images_of_sixteen_methods_stay_below_the_limit(tmp_path, monkeypatch):
    """A quarter of them below a quarter of it: nothing on the page grows faster than the number of images."""
    labels = [f"method {number}" for number in range(16)]
    plan = parse_plan(
        f'name = "many"\n[[pairs]]\nmodel = "efficientnet_lite0"\ndata = "{tmp_path}"\nname = "pair"\n'
        + "\n".join(f'[[methods]]\nname = "saliency"\nlabel = "{label}"' for label in labels)
    )
    draw = np.random.default_rng(0)
    links, outcomes = [], []
    for row in range(16):
        for item in range(250):
            key, name = key_of(row, item), f"n{item:08d}/ILSVRC2012_val_{item:08d}.JPEG"
            links.append((0, row, name, 0, "map", key))
            scores = [(metric, PROTOCOL, "", draw.random()) for metric in ("insertion", "deletion", "ties")]
            scores += [
                (m, PROTOCOL, f"features.{i}", draw.random()) for m in ("mse", "cosine", "pearson") for i in range(5)
            ]
            curves = [
                (PROTOCOL, name, np.arange(9).tolist(), draw.random(9).tolist()) for name in ("insertion", "deletion")
            ]
            facts = {"target": item, "label": f"class {item % 300}", "correct": bool(item % 3), "probability": 0.5}
            cost = {
                "seconds": draw.random(),
                "forwards": 9,
                "backwards": 5,
                "scores": tuple(scores),
                "curves": tuple(curves),
            }
            outcomes.append(Outcome(key, "map", "m", "d", name, "saliency", "{}", 0, "done", **facts, **cost))
    monkeypatch.setattr(_statistics, "bootstrap_interval", lambda values: (min(values), max(values)))  # 20 s otherwise
    with Store.create(tmp_path / "run", plan) as store:
        store.link(links, layers=[[f"features.{i}" for i in range(5)]])
        store.commit(outcomes)
        file = write_bench_page(tmp_path / "page.html", store)
    assert 4 * file.stat().st_size < 5_000_000


# Pictures


def picture_of(address):
    kind, text = re.fullmatch(r"data:image/(\w+);base64,(.*)", address).groups()
    return kind, Image.open(io.BytesIO(base64.b64decode(text)))


def test_maps_are_in_the_colours_of_the_explorer(data):
    found = data["pictures"][0]
    assert set(found["maps"]) == {f"{item},{row}" for item in range(6) for row in range(3)}
    kind, picture = picture_of(found["maps"]["2,1"])
    assert kind == "png"
    values = attribution("FEI-VM", 2)
    low, high = np.percentile(values, (1, 99))
    colours = matplotlib.colormaps["inferno"](((values - low) / (high - low)).clip(0, 1), bytes=True)[..., :3]
    assert np.abs(np.asarray(picture.convert("RGB")).astype(int) - colours).max() <= 12  # 64 steps


def test_photographs_are_what_the_network_saw(data, store):
    kind, picture = picture_of(data["pictures"][0]["photographs"]["2"])
    assert (kind, picture.size) == ("jpeg", (SIDE, SIDE))
    seen = load(store.plan.pairs[0].model).preprocess(store.folder.parent / "photos" / "2.png").permute(1, 2, 0)
    assert np.abs(np.asarray(picture) / 255 - seen.numpy()).mean() < 0.03


def test_photographs_that_are_gone_leave_the_maps_and_a_word(data):
    gone = data["pictures"][1]
    assert gone["photographs"] == {}
    assert len(gone["maps"]) == 18
    assert re.match(r"The photographs cannot be read: .*nowhere", gone["word"])


def test_what_does_not_fit_is_left_out_best_images_first(store):
    numbers = Numbers(store)
    whole = pictures(store, numbers, 10_000_000)[0]
    sizes = {
        place: sum(len(text) for name, text in whole["maps"].items() if name.startswith(f"{place},"))
        for place in range(6)
    }
    room = sum(
        sizes[place] + len(whole["photographs"][str(place)]) for place in (0, 1)
    )  # insertion grows with the number
    found = pictures(store, numbers, 2 * room)[0]  # each of the two pairs has half
    assert sorted(found["photographs"]) == ["0", "1"]
    assert found["left_out"] == (
        "Pictures of 4 of 6 images are left out to keep this file below 16 MB; those whose insertion is worst, "
        "over all methods, are here."
    )
    assert whole["left_out"] == ""


def test_a_page_stays_below_its_limit(store, monkeypatch):
    full = len(bench_html(store).encode())
    monkeypatch.setattr(bench_page, "LARGEST", 0)
    page = bench_html(store)
    assert len(page.encode()) < full
    assert data_of(page)["pictures"][0]["maps"] == {}
    monkeypatch.undo()
    assert full < bench_page.LARGEST


def test_where_maps_are_not_kept_a_word_says_so(tmp_path):
    with benchmark(tmp_path, keep_maps=False) as store:
        found = data_of(bench_html(store))["pictures"]
    assert found[0]["maps"] == {}
    assert found[0]["word"].startswith("The plan does not keep maps; set keep_maps = true")


# The file


def test_the_page_runs_nothing_but_its_own_code(store):
    page = bench_html(store)
    check_policy(page)
    assert not re.search(r"""(src|href)=["']?https?:""", page)


def test_a_hostile_name_cannot_leave_the_data(tmp_path):
    with benchmark(tmp_path, pairs=(HOSTILE.replace("\u2028", ""), "other"), keep_maps=False) as store:
        page = bench_html(store)
    assert page.lower().count("<script") == page.lower().count("</script") == 2
    assert data_of(page)["pairs"][0]["name"] == HOSTILE.replace("\u2028", "")


def test_a_run_that_only_begun_has_a_page_too(tmp_path):
    plan = parse_plan(
        f'name = "new"\n[[pairs]]\nmodel = "efficientnet_lite0"\ndata = "{tmp_path}"\nname = "pair"\n'
        '[[methods]]\nname = "saliency"'
    )
    with Store.create(tmp_path / "run", plan) as store:
        data = data_of(bench_html(store))
        assert (data["columns"], data["pairs"][0]["images"]) == ([], 0)
        with pytest.raises(
            InputError, match="folder '.*nowhere' for the page of the run does not exist; make it first"
        ):
            write_bench_page(tmp_path / "nowhere" / "page.html", store)


def test_the_command_writes_the_page_beside_the_report(tmp_path, monkeypatch, capsys, coarse_reports):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NETWORK, encoding="utf-8")
    (tmp_path / "plan.toml").write_text(PLAN.replace("retries = 0", "retries = 0\nkeep_maps = true"), encoding="utf-8")
    (tmp_path / "photos").mkdir()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 20, 3), dtype=np.uint8)).save("photos/a.png")
    assert fei("bench", "run", "plan.toml", "--out", "r") == 0
    assert fei("bench", "report", "r") == 0
    assert not (tmp_path / "r" / "report" / "report.html").exists()
    capsys.readouterr()
    assert fei("bench", "report", "r", "--html", "--json") == 0
    printed = json.loads(capsys.readouterr().out)  # what the network prints is no result
    assert printed["page"] == "r/report/report.html"
    data = data_of((tmp_path / printed["page"]).read_text(encoding="utf-8"))
    assert len(data["pictures"][0]["maps"]) == 2
    key = zlib.decompress(base64.b64decode(data["pairs"][0]["keys"])).decode().split("\n")[0]
    assert fei("reproduce", f"r#{key}") == 0


def test_intervals_of_the_table_are_bootstrap_intervals(data):
    place = next(
        i for i, one in enumerate(data["columns"]) if (one["metric"], one["protocol"]) == ("insertion", PROTOCOL)
    )
    means = [insertion("FEI-NONE", item, 0) + 0.005 for item in range(6)]
    assert data["pairs"][0]["estimates"][2][place][1:3] == pytest.approx(bootstrap_interval(means), rel=1e-6)
