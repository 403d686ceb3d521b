"""What the tests share: the real networks and photographs, and a cat."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from browsing import launched
from hypothesis import settings
from page_server import NETWORKS
from torch import Tensor

from fei import models
from fei.common.machine import usable_processors
from fei.data import demo_image

pytest_plugins = ["isolation"]

# A slow or busy machine is not a failing test, and a test that passed once passes again: what a test draws depends on
# the test alone, unless more examples are asked for than the suite has (reliability/properties.py).
settings.register_profile("fei", deadline=None, print_blob=True, derandomize="FEI_EXAMPLES" not in os.environ)
settings.load_profile("fei")

_REPOSITORY = Path(__file__).parents[1]
# Pictures are drawn coarsely, which takes a third of the time; what looks at one asks for `fine_pictures`.
os.environ["MATPLOTLIBRC"] = str(Path(__file__).parent / "matplotlibrc")
_ASSETS = Path(os.environ.get("FEI_ASSETS", _REPOSITORY.parent / "shared" / "assets"))


def _require_assets() -> None:
    """Skip where the assets are absent; fail where they must not be, so that a green run means that they were used."""
    if (_ASSETS / "zoo.py").is_file():
        return
    message = f"no test assets in {_ASSETS}; set FEI_ASSETS to the folder that holds zoo.py"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def pytest_configure(config: pytest.Config) -> None:
    """Hear Ctrl-C, and share the processors with the other workers of pytest-xdist."""
    # what tests agree to is not remembered in the user's own folder
    if "FEI_CONFIG" not in os.environ:
        os.environ["FEI_CONFIG"] = folder = tempfile.mkdtemp(prefix="fei-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    # a shell starts background jobs deaf to Ctrl-C, and their children inherit that: the tests press it
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
        threads = max(1, usable_processors() // int(workers))
        torch.set_num_threads(threads)
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # for the processes that tests start


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("needs_assets"):
        _require_assets()


@pytest.fixture(scope="session")
def assets() -> Path:
    """The folder with real networks (zoo.py) and photographs."""
    _require_assets()
    return _ASSETS


@pytest.fixture(scope="session")
def embedded() -> models.Classifier:
    """EfficientNet-Lite0. Shared by all tests: leave it as it is."""
    return models.load("efficientnet_lite0")


@pytest.fixture(scope="session")
def squeezenet(assets: Path) -> models.Classifier:
    """SqueezeNet 1.1 with its ImageNet weights, small and quick. Shared by all tests: leave it as it is."""
    return models.load(f"{assets / 'zoo.py'}:squeezenet")


@pytest.fixture
def fine_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures as users get them."""
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParams, "savefig.dpi", "figure")


@pytest.fixture(scope="module")
def coarse_reports() -> Iterator[None]:
    """Figures of a benchmark's report with a quarter of the pixels, which is quicker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fei.bench.report.style._DPI", 100)
        yield


@pytest.fixture(scope="session")
def chelsea(embedded: models.Classifier) -> Tensor:
    """A cat, (1, 3, 224, 224), as the embedded network takes it."""
    return embedded.preprocess(demo_image("chelsea"))[None]


@pytest.fixture(scope="session")
def chelsea_squeezenet(squeezenet: models.Classifier) -> Tensor:
    """The same cat, (1, 3, 227, 227), as SqueezeNet takes it."""
    return squeezenet.preprocess(demo_image("chelsea"))[None]


@pytest.fixture(scope="module")
def browser():
    """Chromium, for one file of tests: no second one may run beside it."""
    with launched() as browser:
        yield browser


@pytest.fixture(scope="session")
def network_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks for the page of ``fei serve``: tiny, slow and broken."""
    file = tmp_path_factory.mktemp("networks") / "nets.py"
    file.write_text(NETWORKS, encoding="utf-8")
    return file
