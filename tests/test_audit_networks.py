"""Audits of networks whose answers are known, and how they go on where they stopped."""

import itertools
import re
import shutil
import sqlite3
from pathlib import Path

import audited
import pytest
import torch
from PIL import Image

import fei
from fei.bench import LocalEngine
from fei.bench.engine.worker import Worker
from fei.errors import InputError

pytestmark = pytest.mark.slow

LONG = "10m"


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    return audited.make(tmp_path_factory.mktemp("nets"))


@pytest.fixture(scope="module")
def seeing(nets, tmp_path_factory):
    """A network with six layers that finds coloured discs."""
    return audit(nets, "seeing", tmp_path_factory.mktemp("seeing"), ["gradcam", "guided-backprop", "random"])


def audit(nets, network, out, methods, pictures="pictures", **more):
    spec, data = f"{nets / 'nets.py'}:{network}", f"imagefolder:{nets / pictures}"
    return fei.audit(spec, data, methods=methods, out=out, **{"budget": LONG, "device": "cpu"} | more)


def answers(found, method):
    return {question.name: found.verdict(method, question.name).answer for question in found.questions}


def sentences(found):
    return {remark.name: remark.sentence for remark in found.remarks}


def test_what_looks_at_the_image_alone_fails_class_and_weights(seeing):
    found = answers(seeing, "guided-backprop")
    assert (found["class"], found["weights"], found["seed"]) == ("fail", "fail", "pass")
    assert seeing.recommended == "gradcam"
    assert answers(seeing, "gradcam")["class"] == answers(seeing, "gradcam")["weights"] == "pass"


def test_noise_fails_whatever_applies(seeing):
    found = answers(seeing, "random")
    assert found.pop("black") == "none"
    assert set(found.values()) == {"fail"}


def test_a_plain_network_gets_no_remark(seeing):
    assert sentences(seeing) == {}
    assert seeing.looked.right == seeing.looked.images


def test_a_network_that_ignores_half_of_the_image(nets, tmp_path):
    found = audit(nets, "half", tmp_path, ["gradcam"], require="score")
    assert sentences(found).keys() == {"ignores"}
    assert "the right half" in sentences(found)["ignores"]
    assert "8 of 16 parts" in sentences(found)["ignores"]


def test_a_linear_network(nets, tmp_path):
    found = audit(nets, "linear", tmp_path, ["saliency", "random"])
    assert sentences(found).keys() == {"linear"}
    expected = {"class": "pass", "weights": "pass", "seed": "pass", "score": "pass", "inside": "none", "black": "none"}
    assert answers(found, "saliency").items() >= expected.items()
    assert set(answers(found, "random").values()) == {"fail", "none"}


def test_a_network_that_reads_a_stamp(nets, tmp_path):
    found = audit(nets, "stamped", tmp_path, ["saliency"], "stamped-pictures", require=("controls", "score"))
    assert sentences(found).keys() == {"decides"}
    assert "row 1, column 1 of 4 × 4" in sentences(found)["decides"]
    assert answers(found, "saliency") == {"controls": "pass", "score": "pass"}


def test_masks_are_tried_on_black_images(nets, tmp_path):
    found = audit(nets, "seeing", tmp_path, ["fei-none"], options={"fei-none": {"steps": 3}}, require="black")
    verdict = found.verdict("fei-none", "black")
    assert verdict.n >= 5
    assert verdict.answer in ("fail", "unknown")


# What cannot be audited


def test_random_weights_are_told(nets, tmp_path):
    with pytest.raises(
        InputError, match=r"right on \d of 16 images, which is chance for 4 classes, as with random weig"
    ):
        audit(nets, "untrained", tmp_path, ["gradcam"])
    assert list(tmp_path.iterdir()) == []


def test_too_few_images(nets, tmp_path):
    few = tmp_path / "few"
    few.mkdir()
    for number in range(3):
        Image.new("RGB", (30, 30)).save(few / f"{number}.png")
    with pytest.raises(InputError, match="An audit of 3 images could answer nothing; give at least 5"):
        fei.audit(f"{nets / 'nets.py'}:seeing", few, out=tmp_path)


def test_images_of_one_class(nets, tmp_path):
    shutil.copytree(nets / "pictures" / "red", tmp_path / "red")
    shutil.copy(tmp_path / "red" / "002.png", tmp_path / "red" / "again.png")
    with pytest.raises(InputError, match="sees one class only, 'red', in all 5 images; give images of at least two"):
        fei.audit(f"{nets / 'nets.py'}:seeing", tmp_path / "red", out=tmp_path)


def test_a_budget_that_is_too_short(nets, tmp_path):
    clock = itertools.count(step=2)  # two seconds pass with each look at it
    with pytest.raises(InputError, match="too short for a single method: gradcam takes about .*; give at least"):
        audit(nets, "seeing", tmp_path, ["gradcam"], budget="10s", clock=lambda: next(clock))
    with pytest.raises(InputError, match="The budget of 4 s was over before anything could be measured; give at"):
        audit(nets, "seeing", tmp_path, ["gradcam"], budget="4s")


def test_names_that_do_not_exist(nets, tmp_path):
    with pytest.raises(InputError, match="did you mean gradcam"):
        audit(nets, "seeing", tmp_path, ["gradcamm"])
    with pytest.raises(InputError, match="no question 'colour'"):
        audit(nets, "seeing", tmp_path, ["gradcam"], require="colour")


# Going on


@pytest.fixture
def computed(monkeypatch):
    """What is computed: unit and score group."""
    seen, compute = [], Worker.compute

    def noted(self, unit):
        seen.extend((unit.key, group) for group in unit.scores)
        return compute(self, unit)

    monkeypatch.setattr(Worker, "compute", noted)
    return seen


def test_a_budget_that_ends_within_the_first_method_is_no_loss(nets, tmp_path, computed):
    with pytest.raises(InputError, match=r"\(gradcam: not finished, \d of 5 images: .*\); give the same command again"):
        audit(nets, "seeing", tmp_path, ["gradcam"], clock=lambda: 0.0 if len(computed) < 9 else 1e4)
    found = audit(nets, "seeing", tmp_path, ["gradcam"], require="class,weights,seed")
    assert answers(found, "gradcam")["seed"] == "pass"
    assert len(set(computed)) == len(computed)


def test_nothing_is_computed_twice(nets, tmp_path, computed):
    """Also not after Ctrl-C, with other methods, or with a longer budget."""

    def interrupt(text):
        if "✓" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(nets, "seeing", tmp_path, ["gradcam"], tell=interrupt)
    before = len(computed)
    assert before
    first = audit(nets, "seeing", tmp_path, ["gradcam"])
    assert len(computed) > before
    again = audit(nets, "seeing", tmp_path, ["gradcam"])
    assert again.computed == 0
    assert answers(again, "gradcam") == answers(first, "gradcam")
    more = audit(nets, "seeing", tmp_path, ["gradcam", "saliency"], require="class,seed")
    assert more.computed
    assert len(set(computed)) == len(computed)


def test_the_results_are_a_run_of_the_benchmark(seeing):
    with sqlite3.connect(seeing.folder / "run.sqlite") as run:
        rows = run.execute("SELECT method, metric, avg(value) FROM results GROUP BY method, metric").fetchall()
    means = {(method, metric): value for method, metric, value in rows}
    assert means["gradcam", "stability"] == pytest.approx(1.0)
    assert means["random", "random_class"] == pytest.approx(1.0)


def test_workers_find_the_same(nets, tmp_path):
    here = audit(nets, "seeing", tmp_path / "here", ["saliency"], require="class")
    there = audit(nets, "seeing", tmp_path / "there", ["saliency"], require="class", engine=LocalEngine(1, threads=1))
    one, other = (found.measured.scores for found in (here, there))
    for place in one.keys() & other.keys():
        common = one[place].keys() & other[place].keys()
        assert [one[place][name] for name in common] == pytest.approx([other[place][name] for name in common], abs=1e-5)
    assert answers(there, "saliency")["class"] == answers(here, "saliency")["class"]


def test_a_loaded_network_will_do(nets, tmp_path):
    network = fei.models.load(f"{nets / 'nets.py'}:seeing")
    found = fei.audit(network, nets / "pictures", methods=["saliency"], require="seed", out=tmp_path, budget=LONG)
    assert found.looked.right is None  # a plain folder has no labels
    assert repr(found).startswith("Audit(")
    with pytest.raises(InputError, match="load it with fei.models.load"):
        fei.audit(fei.models.Classifier(torch.nn.Flatten()), nets / "pictures")


def test_the_python_of_the_page_on_audits_runs(nets, tmp_path):
    page = Path(__file__).parents[1] / "docs" / "audit.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    given = {"fei": fei, "network": f"{nets / 'nets.py'}:linear", "data": f"imagefolder:{nets / 'pictures'}"}
    more = {"methods": ["saliency"], "out": tmp_path, "device": "cpu"}
    exec(code.replace('"efficientnet_lite0", "photos/",', "network, data, **more,"), given | {"more": more})
    assert list(tmp_path.glob("audit-*/audit.html"))
