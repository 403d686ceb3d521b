"""What is said with a map: whether anything speaks for the class, what other classes have, what the seed changes."""

import base64
import json
import shlex
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import NETWORK, furnish, run
from networks import pictures, small_cnn
from one_file_pages import data_of
from scipy.stats import rankdata, spearmanr

import fei
from fei.core.evidence import Evidence, presence, silence
from fei.core.explanation import Explanation
from fei.methods.fei import FEIMethod
from fei.models import Classifier
from fei.report.drawing import QUIET
from fei.report.explorer import Panel, Shown
from fei.report.explorer._payload import payload
from fei.report.explorer.shown import Repeated, single
from fei.service import Inquiry, Request, look, record
from fei.service.outputs import class_parts, result_names

pytestmark = pytest.mark.slow

NOTHING = "nothing in this picture speaks for 'striped'"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return furnish(tmp_path, NETWORK, "a.png", "b.png")


@pytest.fixture
def explain(place, capsys):
    """Run ``fei explain`` with two steps: exit code, standard output, standard error."""

    def call(words, method="--method fei-vm --steps 2"):
        code = run("explain", *shlex.split(f"--model net.py:net {method} {words}"))
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def weighed(monkeypatch):
    """Have the masks keep what is given: φ, its chance, and φ of the whole image."""

    def set_to(kept, chance, whole):
        def weigh(self, model, found, target=None):
            rows = len(found.maps)
            several = [torch.tensor([values] * rows, dtype=torch.float64) for values in (kept, chance)]
            return Evidence(*several, torch.full((rows,), whole, dtype=torch.float64))  # type: ignore[call-arg]

        monkeypatch.setattr(FEIMethod, "weigh", weigh)

    return set_to


def read(name, folder="fei-out"):
    return json.loads(Path(folder, f"{name}.json").read_text(encoding="utf-8"))


def inquiry_of(**options):
    classifier = Classifier(small_cnn(), labels=["a", "b", "c", "d"], input_size=12).eval()
    method = fei.methods.create("fei-vm", steps=2)
    inquiry = Inquiry(classifier, {"fei-vm": method}, **options)
    return inquiry, look(classifier, pictures(1))


def page_data(file):
    return data_of(Path(file).read_text(encoding="utf-8"))


# Evidence


def test_the_mask_that_keeps_most_beyond_chance_is_told():
    told = presence([0.9, 0.89, 0.1], [0.8, 0.38, 0.0], [0.9, 0.3, 0.1], 0.95)
    assert told == "30% of the pixels keep 0.89 of its score 0.95 (random masks: 0.38)"
    assert silence("golden retriever", 0.0004) == "nothing in this picture speaks for 'golden retriever' (0.0%)"
    assert silence("class 3") == "nothing in this picture speaks for 'class 3'"


def test_evidence_is_found_with_the_map_and_is_not_counted_in_its_cost(monkeypatch):
    inquiry, seen = inquiry_of(target=2)
    panel = inquiry.find("fei-vm", seen)
    direct = fei.FEI(inquiry.model, "vm", steps=2).explain(seen.inputs, 2)
    assert torch.equal(panel.map, direct.maps[0, 0])
    for name, values in vars(direct.evidence).items():
        assert torch.equal(getattr(panel.explanation.evidence, name), values)
    monkeypatch.delattr(FEIMethod, "weigh")
    without = inquiry.find("fei-vm", seen)
    assert without.explanation.evidence is None
    assert not without.silent
    assert (without.cost.forwards, without.cost.backwards) == (panel.cost.forwards, panel.cost.backwards)


def test_where_the_network_has_no_number_there_is_no_evidence(weighed):
    weighed([float("nan")] * 5, [0.1] * 5, 0.5)
    inquiry, seen = inquiry_of()
    assert inquiry.find("fei-vm", seen).explanation.evidence is None


def test_the_evidence_of_one_of_several_images_is_its_own():
    explanation = fei.FEI(small_cnn(), "vm", steps=1).explain(pictures(2))
    for number in range(2):
        assert torch.equal(single(explanation, number).evidence.kept, explanation.evidence.kept[number : number + 1])


def test_what_was_found_is_in_the_terminal_and_the_record(explain, weighed, monkeypatch):
    weighed([0.2, 0.3, 0.9, 0.2, 0.2], [0.2, 0.2, 0.3, 0.2, 0.2], 0.95)
    drawn = watch_drawing(monkeypatch)
    code, out, _ = explain("a.png")
    assert code == 0
    assert "\n  evidence   50% of the pixels keep 0.90 of its score 0.95 (random masks: 0.30)\n" in out
    assert read("a")["evidence"] == {
        "kept": [0.2, 0.3, 0.9, 0.2, 0.2],
        "chance": [0.2, 0.2, 0.3, 0.2, 0.2],
        "whole": 0.95,
        "found": True,
        "sentence": None,
    }
    assert drawn["details"].startswith("explained: ")
    assert not QUIET.keys() & drawn.keys()
    stored = Explanation.load("fei-out/a.explanation.safetensors")
    assert stored.evidence.kept[0].tolist() == [0.2, 0.3, 0.9, 0.2, 0.2]


def test_where_nothing_was_found_all_of_them_say_so_and_no_noise_is_stretched(explain, weighed, monkeypatch):
    weighed([0.01] * 5, [0.01] * 5, 0.04)
    drawn = watch_drawing(monkeypatch)
    code, out, _ = explain("a.png --target striped --html")
    assert code == 0
    told = read("a")
    sentence = f"{NOTHING} ({told['target']['probability']:.1%})"
    assert f"\n  evidence   {sentence}\n" in out
    assert (told["evidence"]["found"], told["evidence"]["sentence"]) == (False, sentence)
    assert drawn["details"].startswith(f"{sentence}  ·  fei-vm  ·  ")
    assert drawn["span"] == (0.0, 1.0)
    assert drawn["opacity"] < 0.6
    (panel,) = page_data("fei-out/explorer.html")["images"][0]["panels"]
    assert panel["evidence"] == {"found": False, "sentence": sentence}
    assert (panel["low"], panel["high"]) == (0, 1)


def watch_drawing(monkeypatch):
    seen = {}
    draw = record.draw  # type: ignore[attr-defined]
    monkeypatch.setattr(record, "draw", lambda *given, **named: seen.update(named) or draw(*given, **named))
    return seen


def test_a_method_without_masks_has_no_evidence(explain):
    _, out, _ = explain("a.png --html", "--method saliency")
    assert "evidence" not in out
    assert read("a")["evidence"] is None
    assert page_data("fei-out/explorer.html")["images"][0]["panels"][0]["evidence"] is None


def test_a_record_from_before_is_reproduced(explain, capsys):
    explain("a.png")
    old = read("a")
    for name in ("evidence", "stability"):
        del old[name]
    del old["request"]["stability"]
    Path("fei-out/a.json").write_text(json.dumps(old), encoding="utf-8")
    assert run("reproduce", "fei-out/a.json") == 0
    assert "the same bits" in capsys.readouterr().out


# Several classes


def test_several_classes_are_what_each_is_alone_and_cost_less():
    inquiry, seen = inquiry_of()
    together = inquiry.find_classes("fei-vm", seen, [2, 0])
    alone = [replace(inquiry, target=target).find("fei-vm", seen) for target in (2, 0)]
    for mine, other in zip(together, alone, strict=True):
        assert torch.equal(mine.map, other.map)
        assert torch.equal(mine.explanation.evidence.kept, other.explanation.evidence.kept)
        assert mine.explanation.config == other.explanation.config
        assert mine.explanation.target.tolist() == other.explanation.target.tolist()
        assert mine.cost.forwards < other.cost.forwards


@pytest.mark.parametrize("method", ["--method fei-vm --steps 2", "--method rise -o samples=10", "--method saliency"])
def test_explain_takes_several_classes(explain, method):
    code, out, err = explain("a.png b.png --target bright --target 2 --json", method)
    assert (code, err) == (0, "")
    results = json.loads(out)["results"]
    told = [(result["image"]["path"], result["target"]["label"]) for result in results]
    assert told == [("a.png", "bright"), ("a.png", "striped"), ("b.png", "bright"), ("b.png", "striped")]
    assert results[1]["files"]["picture"] == str(Path("fei-out", "a.striped.overlay.png"))
    assert all(Path(file).is_file() for result in results for file in result["files"].values())
    assert [result["request"]["target"] for result in results[:2]] == ["bright", "2"]
    for result in results[:2]:
        assert run(*shlex.split(result["command"])[1:], "--out", "alone", "--force") == 0
        assert np.array_equal(np.load(result["files"]["map"]), np.load("alone/a.map.npy"))
        again = read("a", "alone")
        timeless = {"seconds": 0, "made": ""}
        assert again | timeless == read(f"a.{result['target']['label']}") | timeless


def test_one_image_is_read_once_and_predicted_once_for_all_its_classes(explain, monkeypatch):
    from fei.service import looking

    reads, read_image = [], looking.read_image  # type: ignore[attr-defined]
    monkeypatch.setattr(looking, "read_image", lambda file: reads.append(file) or read_image(file))
    loads, load = [], fei.models.load
    monkeypatch.setattr(fei.models, "load", lambda spec: loads.append(spec) or load(spec))
    assert explain("a.png --target 0 --target 1 --target 2")[0] == 0
    assert (len(reads), loads) == (1, ["net.py:net"])


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [
        ("--target dark --target dark", "The targets 'dark' and 'dark' are the same class, 0; give each class once."),
        ("--target bright --target 1", "The targets 'bright' and '1' are the same class, 1; give each class once."),
        ("--target dark --target strippd", "No class is called 'strippd'; did you mean 'striped' (2)?"),
        ("--target dark --target 7", "There is no class 7; the classes are numbered 0 to 2."),
    ],
)
def test_a_wrong_class_among_several_is_one_sentence_and_nothing_is_lost(explain, targets, sentence):
    explain("a.png --target dark --target bright")
    before = {file.name: file.read_bytes() for file in Path("fei-out").iterdir()}
    assert explain(f"a.png {targets}") == (2, "", f"error: {sentence}\n")
    assert {file.name: file.read_bytes() for file in Path("fei-out").iterdir()} == before


def test_names_of_several_classes():
    assert class_parts([(285, "Egyptian cat")]) == [""]
    assert class_parts([(285, "Egyptian cat"), (281, "tabby, tabby cat")]) == [".egyptian-cat", ".tabby"]
    assert class_parts([(134, "crane"), (517, "Crane"), (3, "x")]) == [".crane-134", ".crane-517", ".x-3"]
    assert class_parts([(0, "../.."), (1, "a/b\\c:d"), (2, "")]) == [".-0", ".a-b-c-d-1", ".-2"]
    assert [len(part) for part in class_parts([(0, "a" * 300), (1, "b")])] == [41, 2]


def test_the_results_of_a_class_never_replace_an_image(tmp_path):
    images = [tmp_path / "cat.jpg", tmp_path / "cat.tabby.overlay.png"]
    assert result_names(images, tmp_path, [".tabby", ".crane"]) == ["cat-2", "cat.tabby.overlay"]


def test_all_classes_of_an_image_are_on_one_page_which_its_command_makes_again(explain):
    assert explain("a.png b.png --target striped --target dark --html")[0] == 0
    images = page_data("fei-out/explorer.html")["images"]
    assert [(image["name"], image["target"]["label"], image["photograph"]) for image in images] == [
        ("a.png", "striped", 0),
        ("a.png", "dark", 0),
        ("b.png", "striped", 2),
        ("b.png", "dark", 2),
    ]
    assert images[0]["command"] == images[1]["command"]
    assert run(*shlex.split(images[0]["command"])[1:], "--out", "again") == 0
    again = page_data("again/explorer.html")["images"]
    assert [one["target"] for one in again] == [one["target"] for one in images[:2]]
    assert [one["panels"][0]["values"] for one in again] == [one["panels"][0]["values"] for one in images[:2]]


def test_one_class_of_one_image_twice_is_no_choice_of_classes():
    image = torch.rand(3, 4, 4)
    one = Shown("n", image, 0, "x", [Panel("m", torch.rand(4, 4))], torch.zeros(3, 1, 1))
    shown = [one, replace(one, target=1), one, replace(one, image=image / 2), replace(one, name="o")]
    assert [image["photograph"] for image in payload(shown)["images"]] == [0, 0, 2, 3, 4]


# Stability


def test_stability_is_the_rank_correlation_with_the_next_seed(explain):
    code, out, _ = explain("a.png --target dark --target bright --seed 3 --stability --html")
    assert code == 0
    first = np.load("fei-out/a.bright.map.npy")
    told = read("a.bright")
    assert told["request"]["stability"] is True
    assert told["command"].endswith(" --stability")
    explain("a.png --target bright --seed 4 --out next")
    second = np.load("next/a.map.npy")
    assert told["stability"] == {"seed": 4, "correlation": pytest.approx(spearmanr(first.ravel(), second.ravel())[0])}
    assert f"\n  stability  rank correlation {told['stability']['correlation']:.2f} with seed 4\n" in out
    image = page_data("fei-out/explorer.html")["images"][1]
    sent = image["panels"][0]["repeated"]
    assert (sent["seed"], sent["correlation"]) == (4, pytest.approx(told["stability"]["correlation"]))
    moved = np.abs(rankdata(first) - rankdata(second)) / 255  # 16 × 16 pixels
    changes = np.frombuffer(zlib.decompress(base64.b64decode(sent["changes"])), np.uint8)
    assert (changes == np.rint(255 * moved)).all()
    assert shlex.split(image["command"])[-4:] == ["--stability", "--target", "bright", "--html"]


def test_without_the_option_the_map_is_made_once(explain):
    explain("a.png --html")
    assert read("a")["stability"] is None
    assert page_data("fei-out/explorer.html")["images"][0]["panels"][0]["repeated"] is None


def test_a_method_that_draws_nothing_does_not_change_with_the_seed(explain):
    _, out, _ = explain("a.png --stability", "--method saliency")
    assert read("a")["stability"] == {"seed": 1, "correlation": 1.0}
    assert "rank correlation 1.00 with seed 1" in out


def test_the_last_seed_is_followed_by_the_first(explain):
    assert explain(f"a.png --stability --seed {2**63 - 1}", "--method saliency")[0] == 0
    assert read("a")["stability"]["seed"] == 0


def test_a_map_of_one_pixel_does_not_move():
    again = Repeated(1, torch.ones(1, 1), 0.0)
    one = Shown("n", torch.rand(3, 1, 1), 0, "x", [Panel("m", torch.zeros(1, 1), repeated=again)], torch.zeros(3, 1, 1))
    assert payload([one])["images"][0]["panels"][0]["repeated"]["correlation"] == 0


def test_a_request_says_whether_stability_was_asked_for():
    request = Request.of("net.py:net", ["saliency"], stability=True)
    assert shlex.split(request.command("a.png"))[-1] == "--stability"
    assert Request.from_data(request.model_dump(mode="json")) == request
