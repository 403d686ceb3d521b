"""Two threads get the right maps, each row of a batch is its own, and no network ends more than its unit."""

import os
import subprocess
import sys
import threading
import time

import commands
import pytest
import torch
from commands import furnish
from commands import run as fei
from torch import nn

from fei import methods, models
from fei.bench.store import Store
from fei.common.exits import exits_caught
from fei.errors import ModelError
from fei.metrics import measure_cost
from fei.service.looking import load_network, probe

pytestmark = pytest.mark.slow

ODD = """
import os, sys
import torch
from torch import nn

class Odd(nn.Module):
    input_size = 16
    def __init__(self, how):
        super().__init__()
        torch.manual_seed(sum(how.encode()))
        self.how = how
        self.head = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=how != "batch"), nn.ReLU(),
                                  nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    def forward(self, x):
        if self.how == "random":
            x = x + torch.rand_like(x)
        if self.how.endswith("exit") and x.std() > 0 and x[0].mean() > 0.6:
            (sys.exit if self.how == "sys.exit" else os._exit)(7)
        return self.head(x)

def sound(): return Odd("")
def batch(): return Odd("batch")
def random(): return Odd("random")
def sys_exit(): return Odd("sys.exit")
def os_exit(): return Odd("os._exit")
def at_once(): os._exit(3)
"""
PLAN = """
name = "p"
retries = 0
[[pairs]]
model = "net.py:{}"
data = "photos"
[[methods]]
name = "saliency"
[metrics]
external = false
internal = false
complexity = true
"""


class Pausing(nn.Module):
    """Lets another thread run between any two layers."""

    def forward(self, x):
        time.sleep(0.002)
        return x


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1), nn.ReLU()]
    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)]
    return nn.Sequential(*(part for layer in layers for part in (Pausing(), layer)), *tail).eval()


def explain(method, model, x):
    return method(model, x, 1, generator=torch.Generator().manual_seed(3))


def in_threads(*calls):
    """What functions return that run at the same time, each several times."""
    found, barrier = [[] for _ in calls], threading.Barrier(len(calls))

    def work(place, call):
        barrier.wait()
        for _ in range(3):
            found[place].append(call())

    threads = [threading.Thread(target=work, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return found


def random_lime(model, inputs, target):
    """Attribution code that draws from the global generator while others may run."""
    noise = torch.rand(inputs.shape[2:])
    time.sleep(0.01)
    return (noise + torch.rand(inputs.shape[2:]))[None]


@pytest.mark.parametrize("names", ["gradcam gradcam", "kernel-shap kernel-shap", "gradcam adapter", "fei-vm adapter"])
def test_maps_from_two_threads_are_right(network, names):
    first, second = names.split()
    options = {"gradcam": {"layer": "6"}, "kernel-shap": {"samples": 20, "segments": 4}, "fei-vm": {"steps": 2}}
    images = torch.rand(2, 1, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    calls = []
    for name, image in zip((first, second), images, strict=True):
        method = methods.as_method(random_lime) if name == "adapter" else methods.create(name, **options[name])
        calls.append(lambda method=method, image=image: explain(method, network, image))
    expected = [call() for call in calls]
    for maps, wanted in zip(in_threads(*calls), expected, strict=True):
        assert len(maps) == 3
        for found in maps:
            assert torch.equal(found, wanted)


def test_the_work_of_another_thread_is_not_counted(network):
    x = torch.rand(1, 3, 16, 16)
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            network(x)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        _, cost = measure_cost(network, lambda: [network(x) for _ in range(3)])
    finally:
        stop.set()
        thread.join()
    assert cost.forwards == 3


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    furnish(tmp_path, ODD, "photos/a.png", "photos/b.png")
    bright = (torch.rand(20, 20, 3, generator=torch.Generator().manual_seed(0)) * 60 + 195).byte().numpy()
    commands.Image.fromarray(bright).save("photos/bright.png")
    return tmp_path


@pytest.mark.parametrize(
    ("factory", "told"),
    [("batch", "gives an image other values when there are others"), ("random", "other values at each call")],
)
def test_rows_that_are_not_their_own_are_found_before_anything_is_stored(place, capsys, factory, told):
    with pytest.raises(ModelError, match=told):
        load_network(f"net.py:{factory}", torch.device("cpu"))
    assert fei("explain", "photos/a.png", "--model", f"net.py:{factory}", "--method", "saliency") == 1
    assert told in capsys.readouterr().err
    assert not (place / "fei-out" / "a.json").exists()
    (place / "plan.toml").write_text(PLAN.format(factory), encoding="utf-8")
    assert fei("bench", "run", "plan.toml", "--out", "run") == 1
    with Store.open(place / "run", readonly=True) as store:
        assert store.rows("SELECT count(*) FROM scores") == [(0,)]
        assert all(told in error for error in store.failed().values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_is_no_fault(place, dtype):
    load_network("net.py:sound", torch.device("cpu"))
    network = models.load("net.py:sound").network.to(dtype)

    class Cast(nn.Module):
        input_size = 16

        def forward(self, x):
            return network(x.to(dtype))

    probe(models.Classifier(Cast(), input_size=16), torch.device("cpu"))


def test_a_network_that_ends_the_program_fails_its_unit(place):
    plan = PLAN.format("sys_exit") + '[[pairs]]\nmodel = "net.py:os_exit"\ndata = "photos"\n'
    (place / "plan.toml").write_text(plan, encoding="utf-8")
    words = [sys.executable, "-m", "fei", "bench", "run", "plan.toml", "--out", "run"]
    done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 1, done.stderr
    with Store.open(place / "run", readonly=True) as store:
        assert store.counts() == {"done": 4, "failed": 2, "pending": 0}
        for reason in store.failed().values():
            assert reason.startswith("The network or the method ended the program (exit code 7); ")
    done = subprocess.run(words, capture_output=True, check=False)
    assert done.returncode == 1  # the others are kept


def test_one_that_ends_it_as_it_is_loaded(place, capsys):
    (place / "plan.toml").write_text(PLAN.format("at_once"), encoding="utf-8")
    assert fei("bench", "run", "plan.toml", "--out", "run") == 1
    with Store.open(place / "run", readonly=True) as store:
        assert store.counts() == {"done": 0, "failed": 3, "pending": 0}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_child_that_was_forked_ends():
    with exits_caught():
        child = os.fork()
        if not child:
            os._exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        with pytest.raises(SystemExit):
            os._exit(1)
    assert os._exit.__name__ == "_exit"
