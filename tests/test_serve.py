"""`fei serve` without a browser: limits, photos, jobs, visitors, the files of a run, the gate, and hostile requests."""

import asyncio
import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from page_server import NETWORKS, page_server, require
from PIL import Image

import fei
from fei.app import bundle
from fei.app import gate as gate_module
from fei.app._watched import Watched
from fei.app.desk import Desk
from fei.app.gate import CALL, Gate
from fei.app.jobs import DONE, STOPPED, Job, Lane, Order
from fei.app.limits import Limits, one_of, some_of, whole_number
from fei.app.networks import Network, load_networks
from fei.app.photos import keep_photo
from fei.app.sessions import Sessions
from fei.app.storage import private_folder, remove_older
from fei.errors import DataError, InputError, ModelError

CPU = torch.device("cpu")


def png(size=(30, 40), colour=(200, 120, 40), kind="PNG"):
    """The bytes of an image file: a gradient, so that there is something to see."""
    pixels = np.zeros((size[1], size[0], 3), np.uint8) + np.array(colour, np.uint8)
    pixels[..., 1] += np.arange(size[0], dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def until(condition, seconds=30):
    """Wait for something that happens in another thread."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def network_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("networks") / "nets.py"
    file.write_text(NETWORKS)
    return file


@pytest.fixture(scope="session")
def tiny(network_file):
    return Network("tiny", f"{network_file}:tiny", CPU)


@pytest.fixture(scope="session")
def slow(network_file):
    return Network("slow", f"{network_file}:slow", CPU)


@pytest.fixture
def photo(tmp_path):
    (tmp_path / "session").mkdir()
    return keep_photo(png(), tmp_path / "session", Limits())


def order(network, photo, *names, seed=0):
    return Order(network, photo, 3, names, "fast", seed)


# --- what visitors may ask for


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"upload_bytes": 0}, "--max-upload-mb is 0; give a number above 0, at most 500."),
        ({"pixels": 10**9}, "--max-pixels is 1000000000; give a number from 1 to 120000000."),
        ({"seconds": float("nan")}, "--max-seconds is nan; give a number of seconds above 0."),
        ({"queue": -1}, "--queue is -1; give a whole number, and not a negative one."),
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
    with pytest.raises(InputError, match=r"^The seed must be a whole number from 0 to 7\.$"):
        whole_number("seed", value, 8)


@pytest.mark.parametrize(
    ("content", "limits", "sentence"),
    [
        (b"no image at all", {}, "The photo cannot be read as an image: it is damaged"),
        (png()[:70], {}, "The photo cannot be read as an image: it is damaged"),
        (b"", {}, "The photo cannot be read as an image"),
        (png(), {"upload_bytes": 50}, "The photo has more than 5e-05 MB; save it smaller."),
        (png((100, 100)), {"pixels": 9_999}, "The photo has more than 0.01 million pixels; save it smaller."),
    ],
)
def test_a_photo_that_cannot_be_used_is_told_in_a_sentence_and_not_kept(tmp_path, content, limits, sentence):
    with pytest.raises(DataError) as caught:
        keep_photo(content, tmp_path, Limits(**limits))
    assert str(caught.value).startswith(sentence)
    assert str(tmp_path) not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "ending"), [("PNG", ".png"), ("JPEG", ".jpg"), ("WEBP", ".webp"), ("TIFF", ".tif")])
def test_a_photo_is_kept_as_it_came_under_a_name_of_ours(tmp_path, kind, ending):
    kept = keep_photo(png(kind=kind), tmp_path, Limits())
    assert kept.file == tmp_path / f"photo{ending}"
    assert kept.file.read_bytes() == png(kind=kind)
    assert kept.read().size == (30, 40)


def test_networks_are_called_by_names_without_folders(network_file, tmp_path):
    other = tmp_path / "nets.py"
    other.write_text(NETWORKS)
    networks = load_networks([f"{network_file}:tiny", f"{other}:tiny", f"{network_file}:tiny"], CPU)
    assert list(networks) == ["nets.py:tiny", "nets.py:tiny (2)"]
    assert networks["nets.py:tiny (2)"].spec == f"{other}:tiny"


def test_a_network_that_does_not_work_is_told_at_the_start(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("from torch import nn\ndef bad():\n    return nn.Conv2d(3, 4, 3)\n")
    with pytest.raises(ModelError, match=r"bad.py:bad' does not give finite logits of shape \(1, classes\)"):
        load_networks([f"{file}:bad"], CPU)


def test_the_classes_offered_are_those_of_the_networks_own_softmax(tiny, photo):
    guesses = tiny.guesses(photo.read())
    logits = tiny.classifier(tiny.classifier.preprocess(photo.read())[None])[0]
    probabilities = (logits.exp() / logits.exp().sum()).tolist()
    best = sorted(range(7), key=lambda i: -probabilities[i])[:5]
    assert [guess.index for guess in guesses] == best
    assert [guess.probability for guess in guesses] == pytest.approx([probabilities[i] for i in best], rel=1e-5)


# --- jobs


def test_a_job_finds_what_the_methods_find_without_it(tiny, photo, tmp_path):
    job = Job(order(tiny, photo, "fei-vm", "saliency", seed=5), "me", tmp_path, 60)
    job.run()
    assert (job.state, job.message) == (DONE, "")
    with zipfile.ZipFile(job.results["fei-results.zip"]) as archive:
        x = tiny.classifier.preprocess(photo.read())[None]
        for name, options in (("fei-vm", {"preset": "fast"}), ("saliency", {})):
            method = fei.methods.create(name, **options)
            expected = method(tiny.classifier, x, 3, generator=torch.Generator().manual_seed(5))[0, 0]
            found = np.load(io.BytesIO(archive.read(f"{name}.map.npy")))
            np.testing.assert_array_equal(found, expected.numpy())


def test_the_zip_holds_everything_and_repeats_itself(tiny, photo, tmp_path):
    job = Job(order(tiny, photo, "fei-none", "gradcam"), "me", tmp_path, 60)
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
    record = json.loads((tmp_path / "unzipped" / "fei-none.json").read_text())
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


def test_cancelling_stops_a_job_within_one_pass_and_keeps_nothing(slow, photo):
    passes = []
    hook = slow.classifier.register_forward_hook(lambda *_: passes.append(job.state))
    job = Job(order(slow, photo, "fei-vm", "rise"), "me", photo.file.parent, 60)
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


def test_what_one_visitor_cancels_does_not_touch_what_another_is_offered(slow, photo):
    job = Job(order(slow, photo, "rise"), "me", photo.file.parent, 60)
    expected = slow.guesses(photo.read())
    offered = []
    # From when the job has to end to when it notices, each pass of its network raises.
    hook = slow.classifier.register_forward_pre_hook(
        lambda *_: (job.cancel(), offered.append(slow.guesses(photo.read()))) if not offered else None, prepend=True
    )
    job.run()
    hook.remove()
    assert (job.state, job.message) == (STOPPED, "The run was cancelled.")
    assert offered == [expected]


def test_cancelling_while_results_are_written_keeps_nothing(tiny, photo, monkeypatch):
    job = Job(order(tiny, photo, "saliency", "random"), "me", photo.file.parent, 60)
    written = []

    def write(*arguments):
        written.append(arguments[4].method)
        job.cancel()

    monkeypatch.setattr(bundle, "_add_method", write)
    job.run()
    assert written == ["random"] or written == ["saliency"]  # and not the other one too
    assert (job.state, job.message, job.results) == (STOPPED, "The run was cancelled.", {})
    assert list(photo.file.parent.iterdir()) == [photo.file]


def test_a_job_that_takes_too_long_is_stopped_with_a_sentence(slow, photo):
    job = Job(order(slow, photo, "rise"), "me", photo.file.parent, 0.4)
    job.run()
    assert job.state == STOPPED
    assert job.message.startswith("The run took longer than 0.4 s and was stopped; choose fewer or quicker methods")
    assert list(photo.file.parent.iterdir()) == [photo.file]


def test_a_job_that_fails_tells_the_visitor_little_and_the_terminal_all(network_file, photo, capsys):
    broken = Network("broken", f"{network_file}:broken", CPU)
    job = Job(order(broken, photo, "fei-vm"), "me", photo.file.parent, 60)
    job.run()
    assert job.state == STOPPED
    assert job.message == "The run failed (KeyError); the server's terminal shows more."
    assert "/a/secret/path" in capsys.readouterr().err


def test_a_method_that_shows_its_masks_is_watched_step_by_step():
    class Shows:
        config = (("steps", 2),)

        def explain(self, model, inputs, target=None, *, on_step=None):
            for step in range(2):
                on_step(step, torch.full((1, 1, 1, 2, 2), step + 1.0))
            return type("Found", (), {"maps": inputs})

    told = []
    listener = type(
        "Told",
        (),
        {
            "begin": lambda self: told.append("begin"),
            "step": lambda self, step, alphas: told.append((step, alphas.mean().item())),
            "end": lambda self, maps: told.append(tuple(maps.shape)),
        },
    )()
    watched = Watched(Shows(), listener)
    assert watched.config == Shows.config
    watched.explain(None, torch.zeros(1, 1, 2, 2))
    assert told == ["begin", (0, 1.0), (1, 2.0), (1, 1, 2, 2)]
    assert not hasattr(Watched(fei.methods.create("saliency"), listener), "explain")


class FakeJob:
    """A job that runs until it is let go."""

    def __init__(self, owner, log):
        self.owner, self.log, self.go, self.over = owner, log, threading.Event(), False

    def run(self):
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


def test_a_session_lives_while_its_browser_listens(tmp_path, clock):
    sessions = Sessions(tmp_path, 2, grace=10, clock=clock)
    session = sessions.enter("abc")
    session.job = FakeJob("abc", log := [])
    with sessions.listening("abc"):
        clock.now = 100
        sessions.sweep()
        with sessions.listening("abc"):  # a second tab
            pass
        assert session.folder.is_dir()
        assert log == []
    assert log == ["abc cancelled"]  # who leaves needs no run any more
    clock.now = 109
    sessions.sweep()
    assert sessions.find("abc") is session  # and it was heard of now
    clock.now = 120
    sessions.sweep()
    assert sessions.find("abc") is None
    assert log == ["abc cancelled"] * 2
    assert list(tmp_path.iterdir()) == []


def test_there_are_only_so_many_sessions_and_their_keys_are_no_paths(tmp_path, clock):
    sessions = Sessions(tmp_path, 2, grace=10, clock=clock)
    for key in ("a", "b"):
        assert re.fullmatch("[0-9a-f]{32}", sessions.enter(key).folder.name)
    with pytest.raises(InputError, match="2 visitors are here already; try again in a few minutes."):
        sessions.enter("c")
    clock.now = 11
    sessions.enter("c")  # the others left meanwhile
    for key in (None, "", "../x", "a/b", "x" * 65, "a\0"):
        with pytest.raises(InputError, match="The browser sent no session; load the page again."):
            sessions.enter(key)


def test_a_new_photo_takes_the_place_of_the_old_one_and_its_results(tmp_path, clock):
    session = Sessions(tmp_path, 2, clock=clock).enter("a")
    (session.new_photo_folder() / "photo.png").write_bytes(b"1")
    session.job = FakeJob("a", log := [])
    second = session.new_photo_folder()
    assert list(session.folder.iterdir()) == [second]
    assert log == ["a cancelled"]


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
    with private_folder(tmp_path) as first, private_folder(tmp_path) as second:
        assert first.is_dir()  # a living server's folder stays
        assert second.is_dir()
        assert not killed.exists()
        assert foreign.is_dir()  # it has no lock, so it may be anyone's
    assert list(tmp_path.iterdir()) == [foreign]


def test_old_files_are_removed_and_new_ones_stay(tmp_path):
    old, new = tmp_path / "a" / "old", tmp_path / "b" / "new"
    for file in (old, new):
        file.parent.mkdir()
        file.touch()
    for path in (old, old.parent):
        os.utime(path, (0, 0))
    remove_older(tmp_path, 60)
    os.utime(old.parent, (0, 0))  # that its file went counts as a change
    remove_older(tmp_path, 60)
    assert sorted(tmp_path.rglob("*")) == [new.parent, new]


def test_the_desk_takes_only_what_it_offered(tiny, tmp_path):
    for name in ("sessions", "uploads"):
        (tmp_path / name).mkdir()
    sessions, lane = Sessions(tmp_path / "sessions", 4), Lane(2)
    examples = [("cat", Image.open(io.BytesIO(png())))]
    desk = Desk({"tiny": tiny}, examples, Limits(), sessions, lane, tmp_path / "uploads")
    with pytest.raises(InputError, match="There is no photo yet; drop one in, or choose an example."):
        desk.start("me", "tiny", None, ["saliency"], "fast", 0)
    (tmp_path / "secret.png").write_bytes(png())
    for wrong in ("../secret.png", str(tmp_path / "secret.png"), "0" * 32, None, 3, ["a"]):
        with pytest.raises(InputError, match="No photo has arrived; choose it again."):
            desk.take_photo("me", wrong)
    ticket, file = desk.new_upload()
    file.write_bytes(png())
    assert desk.take_photo("me", ticket).read().size == (30, 40)
    assert not file.exists()
    for wrong in (1, -1, "0", None, 0.5):
        with pytest.raises(InputError, match="The example must be a whole number from 0 to 0."):
            desk.take_example("me", wrong)
    desk.take_example("me", 0)
    with pytest.raises(InputError, match="The network has not seen the photo yet"):
        desk.start("me", "tiny", None, ["saliency"], "fast", 0)
    offered = [str(guess.index) for guess in desk.offer("me", "tiny")]
    (left_out,) = {"0", "1", "2", "3", "4", "5", "6"} - set(offered) - {sorted(set("0123456") - set(offered))[0]}
    for wrong in (
        {"network": "/etc/passwd"},
        {"network": "nets.py:tiny"},
        {"target": left_out},
        {"target": int(offered[0])},
        {"chosen": ["os:system"]},
        {"chosen": ["saliency", "../x.py:f"]},
        {"preset": "slow"},
        {"seed": -1},
    ):
        asked = {"network": "tiny", "target": offered[0], "chosen": ["saliency"], "preset": "fast", "seed": 0} | wrong
        with pytest.raises(InputError):
            desk.start("me", **asked)
    job = desk.start("me", "tiny", offered[1], ["saliency"], "fast", 3)
    until(lambda: job.over)
    assert (job.state, job.order.target) == (DONE, int(offered[1]))
    assert desk.result(job.token, "0.jpg").startswith(b"\xff\xd8")
    assert desk.result(job.token, "explorer.html").name == "explorer.html"
    for wrong in ("1.jpg", "photo.png", "../photo.png", "/etc/passwd", ""):
        assert desk.result(job.token, wrong) is None
    assert desk.result("x" * len(job.token), "explorer.html") is None
    sessions.close()
    lane.close()
    assert desk.result(job.token, "explorer.html") is None


# --- the gate


class Behind:
    """An application that reads its body and says how long it was."""

    def __init__(self):
        self.scopes = []

    async def __call__(self, scope, receive, send):
        self.scopes.append(scope)
        length, more = 0, True
        while more:
            message = await receive()
            length += len(message.get("body", b""))
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(length).encode()})


def ask(gate, path, method="GET", body=(b"",), headers=(), pause=0.0, query=b""):
    """Send a request through a gate; the status and the text of what comes back."""
    parts, sent = list(body), []

    async def receive():
        await asyncio.sleep(pause)
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": [(b"host", b"127.0.0.1:7860"), *headers],
    }
    asyncio.run(gate(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent).decode()


@pytest.fixture
def behind():
    return Behind()


@pytest.fixture
def gate(behind, tmp_path):
    (tmp_path / "sessions").mkdir()
    (tmp_path / "uploads").mkdir()
    limits = Limits(upload_bytes=1000, uploads=2)
    return Gate(behind, limits, Sessions(tmp_path / "sessions", 4), tmp_path / "uploads", ("127.0.0.1", "localhost"))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/gradio_api/file=/etc/passwd"),
        ("GET", "/file=/etc/passwd"),
        ("GET", "/gradio_api/file/etc/passwd"),
        ("GET", "/gradio_api/proxy=http://example.com"),
        ("GET", "/gradio_api/stream/a/b/c/playlist-file"),
        ("GET", "/static/../../etc/passwd"),
        ("GET", "/assets/..%2f..%2fetc/passwd"),
        ("GET", "/results/abc/../../x"),
        ("GET", "/results/abc/a/b"),
        ("GET", "//etc/passwd"),
        ("GET", "/monitoring"),
        ("GET", "/gradio_api/deep_link"),
        ("POST", "/gradio_api/process_recording"),
        ("POST", "/gradio_api/vibe-edit"),
        ("POST", "/gradio_api/component_server"),
        ("POST", "/gradio_api/run/upload"),
        ("POST", "/gradio_api/run/predict/"),
        ("POST", "/gradio_api/api/predict"),
        ("POST", "/gradio_api/queue/join"),
        ("GET", "/gradio_api/queue/data"),
        ("POST", "/gradio_api/call/run"),
        ("POST", "/login"),
        ("POST", "/gradio_api/upload"),
        ("POST", "/gradio_api/cancel"),
        ("PUT", "/photo"),
        ("OPTIONS", "/"),
    ],
)
def test_what_the_page_does_not_need_is_not_there(gate, behind, method, path):
    assert ask(gate, path, method) == (404, "There is nothing here.")
    assert behind.scopes == []


def test_a_server_called_by_another_name_or_page_does_not_answer(gate):
    assert ask(gate, "/")[0] == 200
    scope_host = [(b"host", b"evil.example:7860")]
    assert ask(gate, "/", headers=scope_host) == (421, "This server is not called so.")
    for origin in (b"http://evil.example", b"null", b"http://127.0.0.1:9999"):
        answer = ask(gate, "/photo", "POST", headers=[(b"origin", origin)])
        assert answer == (403, "Only the page itself may ask for this.")
    assert ask(gate, "/photo", "POST", headers=[(b"origin", b"http://127.0.0.1:7860")])[0] == 200


def test_nobody_can_claim_to_stand_in_front_of_the_server(gate, behind):
    ask(gate, "/", headers=[(b"x-forwarded-host", b"evil.example"), (b"accept", b"*/*")])
    assert dict(behind.scopes[0]["headers"]) == {b"host": b"127.0.0.1:7860", b"accept": b"*/*"}


def test_bodies_are_of_bounded_size_said_or_not(gate):
    upload = "/photo"
    too_large = (413, "The photo has more than 0.001 MB; save it smaller.")
    assert ask(gate, upload, "POST", [b"x" * 1000]) == (200, "1000")
    assert ask(gate, upload, "POST", headers=[(b"content-length", b"99999")]) == too_large
    assert ask(gate, upload, "POST", [b"x" * 1000] * 9) == too_large
    assert ask(gate, upload, "POST", headers=[(b"content-length", b"-5")]) == too_large
    assert ask(gate, CALL, "POST", [b"x" * 70_000]) == (413, "Too long.")


def test_events_carry_words_and_numbers_and_no_files(gate, behind):
    file = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}
    said = json.dumps({"data": ["a", 1.5, None, True, ["b"]], "event_data": {"example": 0}, "fn_index": 3}).encode()
    assert ask(gate, CALL, "POST", [said[:20], said[20:]]) == (200, str(len(said)))
    for wrong in (
        {"data": [file]},
        {"data": [["a", file]]},
        {"data": [[["a"]]]},
        {"data": file},
        {"data": None},
        {"data": [], "event_data": {"ticket": file}},
        {"data": [], "event_data": [file]},
        {},
        [],
    ):
        body = json.dumps(wrong).encode()
        assert ask(gate, CALL, "POST", [body]) == (400, "This is not what the page would say.")
    for odd in (b"", b"{", b"\xff", b"[" * 60_000):
        assert ask(gate, CALL, "POST", [odd])[0] == 400
    assert len(behind.scopes) == 1


def test_a_body_that_comes_too_slowly_is_given_up(gate, monkeypatch):
    monkeypatch.setattr(gate_module, "_PAUSE_SECONDS", 0.05)
    assert ask(gate, "/photo", "POST", [b"x", b"x"], pause=0.2) == (408, "The request came too slowly.")
    monkeypatch.setattr(gate_module, "_PAUSE_SECONDS", 15)
    monkeypatch.setattr(gate_module, "_BODY_SECONDS", 0.1)  # drop by drop is no better
    assert ask(gate, "/photo", "POST", [b"x"] * 50, pause=0.02)[0] == 408


def test_only_so_many_upload_at_a_time_and_only_so_much_lies_around(gate, tmp_path):
    async def several():
        release = asyncio.Event()
        statuses = []

        async def one():
            async def receive():
                await release.wait()
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(message):
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])
                    release.set()

            scope = {"type": "http", "method": "POST", "path": "/photo", "query_string": b""}
            await gate({**scope, "headers": [(b"host", b"localhost")]}, receive, send)

        await asyncio.gather(one(), one(), one())
        return statuses

    assert asyncio.run(several()) == [503, 200, 200]
    assert ask(gate, "/photo", "POST")[0] == 200  # their places are free again
    (tmp_path / "uploads" / "left").write_bytes(b"x" * 16_001)
    assert ask(gate, "/photo", "POST") == (503, "Others are uploading; try again in a moment.")


def test_every_answer_keeps_the_browser_to_this_server(gate, behind):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b""}

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [(b"host", b"localhost")]}
    asyncio.run(gate(scope, receive, send))
    headers = dict(sent[0]["headers"])
    assert headers[b"content-security-policy"].startswith(b"default-src 'self'; ")
    assert headers[b"x-content-type-options"] == b"nosniff"


# --- the whole server, and visitors without a browser


@pytest.fixture(scope="module")
def server(network_file, tmp_path_factory):
    """A running server: its address and its private folder."""
    temporary = tmp_path_factory.mktemp("server")
    limits = {"upload_bytes": 200_000, "pixels": 1_000_000, "seconds": 30, "queue": 2}
    with page_server(temporary, [f"{network_file}:tiny"], **limits) as address:
        (private,) = temporary.iterdir()
        yield Visitor(address), private


class Visitor:
    """A program that talks to the server as the page does."""

    def __init__(self, address):
        self.host, self.port = re.fullmatch(r"http://([\d.]+):(\d+)/", address).groups()
        self.config = json.loads(self.request("GET", "/config")[1])

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=30)
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, content

    def event(self, kind, number=0):
        """The number of the page's n-th event of a kind."""
        found = [one["id"] for one in self.config["dependencies"] if one["targets"][0][1] == kind]
        return found[number]

    def call(self, event, data, session, event_data=None):
        """What an event is answered with."""
        body = {"data": data, "fn_index": event, "session_hash": session, "event_data": event_data}
        return self.request("POST", CALL, json.dumps(body), {"content-type": "application/json"})[1].decode()

    def run(self, data, session):
        """What the page shows in the end when a run is ordered."""
        shown = self.call(self.event("click"), data, session)
        while not any(end in shown for end in ('"active":false', "fei-error", '{"error"')):  # the clock ticks till then
            time.sleep(0.1)
            shown = self.call(self.event("tick"), [], session)
        return shown

    @contextmanager
    def here(self, session):
        """The page is open: its stream is."""
        with socket.create_connection((self.host, int(self.port))) as stream:
            stream.sendall(f"GET /gradio_api/heartbeat/{session} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
            assert b" 200 " in stream.recv(100)
            yield

    def upload(self, content):
        return self.request("POST", "/photo", content)


def test_the_page_answers_and_files_of_the_machine_are_not_served(server):
    visitor, private = server
    assert visitor.request("GET", "/")[0] == 200
    secret = private / "lock"
    for path in (
        f"/gradio_api/file={secret}",
        "/gradio_api/file=/etc/passwd",
        f"/file={secret}",
        "/static/../../../../etc/passwd",
        "/static/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/assets/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/svelte//etc/passwd",
        "/results/..%2f..%2flock/x",
    ):
        status, content = visitor.request("GET", path)
        assert status in (403, 404), path
        assert b"root:" not in content
        assert b"process" not in content


def test_hostile_calls_get_a_sentence_and_run_nothing(server, tmp_path):
    visitor, _ = server
    marker = tmp_path / "ran"
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(marker)!r}, 'w')\ndef factory():\n    pass\n")
    groups = [[], ["saliency"], [], [], []]
    with visitor.here("hostile"):
        visitor.call(visitor.event("submit"), ["nets.py:tiny"], "hostile", {"example": 0})
        for data in (
            [f"{evil}:factory", None, "fast", 0, *groups],
            ["nets.py:tiny", "999", "fast", 0, *groups],
            ["nets.py:tiny", None, "fast", 0, [f"{evil}:factory"], [], [], [], []],
            ["nets.py:tiny", None, "fast", 0, ["os:system"], [], [], [], []],
            ["nets.py:tiny", None, "../x", 0, *groups],
            ["nets.py:tiny", None, "fast", "__import__('os')", *groups],
            ["nets.py:tiny"],
        ):
            message = visitor.run(data, "hostile")
            assert "Traceback" not in message
            assert "Done in" not in message
        assert not marker.exists()
        done = visitor.run(["nets.py:tiny", None, "fast", 0, *groups], "hostile")
        assert "Done in" in done  # so it was not for another reason


def test_a_run_that_goes_on_is_shown_again_to_who_asks_for_another(server):
    visitor, _ = server
    run = ["nets.py:tiny", None, "fast", 0, [], [], [], ["rise", "extremal-perturbation", "kernel-shap"], []]
    with visitor.here("again"):
        visitor.call(visitor.event("submit"), ["nets.py:tiny"], "again", {"example": 0})
        assert '"active":true' in visitor.call(visitor.event("click"), run, "again")
        again = visitor.call(visitor.event("click"), run, "again")
        assert "Your last run is not over yet; wait for it, or cancel it." in again
        assert '"active":true' in again
        visitor.call(visitor.event("click", 1), [], "again")
        shown = ""
        while '"active":false' not in shown:
            shown = visitor.call(visitor.event("tick"), [], "again")
        assert "The run was cancelled." in shown


def test_files_of_the_machine_cannot_be_had_as_photos(server, tmp_path):
    visitor, private = server
    secret = tmp_path / "secret.png"
    secret.write_bytes(png())
    upload = visitor.event("upload")
    for path in (str(secret), "../../lock", "http://127.0.0.1:1/x", f"file://{secret}"):
        file = {"path": path, "meta": {"_type": "gradio.FileData"}}
        body = {"data": [file], "fn_index": upload, "session_hash": "thief"}
        headers = {"content-type": "application/json"}
        assert visitor.request("POST", CALL, json.dumps(body), headers)[0] == 400
        message = visitor.call(upload, ["nets.py:tiny"], "thief", {"ticket": path})
        assert "No photo has arrived; choose it again." in message
        assert "Your photo" not in message
    assert [path for path in (private / "gradio").rglob("*") if path.is_file()] == []
    status, answer = visitor.upload(png())
    assert status == 200
    message = visitor.call(upload, ["nets.py:tiny"], "thief", {"ticket": json.loads(answer)["ticket"]})
    assert "Your photo" in message


def test_too_large_malformed_and_aborted_uploads_leave_the_server_well(server):
    visitor, private = server
    assert visitor.upload(b"x" * 300_000) == (413, b"The photo has more than 0.2 MB; save it smaller.")
    chunks = (b"x" * 50_000 for _ in range(8))  # which do not say beforehand how many they are
    assert visitor.upload(chunks)[0] == 413
    for _ in range(5):
        with socket.create_connection((visitor.host, int(visitor.port))) as aborted:
            aborted.sendall(b"POST /photo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\nhalf")
    until(lambda: not list((private / "uploads").iterdir()))
    for garbage in (b"\x00\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"):
        with socket.create_connection((visitor.host, int(visitor.port))) as odd:
            odd.sendall(garbage)
            odd.settimeout(10)
            odd.recv(100)
    assert visitor.request("GET", "/")[0] == 200
    assert visitor.upload(png())[0] == 200
    assert private.is_dir()


def test_what_a_visitor_left_is_gone_soon_after(server):
    visitor, private = server
    visitor.call(visitor.event("submit"), ["nets.py:tiny"], "leaver", {"example": 1})
    assert list((private / "sessions").iterdir())
    until(lambda: not list((private / "sessions").iterdir()))


def test_without_gradio_there_is_one_sentence(monkeypatch):
    from fei.app.server import Options, serving

    monkeypatch.setitem(sys.modules, "gradio", None)
    sentence = r'^Gradio is needed for this and is not installed; run: pip install "fei\[serve\]"$'
    with pytest.raises(InputError, match=sentence), serving(Options()):
        pass


def test_the_command_serves_until_ctrl_c_and_leaves_nothing(network_file, tmp_path):
    require("gradio")
    words = ["serve", "--model", f"{network_file}:tiny", "--port", "0", "--host", "127.0.0.1"]
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "fei", *words],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            visitor = Visitor(re.search(r"http://\S+", process.stdout.readline())[0])
            assert visitor.request("GET", "/")[0] == 200
            assert "fei-serve-" in {path.name[:10] for path in tmp_path.iterdir()}
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert errors == "Stopping.\n"
    assert list(tmp_path.glob("fei-*")) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--max-seconds", "0"], "--max-seconds is 0; give a number of seconds above 0."),
        (["--host", "999.1.1.1"], "'999.1.1.1' is no address of this machine; give --host 127.0.0.1 or another."),
        (["--model", "no-such-network"], "There is no model 'no-such-network'"),
    ],
)
def test_a_wrong_option_is_told_in_one_sentence(words, sentence, capsys):
    require("gradio")
    from fei.cli._app import run

    assert run(["serve", "--port", "0", *words]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert errors[-1].startswith(f"error: {sentence}")


def test_a_port_that_is_taken_is_told(capsys):
    require("gradio")
    from fei.cli._app import run

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another with --port or --host." in capsys.readouterr().err


def test_another_host_is_warned_about(capsys):
    from fei.cli._app import run

    run(["serve", "--host", "0.0.0.0", "--model", "no-such-network", "--port", "0"])
    assert "warning: with --host 0.0.0.0 whoever reaches this machine" in capsys.readouterr().err
