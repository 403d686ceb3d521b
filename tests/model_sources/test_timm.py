"""timm's networks: preprocessing, weights, and what goes wrong."""

import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fei import models
from fei.data import demo_image
from fei.errors import InputError, ModelError, PackageError
from fei.models import Classifier


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
        (folder / "refs" / "main").write_text("c0ffee", encoding="utf-8")
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
            ("resnet5O", r"timm has no network 'resnet5O', see fei models 'timm:\*'; did you mean resnet50.*\?"),
            ("resnet50.a1_in2k", r"'resnet50.a1_in2k', see fei models 'timm:\*'; did you mean resnet50.a1_in1k"),
            ("resnet50@a1_in1k", "not named with '@a1_in1k'; write timm:ARCHITECTURE.TAG, or timm:resnet50@none"),
            ("", "timm has no network ''"),
        ],
    )
    def test_typing_errors(self, spec: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            models.load(f"timm:{spec}")

    def test_a_network_without_weights(self, timm: ModuleType) -> None:
        name = next(spec for spec in models.available("timm:resnet*") if spec.endswith("@none")).removesuffix("@none")
        with pytest.raises(InputError, match=f"has no weights in timm; write {name}@none, or add ':' and a checkpoint"):
            models.load(name)

    def test_it_is_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(sys.modules, "timm", raising=False)
        monkeypatch.setattr(sys, "path", [])
        with pytest.raises(PackageError, match=r'needs timm, which is not installed; run pip install "fei\[timm\]"'):
            models.load("timm:resnet50")
