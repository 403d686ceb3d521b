"""`fei serve` without a server: limits, photos, runs, visitors and the files of a run."""

import io
import json
import os
import re
import subprocess
import sys
import threading
import zipfile

import numpy as np
import pytest
import torch
from page_server import NETWORKS, png
from PIL import Image
from waiting import until

import fei
from fei.app import decoding, photos, runs
from fei.app.desk import Desk, Visits
from fei.app.limits import Limits, one_of, some_of, whole_number
from fei.app.photos import load_networks, read_photo
from fei.app.runs import DONE, STOPPED, Lane, PageRun, show_masks
from fei.app.server import private_folder
from fei.errors import DataError, InputError, ModelError
from fei.service import Request

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


@pytest.fixture(scope="session")
def offered(network_file):
    return load_networks([f"{network_file}:{name}" for name in ("tiny", "slow")], CPU)


@pytest.fixture(scope="session")
def tiny(offered):
    return offered["nets.py:tiny"]


@pytest.fixture(scope="session")
def slow(offered):
    return offered["nets.py:slow"]


@pytest.fixture
def photo(tmp_path, offered):
    (tmp_path / "session").mkdir()
    return read_photo(png(), tmp_path / "session", offered, 10**6)


def run_of(network, photo, *names, seed=0, seconds=60):
    request = Request.of(network.spec, names, {"preset": "fast"}, lenient=True, target="3", seed=seed, device=CPU.type)
    seen = photo.looks[":".join(part.rpartition("/")[2] for part in network.spec.split(":"))]
    return PageRun(network.classifier, [request], photo, seen, "me", seconds)


# --- what visitors may ask for


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"upload_bytes": 0}, "The option --max-upload-mb is 0; give a number above 0, at most 500."),
        ({"pixels": 10**9}, "The option --max-pixels is 1000000000; give a number from 1 to 120000000."),
        ({"seconds": float("nan")}, "The option --max-seconds is nan; give a number of seconds above 0."),
        ({"queue": -1}, "The option --queue is -1; give a whole number, and not a negative one."),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits, sentence):
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        Limits(**limits)


@pytest.mark.parametrize("value", ["../../etc/passwd", "os:system", "", None, 3, ["a"], {"a": 1}, b"a", True])
def test_only_what_is_offered_can_be_chosen(value):
    assert one_of("network", "b", ("a", "b")) == "b"
    with pytest.raises(InputError, match=r"^There is no such network; choose one of a, b\.$"):
        one_of("network", value, ("a", "b"))
    with pytest.raises(InputError, match="method"):
        some_of("method", [value], ("a", "b"))


def test_methods_are_taken_once_each_in_the_known_order():
    assert some_of("method", ["c", "a", "c"], ("a", "b", "c")) == ("a", "c")
    for nothing in ([], None, "a", {}):
        with pytest.raises(InputError, match="No method is chosen"):
            some_of("method", nothing, ("a",))


@pytest.mark.parametrize("value", [-1, 8, 1.5, float("nan"), float("inf"), True, "1", None, [1]])
def test_a_number_is_whole_and_in_range(value):
    assert whole_number("seed", 7.0, 8) == 7
    with pytest.raises(
        InputError, match=r"^The seed is not one that can be chosen; give a whole number from 0 to 7\.$"
    ):
        whole_number("seed", value, 8)


@pytest.mark.parametrize(
    ("content", "pixels", "sentence"),
    [
        (b"no image at all", 10**6, "The photo cannot be read as an image: it is damaged"),
        (png()[:70], 10**6, "The photo cannot be read as an image: it is damaged"),
        (b"", 10**6, "The photo cannot be read as an image"),
        (png((100, 100)), 9_999, "The photo has more than 0.01 million pixels; save it smaller."),
    ],
)
def test_a_photo_that_cannot_be_used_is_told_in_a_sentence_and_not_kept(tmp_path, content, pixels, sentence):
    visits = Visits(tmp_path, 2, 20)
    desk = Desk({}, [], Limits(pixels=pixels), visits, Lane(0))
    with pytest.raises(DataError) as caught:
        desk.take_photo("me", content)
    assert str(caught.value).startswith(sentence)
    assert str(tmp_path) not in str(caught.value)
    assert list(visits.enter("me").folder.iterdir()) == []


@pytest.mark.parametrize(("kind", "ending"), [("PNG", ".png"), ("JPEG", ".jpg"), ("WEBP", ".webp"), ("TIFF", ".tif")])
def test_a_photo_is_kept_as_it_came_under_a_name_of_ours(tmp_path, offered, kind, ending):
    kept = read_photo(png(kind=kind), tmp_path, offered, 10**6)
    assert kept.file == tmp_path / f"photo{ending}"
    assert kept.file.read_bytes() == png(kind=kind)
    assert {look.size for look in kept.looks.values()} == {(30, 40)}


def test_a_photo_is_decoded_once_and_predicted_once_for_each_network(tmp_path, tiny, slow, monkeypatch):
    decoded, predicted = [], []
    read, look = decoding.read_image, photos.look  # type: ignore[attr-defined]

    def count_look(model, image, **named):
        predicted.append(model)
        return look(model, image, **named)

    monkeypatch.setattr(decoding, "read_image", lambda *given, **named: decoded.append(given) or read(*given, **named))
    monkeypatch.setattr(photos, "look", count_look)
    for inner in ("looking.read_image", "looking.look", "_collect.look"):  # nor by the service
        monkeypatch.setattr(f"fei.service.{inner}", lambda *given, **_: pytest.fail("looked again"))
    photo = read_photo(png(), tmp_path, {"nets.py:tiny": tiny, "nets.py:slow": slow}, 10**6)
    for _ in range(2):
        job = run_of(tiny, photo, "random")
        job.run()
        assert job.state == DONE
    assert len(decoded) == 1
    assert predicted == [tiny.twin, slow.twin]


def test_networks_are_called_by_names_without_folders(network_file, tmp_path):
    other = tmp_path / "nets.py"
    other.write_text(NETWORKS, encoding="utf-8")
    networks = load_networks([f"{network_file}:tiny", f"{other}:tiny", f"{network_file}:tiny"], CPU)
    assert list(networks) == ["nets.py:tiny", "nets.py:tiny (2)"]
    assert networks["nets.py:tiny (2)"].spec == f"{other}:tiny"


def test_a_network_that_does_not_work_is_told_at_the_start(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("from torch import nn\ndef bad():\n    return nn.Conv2d(3, 4, 3)\n", encoding="utf-8")
    with pytest.raises(
        ModelError, match=r"bad.py:bad' returns the shape .* it must return logits of shape \(1, classes\)"
    ):
        load_networks([f"{file}:bad"], CPU)


def test_a_network_that_fails_on_a_photo_is_told_and_the_others_are_offered(tmp_path, network_file, capsys):
    networks = load_networks([f"{network_file}:{name}" for name in ("tiny", "picky")], CPU)
    photo = read_photo(png(), tmp_path, networks, 10**6)
    sentence = "This network fails on the photo (KeyError); the server's terminal shows more."
    assert photo.looks["nets.py:picky"] == sentence
    assert "/a/secret/path" in capsys.readouterr().err
    assert len(photo.told()["classes"]["nets.py:tiny"]) == 5


def test_the_classes_offered_are_those_of_the_networks_own_softmax(tiny, photo):
    guesses = photo.told()["classes"]["nets.py:tiny"]
    image = Image.open(io.BytesIO(png())).convert("RGB")
    logits = tiny.classifier(tiny.classifier.preprocess(image)[None])[0]
    probabilities = (logits.exp() / logits.exp().sum()).tolist()
    best = sorted(range(7), key=lambda i: -probabilities[i])[:5]
    assert [guess["index"] for guess in guesses] == best
    assert [guess["probability"] for guess in guesses] == pytest.approx([probabilities[i] for i in best], rel=1e-5)


# --- runs


def test_a_run_finds_what_the_methods_find_without_it(tiny, photo):
    job = run_of(tiny, photo, "fei-vm", "saliency", seed=5)
    job.run()
    assert job.state == DONE
    assert re.fullmatch(r"Done in \d+ s\.", job.message)
    with zipfile.ZipFile(job.results["fei-results.zip"]) as archive:
        x = tiny.classifier.preprocess(Image.open(io.BytesIO(png())).convert("RGB"))[None]
        for name, options in (("fei-vm", {"preset": "fast"}), ("saliency", {})):
            method = fei.methods.create(name, **options)
            expected = method(tiny.classifier, x, 3, generator=torch.Generator().manual_seed(5))[0, 0]
            found = np.load(io.BytesIO(archive.read(f"{name}.map.npy")))
            np.testing.assert_array_equal(found, expected.numpy())


def test_a_preview_is_shown_at_once_and_the_map_takes_its_place(tiny, photo, monkeypatch):
    shown = []
    show = runs.Card.show

    def watched(card, image, attribution, **how):
        show(card, image, attribution, **how)
        shown.append((card.preview, attribution))

    monkeypatch.setattr(runs, "_FRAME_SECONDS", 0)
    monkeypatch.setattr(runs.Card, "show", watched)
    job = run_of(tiny, photo, "fei", "fei-vm", seed=5)
    job.requests = [job.requests[0].model_copy(update={"methods": {"fei": {}, "fei-vm": {"steps": 4}}})]
    job.run()
    assert job.state == DONE
    made = [fei.methods.create("fei", preset=preset) for preset in ("preview", "fei")]
    seeds = [torch.Generator().manual_seed(5) for _ in made]
    x = photo.looks["nets.py:tiny"].inputs
    preview, whole = (how(tiny.classifier, x, 3, generator=seed)[0, 0] for how, seed in zip(made, seeds, strict=True))
    frames = shown[: 1 + (20 - 5) + 1]  # what forms is shown from twice the steps of the preview on
    assert [mark for mark, _ in frames] == [True] + [False] * 16
    assert torch.equal(frames[0][1], preview)
    torch.testing.assert_close(frames[-2][1], whole)  # the last step is the map already
    assert not torch.allclose(frames[1][1], whole, atol=1e-3)
    assert torch.equal(frames[-1][1], whole)
    assert [mark for mark, _ in shown[17:]] == [False] * 5  # of others there is no preview
    with zipfile.ZipFile(job.results["fei-results.zip"]) as archive:
        np.testing.assert_array_equal(np.load(io.BytesIO(archive.read("fei.map.npy"))), whole.numpy())
        assert json.loads(archive.read("fei.json"))["preview"] is False


def test_several_classes_are_what_each_is_alone(tiny, photo):
    job = run_of(tiny, photo, "fei-vm", "gradcam")
    job.requests = [job.requests[0].model_copy(update={"target": target}) for target in ("3", "0")]
    job.run()
    assert job.state == DONE
    labels = [tiny.classifier.labels[index] for index in (3, 0)]
    x = tiny.classifier.preprocess(Image.open(io.BytesIO(png())).convert("RGB"))[None]
    with zipfile.ZipFile(job.results["fei-results.zip"]) as archive:
        records = [json.loads(archive.read(name)) for name in archive.namelist() if name.endswith(".json")]
        maps = [name for name in archive.namelist() if name.endswith(".map.npy")]
        assert len(maps) == len(set(maps)) == 4
        for name in maps:
            record = json.loads(archive.read(name.replace(".map.npy", ".json")))
            method = fei.methods.create(record["method"], **({"preset": "fast"} if "fei" in name else {}))
            alone = method(tiny.classifier, x, record["target"]["index"], generator=torch.Generator().manual_seed(0))
            np.testing.assert_array_equal(np.load(io.BytesIO(archive.read(name))), alone[0, 0].numpy())
    assert {(record["method"], record["target"]["label"]) for record in records} == {
        (method, label) for method in ("fei-vm", "gradcam") for label in labels
    }


def test_the_zip_holds_everything_and_repeats_itself(tiny, photo, tmp_path, fine_pictures):
    job = run_of(tiny, photo, "fei-none", "gradcam")
    job.run()
    with zipfile.ZipFile(job.results["fei-results.zip"]) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == [
            "explorer.html",
            "fei-none.explanation.safetensors",
            "fei-none.json",
            "fei-none.map.npy",
            "fei-none.overlay.png",
            "gradcam.json",
            "gradcam.map.npy",
            "gradcam.overlay.png",
            "photo.png",
        ]
        for name in archive.namelist():  # whoever gets the zip does not learn where the server keeps its files
            assert str(tmp_path).encode() not in archive.read(name), name
        assert archive.read("photo.png") == png()
        archive.extractall(tmp_path / "unzipped")
    record = json.loads((tmp_path / "unzipped" / "fei-none.json").read_text(encoding="utf-8"))
    assert record["image"]["path"] == "photo.png"
    assert record["target"] == {**record["target"], "index": 3, "label": "plain"}
    assert record["command"].startswith(f"fei explain photo.png --model {tiny.spec} --method fei-none --target 3")
    explanation = fei.Explanation.load(tmp_path / "unzipped" / "fei-none.explanation.safetensors")
    np.testing.assert_array_equal(np.load(tmp_path / "unzipped" / "fei-none.map.npy"), explanation.maps[0, 0])
    with Image.open(tmp_path / "unzipped" / "gradcam.overlay.png") as picture:
        assert picture.width > 400
    again = tmp_path / "again"
    words = [*record["command"].split()[1:], "--out", str(again), "--quiet"]
    done = subprocess.run([sys.executable, "-m", "fei", *words], cwd=tmp_path / "unzipped", check=False)
    assert done.returncode == 0
    np.testing.assert_array_equal(np.load(again / "photo.map.npy"), explanation.maps[0, 0])


def test_cancelling_stops_a_run_within_one_pass_and_keeps_nothing(slow, photo):
    passes = []
    hook = slow.classifier.register_forward_hook(lambda *_: passes.append(job.state))  # type: ignore[has-type]
    job = run_of(slow, photo, "fei-vm", "rise")
    thread = threading.Thread(target=job.run)
    thread.start()
    until(lambda: len(passes) > 8)
    job.cancel()
    before = len(passes)
    thread.join()
    hook.remove()
    assert len(passes) <= before + 1
    assert (job.state, job.message) == (STOPPED, "The run was cancelled.")
    assert job.results == {}
    assert list(photo.file.parent.iterdir()) == [photo.file]
    assert not slow.classifier._forward_pre_hooks


def test_what_one_visitor_cancels_does_not_touch_what_another_is_offered(slow, photo, tmp_path):
    job = run_of(slow, photo, "rise")
    offered = []

    def offer(*_):
        if not offered:
            job.cancel()
            offered.append(read_photo(png(), tmp_path, {"nets.py:slow": slow}, 10**6))

    # From when the run has to end to when it notices, each pass of its network raises.
    hook = slow.classifier.register_forward_pre_hook(offer, prepend=True)
    job.run()
    hook.remove()
    assert (job.state, job.message) == (STOPPED, "The run was cancelled.")
    assert offered[0].looks["nets.py:slow"].guesses == photo.looks["nets.py:slow"].guesses


def test_cancelling_while_results_are_written_keeps_nothing(tiny, photo, monkeypatch):
    job = run_of(tiny, photo, "saliency", "random")
    written = []

    def write(*arguments, **_):
        written.append(arguments[3].method)
        job.cancel()
        return {}, {}

    monkeypatch.setattr(runs, "explanation_files", write)
    job.run()
    assert written == ["saliency"]  # and not the other one too
    assert (job.state, job.message, job.results) == (STOPPED, "The run was cancelled.", {})
    assert list(photo.file.parent.iterdir()) == [photo.file]


def test_a_run_that_takes_too_long_is_stopped_with_a_sentence(slow, photo):
    job = run_of(slow, photo, "rise", seconds=0.4)
    job.run()
    assert job.state == STOPPED
    assert job.message.startswith("The run took longer than 0.4 s and was stopped; choose fewer classes, fewer or")
    assert list(photo.file.parent.iterdir()) == [photo.file]


def test_a_run_that_fails_tells_the_visitor_little_and_the_terminal_all(network_file, tmp_path, capsys):
    networks = load_networks([f"{network_file}:broken"], CPU)
    photo = read_photo(png(), tmp_path, networks, 10**6)
    job = run_of(networks["nets.py:broken"], photo, "fei-vm")
    job.run()
    assert job.state == STOPPED
    assert job.message == "The run failed (KeyError); the server's terminal shows more."
    assert "/a/secret/path" in capsys.readouterr().err


def test_a_run_tells_how_far_it_is_and_for_how_long_it_will_take(slow, photo):
    job = run_of(slow, photo, "fei-vm", "gradcam")
    assert job.told(2) | {"token": ""} == {
        "token": "",
        "state": "waiting",
        "words": "Waiting: 2 run(s) come first.",
        "share": 0.0,
        "cards": [{"method": name, "words": "waiting", "frame": 0, "preview": False} for name in ("fei-vm", "gradcam")],
    }
    thread = threading.Thread(target=job.run)
    thread.start()
    until(lambda: job.cards["fei-vm"].done > 2 and job.cards["fei-vm"].frame)
    told = job.told(0)
    job.cancel()
    thread.join()
    step = r"step \d+ of 20, about \d+ s left"
    assert re.fullmatch(rf"fei-vm, {step} \(0 of 2 methods done, \d+ s\)\.", told["words"])
    assert re.fullmatch(step, told["cards"][0]["words"])
    assert 0 < told["share"] < 0.5
    assert job.cards["fei-vm"].picture.startswith(b"\xff\xd8")


def test_a_method_that_shows_its_masks_is_watched_step_by_step():
    class Shows:
        config = (("steps", 2),)

        def explain(self, model, inputs, target=None, *, on_step=None):
            for step in range(2):
                on_step(step, torch.full((1, 1, 1, 2, 2), step + 1.0))

    told, method = [], Shows()
    show_masks(method, lambda step, alphas: told.append((step, alphas.mean().item())))
    method.explain(None, torch.zeros(1, 1, 2, 2))
    assert told == [(0, 1.0), (1, 2.0)]
    show_masks(saliency := fei.methods.create("saliency"), told.append)
    assert not hasattr(saliency, "explain")


class FakeJob:
    """A job that runs until it is let go."""

    def __init__(self, owner, log):
        self.owner, self.log, self.go, self.over = owner, log, threading.Event(), False

    def run(self):
        if self.over:  # as of a real one, see below
            return
        self.log.append(self.owner)
        self.go.wait(30)
        self.over = True

    def cancel(self, reason=""):
        self.log.append(f"{self.owner} cancelled")
        self.over = True
        self.go.set()


def test_jobs_run_one_at_a_time_in_the_order_they_came():
    log, lane = [], Lane(3)
    jobs = [FakeJob(owner, log) for owner in "abcd"]
    for number, job in enumerate(jobs):
        lane.submit(job)
        if number == 0:
            until(lambda: log == ["a"])
    assert [lane.ahead(job) for job in jobs[1:]] == [1, 2, 3]
    with pytest.raises(InputError, match=r"^The server is busy and 3 more run\(s\) wait already; try again in a few"):
        lane.submit(FakeJob("e", log))
    jobs[0].go.set()
    until(lambda: log == ["a", "b"])
    with pytest.raises(InputError, match=r"^Your last run is not over yet; wait for it, or cancel it\.$"):
        lane.submit(FakeJob("c", log))
    jobs[2].cancel()  # one that waits: it is passed over, and its place is free
    lane.submit(FakeJob("e", log))
    lane.close()
    assert log == ["a", "b", "c cancelled", "b cancelled", "d cancelled", "e cancelled"]


def test_a_run_that_was_cancelled_while_it_waited_does_nothing_when_its_turn_comes(tiny, photo):
    job = run_of(tiny, photo, "random")
    job.cancel()
    assert (job.state, job.message) == (STOPPED, "The run was cancelled.")
    job.run()
    assert (job.state, job.cards["random"].state) == (STOPPED, "waiting")
    assert list(photo.file.parent.iterdir()) == [photo.file]


def test_without_a_queue_a_free_server_still_works():
    log, lane = [], Lane(0)
    job = FakeJob("a", log)
    lane.submit(job)
    until(lambda: log == ["a"])
    with pytest.raises(InputError, match="busy and 0 more"):
        lane.submit(FakeJob("b", log))
    lane.close()


# --- visitors and their files


@pytest.fixture
def clock():
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    return Clock()


def test_a_visit_lives_while_its_page_listens(tmp_path, clock):
    visits = Visits(tmp_path, 2, grace=10, clock=clock)
    visit = visits.enter("abc")
    visit.folder.mkdir()
    visit.run = FakeJob("abc", log := [])
    with visits.listening("abc"):
        clock.now = 100
        visits.sweep()
        with visits.listening("abc"):  # a second stream
            pass
        assert visit.folder.is_dir()
        assert log == []
    assert log == ["abc cancelled"]  # who leaves needs no run any more
    clock.now = 109
    visits.sweep()
    assert visits.find("abc") is visit  # and it was heard of now
    clock.now = 120
    visits.sweep()
    assert visits.find("abc") is None
    assert log == ["abc cancelled"] * 2
    assert list(tmp_path.iterdir()) == []


def test_there_are_only_so_many_visits_and_their_keys_are_no_paths(tmp_path, clock):
    visits = Visits(tmp_path, 2, grace=10, clock=clock)
    for key in ("a", "b"):
        assert re.fullmatch("[0-9a-f]{32}", visits.enter(key).folder.name)
    with pytest.raises(InputError, match="2 visitors are here already; try again in a few minutes."):
        visits.enter("c")
    clock.now = 11
    visits.enter("c")  # the others left meanwhile
    for key in ("", "../x", "a/b", "x" * 65, "a\0"):
        with pytest.raises(InputError, match="The page does not say whose it is; load it again."):
            visits.enter(key)


def test_a_new_photo_takes_the_place_of_the_old_one_and_its_results(tmp_path, clock):
    visits = Visits(tmp_path, 2, 20, clock)
    desk = Desk({}, [], Limits(), visits, Lane(0))
    desk.take_photo("a", png())
    visit = visits.enter("a")
    first = visit.photo
    visit.run = FakeJob("a", log := [])
    with pytest.raises(DataError):
        desk.take_photo("a", b"none")
    assert (visit.photo, log) == (first, [])  # one that cannot be read changes nothing
    desk.take_photo("a", png(kind="JPEG"))
    assert list(visit.folder.iterdir()) == [visit.photo.file.parent]
    assert visit.photo.file.name == "photo.jpg"
    assert (visit.run, log) == (None, ["a cancelled"])


def test_the_private_folder_goes_whatever_happens_and_takes_a_killed_servers_with_it(tmp_path):
    kept = []

    def fail():
        with private_folder(tmp_path) as mine:
            kept.append(mine)
            assert mine.stat().st_mode & 0o777 == 0o700
            (mine / "kept").mkdir()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not kept[0].exists()
    killed, foreign = tmp_path / "fei-serve-killed", tmp_path / "fei-serve-other"
    for folder in (killed, foreign):
        folder.mkdir()
    (killed / "lock").touch()
    os.utime(killed, (0, 0))
    with private_folder(tmp_path) as first, private_folder(tmp_path) as second:
        assert first.is_dir()  # a living server's folder stays
        assert second.is_dir()
        assert not killed.exists()
        assert foreign.is_dir()  # it has no lock, so it may be anyone's
    assert list(tmp_path.iterdir()) == [foreign]


def test_the_desk_takes_only_what_it_offered(tiny, tmp_path):
    visits, lane = Visits(tmp_path, 4, 20), Lane(2)
    desk = Desk({"tiny": tiny}, [("cat", png(), b"")], Limits(), visits, lane)
    with pytest.raises(InputError, match="There is no photo yet; drop one in, or choose an example."):
        desk.start("me", "tiny", None, ["saliency"], "default", 0)
    for wrong in (1, -1, "0", None, 0.5):
        with pytest.raises(
            InputError, match="The example is not one that can be chosen; give a whole number from 0 to 0."
        ):
            desk.take_example("me", wrong)
    desk.take_example("me", 0)
    assert desk.told("me")["run"] is None
    offered = [str(guess["index"]) for guess in desk.told("me")["photo"]["classes"]["tiny"]]
    for wrong in (
        {"network": "/etc/passwd"},
        {"network": "nets.py:tiny"},
        {"network": {"path": "/etc/passwd"}},
        {"targets": ["7"]},  # it has seven classes, and any of them may be asked for
        {"targets": ["-1"]},
        {"targets": [int(offered[0])]},
        {"targets": []},
        {"targets": offered[0]},
        {"methods": ["os:system"]},
        {"methods": ["saliency", "../x.py:f"]},
        {"methods": [{"path": "/etc/passwd"}]},
        {"preset": "slow"},
        {"preset": "fast"},
        {"seed": -1},
        {"seed": {"path": "/etc/passwd"}},
    ):
        usual = {"network": "tiny", "targets": offered[:1], "methods": ["saliency"], "preset": "default", "seed": 0}
        with pytest.raises(InputError):
            desk.start("me", **usual | wrong)
    job = desk.start("me", "tiny", [offered[1]], ["saliency", "fei"], "default", 3)
    until(lambda: job.over)
    assert (job.state, [one.target for one in job.requests]) == (DONE, [offered[1]])
    assert job.requests[0].methods["fei"] == {}  # the flagship as it is
    assert desk.found("me", "photo.jpg").startswith(b"\xff\xd8")
    assert desk.found("me", "0.jpg").startswith(b"\xff\xd8")
    assert desk.found("me", "explorer.html").name == "explorer.html"
    for wrong in ("2.jpg", "photo.png", "../photo.png", "/etc/passwd", ""):
        assert desk.found("me", wrong) is None
    assert desk.found("you", "explorer.html") is None
    visits.close()
    lane.close()
    assert desk.found("me", "explorer.html") is None


def test_of_two_answers_the_newer_one_has_the_larger_number(tmp_path):
    desk = Desk({}, [], Limits(), Visits(tmp_path, 4, 20), Lane(2))
    first = desk.told("me")
    desk.take_photo("me", png())
    assert desk.told("me")["number"] > first["number"]
