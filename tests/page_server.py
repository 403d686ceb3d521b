"""The page's server in a process of its own, small networks and a photograph for it."""

import importlib.util
import io
import json
import os
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image
from waiting import PATIENCE

NETWORKS = """
import time
import torch
from torch import nn

def tiny():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.ReLU(),
                            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 7))
        for parameter in net.parameters():
            parameter.data *= 3
    net.input_size = 24
    net.labels = ["a<b>bold</b>", "${1 + 1}", "{{value}}", "plain", "grey", "green", "blue"]
    return net

class Slow(nn.Module):
    input_size = 24
    def __init__(self):
        super().__init__()
        self.net = tiny()
    def forward(self, x):
        time.sleep(0.05)
        return self.net(x)

def slow():
    return Slow()

def broken():
    class Broken(Slow):
        def forward(self, x):
            if len(x) == 1:
                return self.net(x)
            raise KeyError("/a/secret/path")
    return Broken()

def picky():
    class Picky(Slow):
        def forward(self, x):
            if x.std() > 0:
                raise KeyError("/a/secret/path")
            return self.net(x)
    return Picky()
"""

# Ends when its standard input does, however this process ends.
_PROGRAM = """
import json, sys
from pathlib import Path
from fei.app import server
from fei.app.limits import Limits

server._SWEEP_SECONDS, server._HEAD_SECONDS = 0.2, 2.0  # nobody waits in a test for what is a matter of patience
given = json.loads(sys.argv[1])
options = server.ServeOptions(
    given["models"], port=0, limits=Limits(**given["limits"]), grace=1, temporary=Path(given["folder"]), **given["more"]
)
with server.serving(options) as address:
    print(address, flush=True)
    sys.stdin.read()
"""


def require(*modules):
    """Skip where a package is absent; fail where it must not be."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"{', '.join(missing)} must be installed in CI", pytrace=False)
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")


def png(size=(30, 40), colour=(200, 120, 40), kind="PNG"):
    """The bytes of an image file: a gradient, so that there is something to see."""
    pixels = np.zeros((size[1], size[0], 3), np.uint8) + np.array(colour, np.uint8)
    pixels[..., 1] += np.arange(size[0], dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


@contextmanager
def page_server(folder, models, more=None, **limits):
    """The address of a server that keeps its private folder in a given one, and has nothing left there afterwards."""
    require("starlette", "uvicorn")
    given = json.dumps({"models": models, "limits": limits, "folder": str(folder), "more": more or {}})
    words = [sys.executable, "-c", _PROGRAM, given]
    with subprocess.Popen(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        address = process.stdout.readline().strip()
        assert address, "the server did not start"
        try:
            yield address
        finally:
            process.stdin.close()
            assert process.wait(PATIENCE) == 0
    assert list(folder.iterdir()) == []
