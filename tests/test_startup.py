"""What an import loads: looked up in a fresh interpreter, never timed."""

import json
import re
import subprocess
import sys

import pytest

import fei

pytestmark = pytest.mark.slow

SLOW = {"captum", "matplotlib", "scipy", "sklearn", "timm", "torchvision", "transformers"}


def loaded(code):
    """Top-level names of all modules that a fresh interpreter has imported after some code."""
    report = "\nimport json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", code + report], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def torchs():
    return loaded("import torch")


@pytest.mark.parametrize("code", ["import fei", "import fei; fei.methods.available()"])
def test_nothing_but_the_standard_library_is_loaded(code):
    assert loaded(code) - loaded("import json") - {"fei"} <= set(sys.stdlib_module_names)


def test_fei_needs_torch_alone(torchs):
    assert "numpy" in torchs  # torch loads it by itself
    assert loaded("import fei; fei.FEI") - torchs - set(sys.stdlib_module_names) == {"fei"}


def test_nothing_slow_is_loaded_before_it_is_needed():
    code = "import fei; fei.metrics.evaluate; fei.models.load; fei.data.load; fei.methods.create('rise')"
    code += "; import fei.bench.engine.worker"  # started many times in a run
    assert not SLOW & loaded(code)


def test_the_version_is_there_though_it_is_read_late():
    from fei import __version__

    assert __version__ == fei.__version__
    assert re.match(r"\d+[.+]", __version__)
    assert "__version__" in dir(fei)
