"""Networks of torchvision, timm, Hugging Face and packages; their preprocessing, weights, and other classes."""

import hashlib
import importlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from typer.testing import CliRunner

from fei import models
from fei.cli._app import app
from fei.data import demo_image
from fei.errors import InputError, ModelError
from fei.models import Classifier, _download
from fei.models._checkpoint import read_metadata
from fei.models._from_torchvision import _of_weights
from fei.models._head import replace_head
from fei.models._torchvision import import_torchvision

NET = """
from torch import nn


def small():
    network = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    network.input_size, network.labels = 16, ["cat", "dog"]
    return network


def fails():
    raise RuntimeError("no")
"""


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


def put_weights(weights: Any, content: object, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a file into the cache as the weights of a network, named by its hash as torch names its files."""
    torch.save(content, cache / "file.pth")
    digest = hashlib.sha256((cache / "file.pth").read_bytes()).hexdigest()[:8]
    file = (cache / "file.pth").rename(cache / f"net-{digest}.pth")
    monkeypatch.setattr(weights.value, "url", f"https://example.org/{file.name}")
    return file


class RunsCode:
    """Unpickled carelessly, it makes the folder it names."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.trace),)


class TestTorchvision:
    def test_random_weights(self) -> None:
        torch.manual_seed(3)
        model = models.load("torchvision:squeezenet1_1@none")
        assert (model.input_size, model.resize, model.interpolation, model.squash) == (224, 256, "bicubic", False)
        assert model.mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])
        assert model.normalizes
        assert model.label(281) == "tabby"
        assert not any(module.training for module in model.modules())
        torch.manual_seed(3)
        again = models.load("torchvision:squeezenet1_1@None")
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))

    @pytest.mark.parametrize("case", ["", "@default", "@IMAGENET1K_V1", "@imagenet1k_v1"])
    def test_weights_from_torchs_cache(
        self, case: str, torchvision: ModuleType, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        network = torchvision.models.squeezenet1_1(weights=None).eval()
        weights = torchvision.models.SqueezeNet1_1_Weights.IMAGENET1K_V1
        put_weights(weights, network.state_dict(), cache, monkeypatch)
        before = torch.get_rng_state()
        model = models.load(f"torchvision:squeezenet1_1{case}")
        assert torch.equal(torch.get_rng_state(), before)
        image = demo_image("chelsea")
        with torch.no_grad():
            assert torch.equal(model(model.preprocess(image)[None]), network(weights.transforms()(image)[None]))
        assert model.labels == weights.meta["categories"]
        assert (model.resize, model.interpolation) == (256, "bilinear")

    @pytest.mark.parametrize(
        "name",
        [
            "ResNet50_Weights.IMAGENET1K_V1",
            "ResNet50_Weights.IMAGENET1K_V2",
            "VGG16_Weights.IMAGENET1K_FEATURES",
            "Inception_V3_Weights.IMAGENET1K_V1",
            "EfficientNet_B3_Weights.IMAGENET1K_V1",
            "ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1",
        ],
    )
    def test_images_are_prepared_as_torchvision_does(self, name: str, torchvision: ModuleType) -> None:
        weights = torchvision.models.get_weight(name)
        model = Classifier(nn.Flatten(), **_of_weights(weights))
        image = demo_image("chelsea")
        ours = model(model.preprocess(image)[None])
        assert torch.allclose(ours, weights.transforms()(image)[None].flatten(1), rtol=0, atol=1e-5)

    @pytest.mark.parametrize(
        ("spec", "file"),
        [
            ("resnet50", "resnet50-0676ba61.pth"),  # V1, the paper's
            ("resnet50@DEFAULT", "resnet50-11ad3fa6.pth"),  # V2, torchvision's own choice
            ("vgg16", "vgg16-397923af.pth"),
            ("mobilenet_v2", "mobilenet_v2-7ebf99e0.pth"),  # V2
            ("mobilenet_v2@imagenet1k_v1", "mobilenet_v2-b0353104.pth"),
        ],
    )
    def test_without_the_internet_the_file_and_its_place_are_named(self, spec: str, file: str, cache: Path) -> None:
        with pytest.raises(ModelError) as caught:
            models.load(f"torchvision:{spec}")
        message = str(caught.value)
        assert message.startswith(
            f"The weights '{file}' are not on this machine and cannot be downloaded from https://"
        )
        assert f"/models/{file} (URLError" in message
        assert message.endswith(f"; download them elsewhere and put them at {cache / file}.")
        assert list(cache.iterdir()) == []

    def test_a_server_that_does_not_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(30))
        monkeypatch.setattr(_download, "_PATIENCE", 0.2)
        started = time.monotonic()
        with pytest.raises(ModelError, match=r"\(no answer within 0 seconds\)"):
            models.load("torchvision:alexnet")
        assert time.monotonic() - started < 10

    def test_a_download(self, torchvision: ModuleType, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        weights = torchvision.models.SqueezeNet1_1_Weights.IMAGENET1K_V1
        network = torchvision.models.squeezenet1_1(weights=None)
        file = put_weights(weights, network.state_dict(), cache, monkeypatch)
        content = file.read_bytes()
        file.unlink()

        def download(url: str, place: str, digest: str, progress: bool) -> None:
            assert (url, digest, progress) == (weights.url, file.stem.partition("-")[2], False)
            Path(place).write_bytes(content)

        monkeypatch.setattr(_download, "unreachable", lambda _: None)
        monkeypatch.setattr(torch.hub, "download_url_to_file", download)
        models.load("torchvision:squeezenet1_1")
        assert file.is_file()

    def test_a_download_that_breaks_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def download(*_: object, **__: object) -> None:
            raise RuntimeError("invalid hash value")

        monkeypatch.setattr(_download, "unreachable", lambda _: None)
        monkeypatch.setattr(torch.hub, "download_url_to_file", download)
        with pytest.raises(
            ModelError, match=r"cannot be downloaded from .* \(RuntimeError: invalid hash value\); download"
        ):
            models.load("torchvision:squeezenet1_1")

    def test_a_file_that_is_not_what_its_name_says(self, cache: Path) -> None:
        (cache / "resnet50-0676ba61.pth").write_bytes(b"cut short")
        with pytest.raises(
            ModelError, match="not what its name says: its SHA-256 does not begin with 0676ba61; delete"
        ):
            models.load("torchvision:resnet50")

    def test_code_in_the_cache_is_refused_and_not_run(
        self, torchvision: ModuleType, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        weights = torchvision.models.SqueezeNet1_1_Weights.IMAGENET1K_V1
        put_weights(weights, {"surprise": RunsCode(tmp_path / "trace")}, cache, monkeypatch)
        with pytest.raises(ModelError, match="was refused: .* Python objects besides tensors"):
            models.load("torchvision:squeezenet1_1")
        assert not (tmp_path / "trace").exists()

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ("resnet5", r"no classifier 'resnet5' \(did you mean resnet50 .*\?\); see: fei models 'torchvision:\*'"),
            ("ResNet18", r"no classifier 'ResNet18' \(did you mean resnet18"),
            ("", "torchvision has no classifier ''; see"),
            ("fcn_resnet50", "torchvision has no classifier 'fcn_resnet50'"),
            (
                "resnet50@IMAGENET_V2",
                r"resnet50 has no weights 'IMAGENET_V2' \(did you mean IMAGENET1K_V2 or IMAGENET1K_V1\?\); give one of "
                "IMAGENET1K_V1, IMAGENET1K_V2, DEFAULT or none",
            ),
        ],
    )
    def test_typing_errors(self, spec: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            models.load(f"torchvision:{spec}")

    def test_auxiliary_heads_are_left_off_and_the_normalisation_is_tensorflows(
        self, torchvision: ModuleType, tmp_path: Path
    ) -> None:
        network = torchvision.models.googlenet(weights=None, init_weights=False, transform_input=True).eval()
        torch.save(network.state_dict(), tmp_path / "g.pth")
        model = models.load(f"torchvision:googlenet:{tmp_path / 'g.pth'}")
        assert not any("aux" in name for name, _ in model.named_parameters())
        pixels = torch.rand(1, 3, 64, 64)
        with torch.no_grad():
            assert torch.equal(model(pixels), network((pixels - model.mean) / model.std))
        assert not models.load(f"torchvision:googlenet@none:{tmp_path / 'g.pth'}").network.transform_input

    def test_inception_has_its_own_size(self, torchvision: ModuleType) -> None:
        assert models.load("torchvision:inception_v3@none").input_size == 299
        assert _of_weights(torchvision.models.Inception_V3_Weights.DEFAULT)["input_size"] == 299

    def test_files_with_old_names(self, torchvision: ModuleType, tmp_path: Path) -> None:
        """DenseNet's are of 2017: norm.1 for norm1, and no counters in the batch normalisation."""
        state = torchvision.models.densenet121(weights=None).state_dict()
        old = {
            key.replace("norm1.", "norm.1.").replace("conv2.", "conv.2."): tensor
            for key, tensor in state.items()
            if "num_batches" not in key
        }
        torch.save(old, tmp_path / "old.pth")
        model = models.load(f"torchvision:densenet121:{tmp_path / 'old.pth'}")
        assert all(torch.equal(tensor, state[key]) for key, tensor in model.network.state_dict().items())

    def test_a_network_that_asks_for_a_version(self, torchvision: ModuleType, tmp_path: Path) -> None:
        """MNASNet refuses weights without one, and a .safetensors file has none."""
        save_file(torchvision.models.mnasnet0_5(weights=None).state_dict(), tmp_path / "m.safetensors")
        models.load(f"torchvision:mnasnet0_5:{tmp_path / 'm.safetensors'}")

    def test_it_is_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "path", [])
        with pytest.raises(ModelError, match=r'not installed; run: pip install "fei\[torchvision\]"'):
            models.load("torchvision:resnet50")


class TestTimm:
    def test_random_weights(self) -> None:
        model = models.load("timm:test_resnet@none")
        assert model.labels is not None
        assert (model.input_size, len(model.labels), model.label(281)) == (160, 1000, "tabby, tabby cat")
        assert model.spec == "timm:test_resnet@none"
        assert model.feature_layers == [f"network.layer{i}" for i in (1, 2, 3, 4)]

    @pytest.mark.parametrize("name", ["test_resnet", "test_resnet.r160_in1k", "test_vit"])
    def test_weights_from_the_cache(
        self, name: str, timm: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Images are prepared as timm does, and the weights are those of the file in the hub's cache."""
        network = timm.create_model(name).eval()
        file = self.in_cache(f"timm/{name.partition('.')[0]}.r160_in1k", tmp_path)
        save_file(network.state_dict(), file)
        before = torch.get_rng_state()
        model = models.load(f"timm:{name}")
        assert torch.equal(torch.get_rng_state(), before)
        transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network))
        image = demo_image("chelsea")
        with torch.no_grad():
            expected = network(transform(image)[None])
            assert torch.allclose(model(model.preprocess(image)[None]), expected, atol=1e-4)

    def in_cache(self, repository: str, tmp_path: Path) -> Path:
        """Where the hub's client keeps the weights of a repository."""
        folder = tmp_path / "hf" / f"models--{repository.replace('/', '--')}"
        (folder / "snapshots" / "c0ffee").mkdir(parents=True)
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text("c0ffee")
        return folder / "snapshots" / "c0ffee" / "model.safetensors"

    def test_a_damaged_file_in_the_cache(self, timm: ModuleType, tmp_path: Path) -> None:
        self.in_cache("timm/test_resnet.r160_in1k", tmp_path).write_bytes(b"cut short")
        with pytest.raises(ModelError, match="model.safetensors of timm's test_resnet cannot be read .* delete them"):
            models.load("timm:test_resnet")

    def test_squashed_images_are_prepared_as_timm_does(self, timm: ModuleType) -> None:
        model = models.load("timm:vit_tiny_patch16_224@none")
        config = timm.data.resolve_model_data_config(model.network) | {"crop_mode": "squash", "crop_pct": 0.9}
        squashing = Classifier(nn.Flatten(), input_size=224, resize=248, squash=True, mean=(0.5,) * 3, std=(0.5,) * 3)
        image = demo_image("chelsea")
        expected = timm.data.create_transform(**config)(image).flatten()
        assert torch.allclose(squashing(squashing.preprocess(image)[None])[0], expected, atol=1e-5)

    def test_without_the_internet_the_file_is_named(self, timm: ModuleType, tmp_path: Path) -> None:
        started = time.monotonic()
        with pytest.raises(ModelError) as caught:
            models.load("timm:test_resnet")
        assert time.monotonic() - started < 20
        assert str(caught.value) == (
            f"The file 'model.safetensors' of 'timm/test_resnet.r160_in1k' is not in the cache {tmp_path / 'hf'} and "
            "cannot be downloaded from https://huggingface.co/timm/test_resnet.r160_in1k/resolve/main/model.safetensors"
            " (URLError: <urlopen error [Errno -2] Name or service not known>); download it elsewhere and name it as a "
            "checkpoint: timm:test_resnet:path/to/model.safetensors."
        )

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ("resnet5O", r"timm has no network 'resnet5O' \(did you mean resnet50.*; see: fei models 'timm:\*'"),
            ("resnet50.a1_in2k", r"no network 'resnet50.a1_in2k' \(did you mean resnet50.a1_in1k"),
            ("resnet50@a1_in1k", "not named with '@a1_in1k'; write timm:ARCHITECTURE.TAG, or timm:resnet50@none"),
            ("", "timm has no network ''"),
        ],
    )
    def test_typing_errors(self, spec: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            models.load(f"timm:{spec}")

    def test_a_network_without_weights(self, timm: ModuleType) -> None:
        name = next(spec for spec in models.available("timm:resnet*") if spec.endswith("@none")).removesuffix("@none")
        with pytest.raises(InputError, match=f"no weights for '.*'; write {name}@none, or add ':' and a checkpoint"):
            models.load(name)

    def test_it_is_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(sys.modules, "timm", raising=False)
        monkeypatch.setattr(sys, "path", [])
        with pytest.raises(ModelError, match=r'timm is needed .* not installed; run: pip install "fei\[timm\]"'):
            models.load("timm:resnet50")


@pytest.fixture(scope="module")
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


class TestHuggingFace:
    def test_a_folder(self, vit: Path, transformers: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
        before = torch.get_rng_state()
        model = models.load(f"hf:{vit}")
        assert torch.equal(torch.get_rng_state(), before)
        assert capfd.readouterr() == ("", "")
        assert (model.labels, model.input_size, model.squash) == (["cat", "dog", "bird"], 32, True)
        network = transformers.AutoModelForImageClassification.from_pretrained(vit).eval()
        image = demo_image("chelsea")
        prepared = transformers.AutoImageProcessor.from_pretrained(vit)(image, return_tensors="pt")["pixel_values"]
        ours = (model.preprocess(image)[None] - model.mean) / model.std
        assert torch.allclose(ours, prepared, atol=2.1 / 255 / 0.5)  # it resizes tensors, which rounds otherwise
        with torch.no_grad():
            assert torch.allclose(model(torch.full((1, 3, 32, 32), 0.5)), network(torch.zeros(1, 3, 32, 32)).logits)

    def test_feature_layers_are_its_blocks(self, vit: Path) -> None:
        layers = models.load(f"hf:{vit}").feature_layers
        assert len(layers) == 4
        assert [layer[-1] for layer in layers] == ["0", "1", "2", "3"]

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}}, (224, 256, False)),
            ({"size": {"height": 256, "width": 256}, "crop_size": {"height": 224, "width": 224}}, (224, 256, True)),
        ],
    )
    def test_other_ways_to_prepare_images(
        self, settings: dict[str, Any], expected: tuple[int, int, bool], vit: Path, tmp_path: Path
    ) -> None:
        shutil.copytree(vit, tmp_path / "net")
        file = tmp_path / "net" / "preprocessor_config.json"
        settings |= {"image_processor_type": "CLIPImageProcessor", "do_center_crop": True}
        file.write_text(json.dumps(json.loads(file.read_text()) | settings))
        model = models.load(f"hf:{tmp_path / 'net'}")
        assert (model.input_size, model.resize, model.squash) == expected

    def test_what_is_left_of_a_convnext_image(self, vit: Path, tmp_path: Path) -> None:
        shutil.copytree(vit, tmp_path / "net")
        file = tmp_path / "net" / "preprocessor_config.json"
        for side, expected in ((224, (224, 256, False)), (384, (384, 384, True))):
            settings = {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": side}}
            file.write_text(json.dumps(settings | {"crop_pct": 0.875}))
            model = models.load(f"hf:{tmp_path / 'net'}")
            assert (model.input_size, model.resize, model.squash) == expected

    def test_oblong_images_are_refused(self, vit: Path, tmp_path: Path) -> None:
        shutil.copytree(vit, tmp_path / "net")
        file = tmp_path / "net" / "preprocessor_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"size": {"height": 32, "width": 64}}))
        with pytest.raises(ModelError, match="takes images of the size .*; only square ones are supported"):
            models.load(f"hf:{tmp_path / 'net'}")

    def test_only_safetensors_are_read(self, vit: Path, tmp_path: Path) -> None:
        shutil.copytree(vit, tmp_path / "net")
        (tmp_path / "net" / "model.safetensors").unlink()
        torch.save({"surprise": RunsCode(tmp_path / "trace")}, tmp_path / "net" / "pytorch_model.bin")
        with pytest.raises(
            ModelError, match="no complete .safetensors file, and no other format is read, since it could"
        ):
            models.load(f"hf:{tmp_path / 'net'}")
        assert not (tmp_path / "trace").exists()

    def test_code_that_comes_with_a_model_is_not_run(self, vit: Path, tmp_path: Path) -> None:
        shutil.copytree(vit, tmp_path / "net")
        config = json.loads((tmp_path / "net" / "config.json").read_text())
        config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
        (tmp_path / "net" / "config.json").write_text(json.dumps(config))
        (tmp_path / "net" / "own.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'trace')!r})\n")
        with pytest.raises(ModelError, match="cannot be loaded .*; it must be an image classifier that transformers"):
            models.load(f"hf:{tmp_path / 'net'}")
        assert not (tmp_path / "trace").exists()

    def test_a_network_that_was_not_trained_to_classify(
        self, vit: Path, transformers: ModuleType, tmp_path: Path
    ) -> None:
        shutil.copytree(vit, tmp_path / "net")
        transformers.ViTModel.from_pretrained(vit, add_pooling_layer=False).save_pretrained(tmp_path / "net")
        with pytest.raises(ModelError, match="no weights for classifier.bias, classifier.weight; it is not a trained"):
            models.load(f"hf:{tmp_path / 'net'}")

    @pytest.mark.parametrize(
        ("file", "content"),
        [
            ("model.safetensors.index.json", "{"),
            ("model.safetensors.index.json", "[]"),
            ("preprocessor_config.json", '{"image_processor_type": "ViTImageProcessor", "image_mean": "x"}'),
        ],
    )
    def test_damaged_json_in_a_folder(self, vit: Path, tmp_path: Path, file: str, content: str) -> None:
        shutil.copytree(vit, tmp_path / "net")
        if "index" in file:
            (tmp_path / "net" / "model.safetensors").unlink()
        (tmp_path / "net" / file).write_text(content)
        with pytest.raises(ModelError, match="cannot be loaded"):
            models.load(f"hf:{tmp_path / 'net'}")

    def test_a_folder_in_the_hubs_cache(self, vit: Path, tmp_path: Path) -> None:
        folder = tmp_path / "hf" / "models--somebody--vit"
        shutil.copytree(vit, folder / "snapshots" / "c0ffee")
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text("c0ffee")
        assert models.load("hf:somebody/vit").labels == ["cat", "dog", "bird"]

    def test_without_the_internet_the_file_is_named(self, transformers: ModuleType, tmp_path: Path) -> None:
        started = time.monotonic()
        with pytest.raises(ModelError) as caught:
            models.load("hf:somebody/vit")
        assert time.monotonic() - started < 20
        message = str(caught.value)
        assert message.startswith(
            f"The file 'model.safetensors' of 'somebody/vit' is not in the cache {tmp_path / 'hf'}"
        )
        assert "from https://huggingface.co/somebody/vit/resolve/main/model.safetensors (URLError" in message
        assert message.endswith("; download the model elsewhere and name its folder: hf:path/to/folder.")

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("./absent", "'./absent' is neither a folder here nor a model of Hugging Face; check the path"),
            ("", "The model's ID is missing after 'hf:'"),
        ],
    )
    def test_what_is_no_model(self, transformers: ModuleType, name: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            models.load(f"hf:{name}")

    def test_it_is_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(sys.modules, "transformers", raising=False)
        monkeypatch.setattr(sys, "path", [])
        with pytest.raises(ModelError, match=r'transformers is needed .* run: pip install "fei\[hf\]"'):
            models.load("hf:somebody/vit")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "some_nets").mkdir()
    (tmp_path / "some_nets" / "__init__.py").touch()
    (tmp_path / "some_nets" / "small_ones.py").write_text(NET)
    (tmp_path / "some_nets" / "broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("some_nets", "some_nets.small_ones"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "some_nets.small_ones:small"


class TestPackages:
    def test_a_factory(self, package: str) -> None:
        model = models.load(package)
        assert (model.input_size, model.labels, model.spec) == (16, ["cat", "dog"], package)
        assert sys.modules["some_nets.small_ones"].__file__ is not None

    @pytest.mark.parametrize(
        ("spec", "error", "message"),
        [
            ("some_nets.large_ones:f", InputError, "There is no Python module 'some_nets.large_ones'; check the name"),
            ("no_nets.at_all:f", InputError, "There is no Python module 'no_nets.at_all'; check the name, or install"),
            ("torchvison:resnet50", InputError, r"'torchvison' \(did you mean torchvision:resnet50\?\); check"),
            (
                "some_nets.small_ones:smal",
                InputError,
                "no factory 'smal'; did you mean small. .* package.module:factory",
            ),
            ("some_nets.small_ones:", InputError, "'some_nets.small_ones' is given without a factory"),
            ("some_nets.small_ones:fails", ModelError, "'some_nets.small_ones:fails' failed .RuntimeError: no"),
            ("some_nets.broken:f", ModelError, "module 'some_nets.broken' cannot be imported .ZeroDivisionError"),
            (".small_ones:f", InputError, "There is no model '.small_ones:f'; give one of"),
        ],
    )
    def test_what_does_not_work(self, package: str, spec: str, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            models.load(spec)


class TestCheckpointNames:
    @pytest.mark.parametrize(
        ("spec", "missing"),
        [
            ("efficientnet_lite0:w.pt", "w.pt"),
            ("efficientnet_lite0:C:/w.pt", "C:/w.pt"),
            ("torchvision:resnet50@none:/a/w.safetensors", "/a/w.safetensors"),
            ("torchvision:resnet50:C:\\a\\w.pth", "C:\\a\\w.pth"),
            ("timm:resnet50.a1_in1k:w.v2.pth", "w.v2.pth"),
            ("hf:a/b:w.pt", "w.pt"),
            ("hf:D:\\vit:C:\\w.pt", "C:\\w.pt"),
            ("net.py:f:/w.pt", "/w.pt"),  # f is the factory, not a drive
            ("C:\\net.py:factory:D:\\w.pt", "D:\\w.pt"),
            ("pkg.module:f:/w.pt", "/w.pt"),
        ],
    )
    def test_are_told_apart_from_the_network(self, spec: str, missing: str) -> None:
        with pytest.raises(InputError) as caught:
            models.load(spec)
        assert str(caught.value) == f"There is no checkpoint '{missing}'; check the path."

    def test_another_kind_of_file(self) -> None:
        with pytest.raises(InputError, match="The checkpoint 'w.onnx' ends in '.onnx'; give a .safetensors"):
            models.load("torchvision:resnet50:w.onnx")


KINDS = {
    "efficientnet_lite0": "_fc",
    "torchvision:squeezenet1_1@none": "classifier.1",
    "torchvision:shufflenet_v2_x0_5@none": "fc",
    "timm:test_resnet@none": "fc",
    "timm:test_vit@none": "head",
    "timm:test_convnext@none": "head.fc",
    "hf:{vit}": "classifier",
    "{file}:small": "4",
    "some_nets.small_ones:small": "4",
}


class TestOtherClasses:
    """What a fine-tuning writes is loaded by the same specification with the file behind it."""

    @pytest.fixture
    def spec(self, request: pytest.FixtureRequest, package: str, vit: Path, tmp_path: Path) -> str:
        (tmp_path / "net.py").write_text(NET)
        return str(request.param).format(vit=vit, file=tmp_path / "net.py")

    def other(self, spec: str, classes: int = 5) -> tuple[Classifier, str]:
        model = models.load(spec)
        return model, replace_head(model, classes)

    @pytest.mark.parametrize(("spec", "head"), KINDS.items(), indirect=["spec"])
    def test_of_every_kind_of_network(self, spec: str, head: str, tmp_path: Path) -> None:
        model, name = self.other(spec)
        assert name == f"network.{head}"
        labels = ["a", "b", "c", "d", "ä"]
        file = tmp_path / "tuned.safetensors"
        save_file(model.network.state_dict(), file, metadata={"fei.labels": json.dumps(labels), "fei.spec": spec})
        tuned = models.load(f"{spec}:{file}")
        assert (tuned.labels, tuned.spec) == (labels, f"{spec}:{file}")
        pixels = torch.rand(1, 3, model.input_size, model.input_size)
        with torch.no_grad():
            assert torch.equal(tuned(pixels), model(pixels))
        assert tuned(pixels).shape == (1, 5)
        assert read_metadata(file).spec == spec

    @pytest.mark.parametrize(
        "spec", ["efficientnet_lite0", "timm:test_resnet@none", "hf:{vit}", "{file}:small"], indirect=True
    )
    def test_without_labels_the_old_ones_are_gone(self, spec: str, tmp_path: Path) -> None:
        model, _ = self.other(spec)
        torch.save(model.network.state_dict(), tmp_path / "tuned.pt")
        assert models.load(f"{spec}:{tmp_path / 'tuned.pt'}").labels is None

    @pytest.mark.parametrize(
        "spec", ["efficientnet_lite0", "timm:test_resnet@none", "hf:{vit}", "{file}:small"], indirect=True
    )
    def test_with_as_many_classes_the_old_labels_stay(self, spec: str, tmp_path: Path) -> None:
        model = models.load(spec)
        torch.save(model.network.state_dict(), tmp_path / "tuned.pt")
        assert models.load(f"{spec}:{tmp_path / 'tuned.pt'}").labels == model.labels

    @pytest.mark.parametrize("spec", ["torchvision:squeezenet1_1@none", "{file}:small"], indirect=True)
    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (["a", "b"], "names 2 classes and the network has 5; write the file anew with a label for each class"),
            ({"a": 1}, "are not a JSON list of strings; write the file anew"),
            ([1, 2, 3, 4, 5], "are not a JSON list of strings"),
        ],
    )
    def test_labels_that_do_not_fit(self, spec: str, labels: object, message: str, tmp_path: Path) -> None:
        model, _ = self.other(spec)
        file = tmp_path / "tuned.safetensors"
        save_file(model.network.state_dict(), file, metadata={"fei.labels": json.dumps(labels)})
        with pytest.raises(ModelError, match=message):
            models.load(f"{spec}:{file}")

    def test_labels_that_are_no_json(self, tmp_path: Path) -> None:
        save_file({"a": torch.ones(1)}, tmp_path / "odd.safetensors", metadata={"fei.labels": "a, b"})
        with pytest.raises(ModelError, match="The 'fei.labels' in '.*odd.safetensors' are not a JSON list of strings"):
            read_metadata(tmp_path / "odd.safetensors")

    def test_two_heads(self, timm: ModuleType, tmp_path: Path) -> None:
        """A distilled transformer averages two; timm makes both for the number that the file has."""
        network = timm.create_model("deit_tiny_distilled_patch16_224", num_classes=4).eval()
        save_file(network.state_dict(), tmp_path / "w.safetensors")
        before = torch.get_rng_state()
        model = models.load(f"timm:deit_tiny_distilled_patch16_224:{tmp_path / 'w.safetensors'}")
        assert torch.equal(torch.get_rng_state(), before)
        assert (model(torch.rand(1, 3, 224, 224)).shape, model.labels) == ((1, 4), None)

    @pytest.mark.parametrize("name", ["timm:test_resnet@none", "torchvision:squeezenet1_1@none"])
    def test_weights_of_another_network(self, name: str, tmp_path: Path) -> None:
        torch.save({"some.weight": torch.ones(2)}, tmp_path / "w.pt")
        with pytest.raises(ModelError, match="does not fit the network .missing: .* unexpected: some.weight"):
            models.load(f"{name}:{tmp_path / 'w.pt'}")


class Averaging(nn.Module):
    """The mean of two heads; neither alone may be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        pooled = x.mean((2, 3))
        return torch.cat([self.one(pooled), self.two(pooled)], 1)


class TestReplaceHead:
    def test_the_last_one_to_run_is_meant(self) -> None:
        class Odd(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.head = nn.Linear(4, 2, bias=False).double()
                self.body = nn.Linear(3, 4).double()

            def forward(self, x: Tensor) -> Tensor:
                return self.head(self.body(x.mean((2, 3))))

        network = Odd().train()
        network.head.eval()
        assert replace_head(network, 7) == "head"
        assert (network.head.weight.shape, network.head.bias) == ((7, 4), None)
        assert network.head.out_features == 7
        assert network.head.weight.dtype == torch.float64
        assert (network.training, network.head.training) == (True, False)
        assert network(torch.rand(2, 3, 4, 4).double()).shape == (2, 7)

    def test_under_all_of_its_names(self) -> None:
        network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
        network.alias = nn.ModuleList([network[2]])
        network.forward = lambda x: network[2](network[1](network[0](x)))
        replace_head(network, 3)
        assert network[2] is network.alias[0]
        assert network[2].out_features == 3

    @pytest.mark.parametrize("network", [nn.Flatten(), Averaging()])
    def test_a_network_without_one(self, network: nn.Module) -> None:
        with pytest.raises(
            ModelError, match="does not end in one linear layer or 1 × 1 convolution that makes its logits"
        ):
            replace_head(network, 3)

    def test_a_network_that_fails(self) -> None:
        with pytest.raises(ModelError, match="fails on an image of 224 × 224 pixels .*; check input_size"):
            replace_head(nn.Linear(5, 2), 3)

    @pytest.mark.parametrize("classes", [0, -1, 2.0, True])
    def test_a_number_that_is_none(self, classes: Any) -> None:
        with pytest.raises(InputError, match="classes is .*; give the number of classes, 1 or more"):
            replace_head(nn.Linear(5, 2), classes)


class TestPlaceBoxes:
    WAYS = pytest.mark.parametrize(
        "options",
        [
            {},
            {"input_size": 64, "resize": 64},
            {"input_size": 100, "resize": 131, "interpolation": "bilinear"},
            {"input_size": 96, "resize": 110, "squash": True},
        ],
    )

    @WAYS
    @pytest.mark.parametrize("size", [(320, 200), (200, 320), (224, 224), (60, 40), (3000, 100)])
    def test_a_painted_box_is_found_where_it_is_said_to_be(
        self, size: tuple[int, int], options: dict[str, Any]
    ) -> None:
        model = Classifier(nn.Flatten(), **options)
        width, height = size
        box = (round(0.45 * width), round(0.3 * height), round(0.55 * width) + 1, round(0.7 * height) + 1)
        image = np.zeros((height, width, 3), dtype=np.uint8)
        image[box[1] : box[3], box[0] : box[2]] = 255
        white = model.preprocess(image)[0] > 0.5
        (placed,) = model.place_boxes([box], size)
        columns, rows = torch.nonzero(white.any(0)).flatten(), torch.nonzero(white.any(1)).flatten()
        found = (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)
        assert placed == pytest.approx(found, abs=0.75)  # half a pixel, and what the filter overshoots

    @WAYS
    @pytest.mark.parametrize("size", [(200, 120), (90, 211), (255, 255), (60, 40), (250, 12)])
    def test_every_pixel_is_where_it_came_from(self, size: tuple[int, int], options: dict[str, Any]) -> None:
        """In an image whose pixels say which column, or row, they are of, so do those of the preprocessed one."""
        model = Classifier(nn.Flatten(), **options)
        width, height = size
        across, down = np.meshgrid(np.arange(width), np.arange(height))
        values = model.preprocess(np.stack([across, down, down], 2).astype(np.uint8)) * 255 + 0.5
        middle = model.input_size // 2
        for axis, origin in enumerate((values[0, middle], values[1, :, middle])):
            inner = [p for p in range(model.input_size) if 2 <= origin[p] <= size[axis] - 2]  # off the border
            corners = [(float(origin[p]), 0.0) if axis == 0 else (0.0, float(origin[p])) for p in inner]
            placed = model.place_boxes([(*corner, 1e4, 1e4) for corner in corners], size)
            errors = [box[axis] - (p + 0.5) for box, p in zip(placed, inner, strict=True) if box is not None]
            assert len(errors) > 1
            assert abs(float(np.mean(errors))) < 0.3  # their numbers are rounded

    def test_boxes_are_cut_and_left_out_in_order(self) -> None:
        model = Classifier(nn.Flatten(), input_size=100, resize=100)  # of 300 × 100: the middle third as it is
        boxes = [(0, 0, 300, 100), (0, 0, 100, 100), (110, 10, 130.5, 20), (90, -5, 101, 50), (200, 0, 250, 100)]
        assert model.place_boxes(boxes, (300, 100)) == [
            (0.0, 0.0, 100.0, 100.0),
            None,
            (10.0, 10.0, 30.5, 20.0),
            (0.0, 0.0, 1.0, 50.0),
            None,
        ]
        assert model.place_boxes([], (300, 100)) == []

    @pytest.mark.parametrize("box", [(0, 0, 1), (1, 0, 1, 1), (0, 5, 1, 2), (0, 0, float("nan"), 1)])
    def test_what_is_no_box(self, box: tuple[float, ...]) -> None:
        with pytest.raises(InputError, match=r"A box is .*; give \(left, top, right, bottom\)"):
            Classifier(nn.Flatten()).place_boxes([box], (10, 10))

    @pytest.mark.parametrize("size", [(0, 10), (10,), (1.5, 2)])
    def test_what_is_no_size(self, size: Any) -> None:
        with pytest.raises(InputError, match="size is .*; give the image's width and height in pixels"):
            Classifier(nn.Flatten()).place_boxes([], size)


class TestListing:
    def run(self, *arguments: str) -> str:
        result = CliRunner().invoke(app, ["models", *arguments], env={"COLUMNS": "200"})
        assert result.exit_code == 0, result.output
        return result.stdout

    def test_names_by_a_pattern(self, timm: ModuleType) -> None:
        assert models.available("torchvision:vgg1?") == [f"torchvision:vgg{depth}" for depth in (11, 13, 16, 19)]
        assert "timm:test_resnet.r160_in1k" in models.available("timm:test_*")
        assert models.available("eff*") == ["efficientnet_lite0"]
        assert models.available("torchvision:nothing*") == []
        assert all(spec.startswith("timm:") for spec in models.available("timm:*"))

    @pytest.mark.parametrize("pattern", ["hf:*", "package.module:*"])
    def test_what_cannot_be_listed(self, pattern: str) -> None:
        with pytest.raises(InputError, match="cannot be listed; give a pattern such as 'torchvision:res.'"):
            models.available(pattern)

    def test_on_the_command_line(self) -> None:
        text = self.run()
        assert all(form in text and models.describe(form) in text for form in models.available())
        document = json.loads(self.run("--json"))
        assert document["models"] == models.available() == list(document["summaries"])
        assert self.run("torchvision:vgg1?_bn").split() == [f"torchvision:vgg{depth}_bn" for depth in (11, 13, 16, 19)]
        assert json.loads(self.run("torchvision:alex*", "--json")) == {"models": ["torchvision:alexnet"]}
        assert self.run("torchvision:nothing*") == ""
