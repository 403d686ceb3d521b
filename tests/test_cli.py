"""The command line as its users meet it: files, words, streams and exit codes."""

import errno
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from waiting import PATIENCE

import fei
from fei import methods, references
from fei.cli import main
from fei.core.settings import PRESETS
from fei.errors import DataError
from fei.service.outputs import result_names, write_results

pytestmark = pytest.mark.slow

NETWORK = '''
import time
from pathlib import Path

import torch
from torch import nn


class Small(nn.Module):
    """Bright and dark, told apart by a convolution."""

    input_size = 16
    labels = ["dark", "bright, light", "[red]striped"]

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
            self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


class Nameless(Small):
    labels = None


class Chatty(Small):
    def forward(self, x):
        print("hello from the network")
        return super().forward(x)


class Broken(Small):
    def forward(self, x):
        raise ValueError("the weights\\nare on the moon")


class Lost(Small):
    def forward(self, x):  # as an interrupt in the wrong moment does: torch's mode is off its stack
        if torch._C._len_torch_function_stack():
            torch._C._pop_torch_function_stack()
            raise KeyboardInterrupt
        return super().forward(x)


class Slow(Small):
    calls = 0

    def forward(self, x):
        Slow.calls += 1
        if Slow.calls == 8:  # the optimisation is under way
            Path(__file__).with_name("started").touch()
        time.sleep(0.02)
        return super().forward(x)
'''


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder to work in, with a network and two images."""
    (tmp_path / "net.py").write_text(NETWORK, encoding="utf-8")
    noise = np.random.default_rng(0)
    for name in ("a.png", "b.jpg"):
        Image.fromarray(noise.integers(0, 256, (20, 24, 3)).astype(np.uint8)).save(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys):
    """Run a command in this process: exit code, standard output, standard error."""

    def call(command):
        with pytest.raises(SystemExit) as stop:
            main(shlex.split(command) if isinstance(command, str) else command)
        printed = capsys.readouterr()
        return stop.value.code, printed.out, printed.err

    return call


@pytest.fixture
def explain(place, run):
    """Run ``fei explain`` on the small network with two steps."""
    return lambda words: run(f"explain --model net.py:Small --steps 2 {words}")


def process(*words, cwd, **options):
    """Start the command as a process of its own."""
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "fei", *words], cwd=cwd, env=environment, **(pipes | options))


def outputs(folder="fei-out"):
    return sorted(file.name for file in Path(folder).iterdir())


# What it makes


def test_explain_writes_picture_map_explanation_and_record(explain, fine_pictures):
    code, out, err = explain("a.png --seed 3")
    assert (code, err) == (0, "")
    assert outputs() == ["a.explanation.safetensors", "a.json", "a.map.npy", "a.overlay.png"]
    result = fei.Explanation.load("fei-out/a.explanation.safetensors")
    attribution = np.load("fei-out/a.map.npy")
    assert attribution.dtype == np.float32
    assert attribution.shape == (16, 16)
    assert (attribution == result.maps[0, 0].numpy()).all()
    with Image.open("fei-out/a.overlay.png") as picture:
        assert picture.width > 1000
    assert "predicted" in out
    assert "fei-out/a.overlay.png" in out


def test_the_record_says_what_was_done_and_how_to_repeat_it(explain, run, place):
    explain("a.png --seed 3 --target light --reference black --variant IVM")
    record = json.loads(Path("fei-out/a.json").read_text(encoding="utf-8"))
    assert record["schema"] == 1
    assert record["image"] == {"path": "a.png", "sha256": hashlib.sha256(Path("a.png").read_bytes()).hexdigest()}
    assert record["model"] == "net.py:Small"
    assert record["method"] == "fei-ivm"
    assert record["seed"] == 3
    assert record["target"]["index"] == 1
    assert record["target"]["label"] == "bright, light"
    assert record["target"]["chosen_by"] == "option"
    top = record["prediction"]["top5"]
    assert len(top) == 3
    assert sum(entry["probability"] for entry in top) == pytest.approx(1)
    assert record["prediction"]["index"] == top[0]["index"]
    assert set(record["versions"]) == {"fei", "torch", "python", "numpy", "pillow"}
    assert record["config"]["settings"]["steps"] == 2
    result = fei.Explanation.load("fei-out/a.explanation.safetensors")
    last = record["trace"]["masks"][-1]
    assert last["quantile"] == 0.9
    assert last["area_asked"] == 0.1
    assert last["area_got"] == pytest.approx(0.1, abs=1e-3)
    assert last["phi_last"] == float(result.trace.phi[0, -1, -1])
    assert last["stopped_after"] is None
    assert set(record["trace"]["clipped"]) == set(result.trace.clipped)

    first = np.load("fei-out/a.map.npy")
    code, _, _ = run([*shlex.split(record["command"])[1:], "--out", "again"])
    assert code == 0
    assert (np.load("again/a.map.npy") == first).all()
    repeated = json.loads(Path("again/a.json").read_text(encoding="utf-8"))
    timeless = {"seconds": 0, "made": ""}
    assert repeated | timeless == record | timeless


def test_the_prediction_is_explained_where_no_class_is_given(explain):
    explain("a.png")
    record = json.loads(Path("fei-out/a.json").read_text(encoding="utf-8"))
    assert record["target"]["index"] == record["prediction"]["index"]
    assert record["target"]["chosen_by"] == "prediction"
    assert "--target" not in record["command"]


def test_seed_decides_the_random_reference(explain):
    for name, seed in (("one", 1), ("same", 1), ("two", 2)):
        explain(f"a.png --out {name} --seed {seed}")
    one, same, two = (np.load(f"{name}/a.map.npy") for name in ("one", "same", "two"))
    assert (one == same).all()
    assert (one != two).any()


def test_images_of_the_same_name_do_not_overwrite_each_other_and_old_results_are_replaced(explain, place):
    (place / "other").mkdir()
    (place / "other/A.JPG").write_bytes((place / "b.jpg").read_bytes())
    for _ in range(2):
        code, _, _ = explain("a.png other/A.JPG")
        assert code == 0
        assert [name for name in outputs() if name.endswith(".json")] == ["A-2.json", "a.json"]
    assert json.loads(Path("fei-out/A-2.json").read_text(encoding="utf-8"))["image"]["path"] == "other/A.JPG"


def test_results_never_replace_an_image(tmp_path):
    images = [tmp_path / "cat.jpg", tmp_path / "cat.overlay.png", tmp_path / "cat-2.gif"]
    assert result_names(images, tmp_path) == ["cat-2", "cat.overlay", "cat-2-2"]


def test_a_method_without_masks_gives_a_map_and_leaves_no_old_explanation_behind(explain, monkeypatch):
    explain("a.png")
    entry = methods.describe("fei")
    create = methods.create
    monkeypatch.setattr(methods, "create", lambda name, **options: create(name, **options).__call__)
    code, _, err = explain("a.png --force")
    assert (code, err) == (0, "")
    assert outputs() == ["a.json", "a.map.npy", "a.overlay.png"]
    record = json.loads(Path("fei-out/a.json").read_text(encoding="utf-8"))
    assert record["method"] == entry.name
    assert record["trace"] is None


def test_demo(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("demo --steps 1 --out here")
    assert (code, err) == (0, "")
    assert {"chelsea.png", "chelsea.overlay.png", "chelsea.json"} <= set(outputs("here"))
    assert "tiger cat" in out
    assert "here/chelsea.overlay.png" in out
    assert "fei explain here/chelsea.png --target 'Egyptian cat' --out here" in out
    assert max(map(len, out.splitlines())) <= 80


# What it says to machines


def test_json_is_one_document_and_nothing_else(explain):
    code, out, err = explain("a.png b.jpg --json --model net.py:Chatty")
    assert code == 0
    document = json.loads(out)
    assert [result["image"]["path"] for result in document["results"]] == ["a.png", "b.jpg"]
    assert document["failures"] == []
    assert "error" not in document
    files = document["results"][0]["files"]
    assert set(files) == {"picture", "map", "explanation", "record"}
    assert all(Path(file).is_file() for file in files.values())
    written = json.loads(Path(files["record"]).read_text(encoding="utf-8"))
    assert written | {"files": files} == document["results"][0]
    assert "hello from the network" in err


def test_json_errors_are_json(explain):
    for words in ("nope.png", "a.png --method nope", "a.png --target nope", "a.png --nope"):
        code, out, err = explain(f"{words} --json")
        assert code == 2
        assert json.loads(out)["error"] in err


def test_quiet_is_silent(explain):
    assert explain("a.png --quiet") == (0, "", "")


def test_models_and_methods_are_listed(run):
    code, out, _ = run("methods")
    assert code == 0
    assert all(name in out for name in methods.available())
    code, out, _ = run("methods --json")
    assert [entry["name"] for entry in json.loads(out)["methods"]] == methods.available()
    code, out, _ = run("models")
    assert "path/to/file.py:factory[:checkpoint]" in out
    assert json.loads(run("models --json")[1])["models"] == fei.models.available()


def test_help_names_every_choice(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = run("explain --help")
    assert code == 0
    variants = [name.removeprefix("fei-") for name in methods.available("fei-*")]
    for choice in (*references.KINDS, *PRESETS, *variants):
        assert re.search(rf"\b{choice}\b", out), choice


def test_without_a_command_it_shows_help(run):
    code, out, _ = run("")
    assert code == 0
    assert "demo" in out


@pytest.mark.parametrize("words", ["--help", "--version", "explain --help", "bench run --help", "methods"])
def test_help_version_and_the_list_of_methods_do_not_load_torch(words):
    code = (
        "import sys\nfrom fei.cli import main\n"
        f"try:\n    main({words.split()!r})\n"
        "except SystemExit as stop:\n    assert stop.code == 0\n"
        "assert not {'torch', 'matplotlib', 'numpy'} & set(sys.modules), 'heavy'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert "fei" in done.stdout


# What goes wrong


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("a.png --method fei-wm", "did you mean fei-vm"),
        ("a.png --variant wm", "did you mean fei-vm"),
        ("a.png --method fei-ivm --variant vm", "--method fei-ivm and --variant vm contradict each other"),
        ("a.png --target strippd", r"No class is called 'strippd'"),
        ("a.png --target brigt", r"did you mean 'bright, light' \(1\)"),
        ("a.png --target 3", "no class 3; the classes are numbered 0 to 2"),
        ("a.png --model net.py:Nameless --target 3", "no class 3; the classes are numbered 0 to 2"),
        ("a.png --model net.py:Nameless --target dog", "no class names"),
        ("a.png --model resnet99", "no model 'resnet99'"),
        ("a.png --model net.py:Smal", "did you mean Small"),
        ("a.png --reference pink", "Unknown reference 'pink'"),
        ("a.png --preset quick", "Unknown preset 'quick'; choose one of fei, preview, fast, paper"),
        ("a.png --device tpu", "Unknown device 'tpu'; choose one of cpu, cuda, mps, auto"),
        ("a.png --seed -1", "The seed is -1"),
        ("a.png --steps 0", "Invalid value for '--steps'"),
        ("a.png --batch-size 0", "Invalid value for '--batch-size'"),
        ("a.png --out net.py", r"cannot be written to 'net.py' \(it is not a folder\)"),
        ("a.png --out net.py/deep", "cannot be written to 'net.py/deep'"),
        ("a.png --stepz 3", "No such option: --stepz"),
        ("", "Missing argument 'IMAGE"),
        ("nope.png", "no image file 'nope.png'"),
        ("none*.png", "No image matches"),
        ("nope.png neither.png", "no image file 'neither.png'"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_2(explain, words, expected):
    code, out, err = explain(words)
    assert code == 2
    assert re.search(expected, err)
    assert out == ""
    assert "Traceback" not in err
    assert all(line.startswith("error: ") for line in err.splitlines())
    assert not Path("fei-out").exists()


def test_a_missing_device_is_refused(explain):
    import torch

    name = "mps" if torch.cuda.is_available() else "cuda"
    code, _, err = explain(f"a.png --device {name}")
    assert code == 2
    assert f"no device '{name}'" in err


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"not an image", "cannot be read as an image"),
        (b"", "cannot be read as an image"),
        (b"P6 20000 20000 255 ", "million pixels"),
    ],
)
def test_a_file_that_is_no_usable_image_is_a_failure(explain, place, content, expected):
    (place / "bad.ppm").write_bytes(content)
    code, _, err = explain("bad.ppm")
    assert code == 1
    assert expected in err
    assert len(err.splitlines()) == 1
    assert outputs() == []


def test_a_broken_network_fails_before_the_images(explain):
    code, _, err = explain("a.png b.jpg --model net.py:Broken")
    assert code == 1
    assert err == (
        "error: The network 'net.py:Broken' fails on an image of 16 × 16 pixels (ValueError: the weights); it must "
        "take RGB in [0, 1] of shape (N, 3, H, W).\n"
    )


@pytest.mark.parametrize("bad", ["nope.png", "bad.png"])
def test_one_bad_image_does_not_stop_the_others(explain, place, bad):
    (place / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n cut short")
    code, out, err = explain(f"a.png {bad} b.jpg --json")
    assert code == 1
    document = json.loads(out)
    assert [result["image"]["path"] for result in document["results"]] == ["a.png", "b.jpg"]
    assert [failure["image"] for failure in document["failures"]] == [bad]
    assert document["error"] == document["failures"][0]["error"]
    assert err == f"error: {document['error']}\n1 of 3 images could not be explained.\n"
    assert len(outputs()) == 8


def test_what_nobody_expected_is_one_sentence_and_debug_shows_it_all(explain, monkeypatch):
    import fei.service.record as record

    def fail(*_, **__):
        raise RuntimeError("something\nodd")

    monkeypatch.setattr(record, "draw", fail)
    code, _, err = explain("a.png")
    assert (code, err) == (
        1,
        "error: unexpected RuntimeError: something odd; run with --debug to see the traceback\n",
    )
    assert outputs() == []
    code, _, err = explain("a.png --debug")
    assert code == 1
    assert "Traceback (most recent call last)" in err


def test_who_reads_may_stop_reading(place):
    """As in 'fei methods | head -1': the rest is not printed, and there is nothing to complain about."""
    child = process("methods", cwd=place)
    child.stdout.close()
    _, said = child.communicate(timeout=PATIENCE)
    assert said == ""


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"The results of 'a' cannot be written.*\(No space left on device\)"):
        write_results(tmp_path, "a", {".json": "half"})
    assert outputs(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such a file name")
def test_names_that_a_terminal_cannot_show_do_not_break_it(place):
    name = os.fsdecode(b"caf\xe9.png")
    (place / name).write_bytes((place / "a.png").read_bytes())
    child = process("explain", name, "--model", "net.py:Small", "--steps", "1", cwd=place)
    out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, err) == (0, "")
    assert "caf\\udce9.png" in out


def test_ctrl_c_is_one_line_130_and_no_files(place):
    child = process("explain", "a.png", "--model", "net.py:Slow", "--steps", "100000", cwd=place)
    deadline = time.monotonic() + PATIENCE
    while not (place / "started").exists():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, out, err.strip()) == (130, "", "Interrupted.")
    assert outputs(place / "fei-out") == []


def test_an_interrupt_in_the_midst_of_a_call_is_one_too(place, run):
    assert run("explain a.png --model net.py:Lost --steps 1") == (130, "", "Interrupted.\n")
