"""torchvision's networks: preprocessing, weights, and what goes wrong."""

import socket
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch
from foreign_files import RunsCode, put_weights
from safetensors.torch import save_file
from torch import nn

from fei import models
from fei.data import demo_image
from fei.errors import InputError, ModelError, PackageError
from fei.models import Classifier
from fei.models.sources import _download
from fei.models.sources._torchvision import _of_weights

pytestmark = pytest.mark.slow


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
            ModelError, match="not what its name says, as its SHA-256 does not begin with 0676ba61; delete"
        ):
            models.load("torchvision:resnet50")

    def test_code_in_the_cache_is_refused_and_not_run(
        self, torchvision: ModuleType, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        weights = torchvision.models.SqueezeNet1_1_Weights.IMAGENET1K_V1
        put_weights(weights, {"surprise": RunsCode(tmp_path / "trace")}, cache, monkeypatch)
        with pytest.raises(ModelError, match="was refused, since .* Python objects besides tensors"):
            models.load("torchvision:squeezenet1_1")
        assert not (tmp_path / "trace").exists()

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ("resnet5", r"no classifier 'resnet5', see fei models 'torchvision:\*'; did you mean resnet50 .*\?"),
            ("ResNet18", r"no classifier 'ResNet18', see fei models 'torchvision:\*'; did you mean resnet18"),
            ("", r"torchvision has no classifier '', see fei models 'torchvision:\*'; check the name."),
            ("fcn_resnet50", "torchvision has no classifier 'fcn_resnet50'"),
            (
                "resnet50@IMAGENET_V2",
                r"resnet50 of torchvision has no weights 'IMAGENET_V2'; did you mean IMAGENET1K_V2 or IMAGENET1K_V1\?",
            ),
            (
                "resnet50@weights",
                "torchvision has no weights 'weights'; give one of IMAGENET1K_V1, IMAGENET1K_V2, DEFAULT or none",
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
        with pytest.raises(
            PackageError, match=r'needs torchvision, which is not installed; run pip install "fei\[torchvision\]"'
        ):
            models.load("torchvision:resnet50")
