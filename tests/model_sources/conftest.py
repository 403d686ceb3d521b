"""Networks of other libraries: nobody answers on the network, and all caches are empty."""

import importlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from foreign_files import NET

from fei.models.sources import import_torchvision


@pytest.fixture
def torchvision() -> ModuleType:
    return import_torchvision()


@pytest.fixture
def timm() -> ModuleType:
    import_torchvision()
    return importlib.import_module("timm")


@pytest.fixture
def transformers() -> ModuleType:
    import_torchvision()
    return importlib.import_module("transformers")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked up and nobody answers, on any machine."""

    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Empty caches of torch and of Hugging Face; the folder is that of torch's checkpoints."""
    before = torch.hub._hub_dir
    torch.hub.set_dir(str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf"))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    yield folder
    torch.hub._hub_dir = before


@pytest.fixture(scope="session")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny vision transformer as transformers saves it."""
    import_torchvision()
    transformers = importlib.import_module("transformers")
    if not transformers.utils.is_torch_available():
        pytest.skip(f"this transformers wants a newer torch than {torch.__version__}")
    folder = tmp_path_factory.mktemp("vit")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
        id2label={0: "cat", 1: "dog", 2: "bird"},
    )
    transformers.utils.logging.disable_progress_bar()
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}, resample=2).save_pretrained(folder)
    return folder


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "some_nets").mkdir()
    (tmp_path / "some_nets" / "__init__.py").touch()
    (tmp_path / "some_nets" / "small_ones.py").write_text(NET, encoding="utf-8")
    (tmp_path / "some_nets" / "broken.py").write_text("1 / 0", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("some_nets", "some_nets.small_ones"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "some_nets.small_ones:small"
