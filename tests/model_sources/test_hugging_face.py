"""Networks of Hugging Face: folders, caches, and what goes wrong."""

import json
import shutil
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from foreign_files import RunsCode
from torch.nn import functional as F

from fei import methods, models
from fei.data import demo_image
from fei.errors import InputError, ModelError, PackageError

pytestmark = pytest.mark.slow


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
        file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | settings), encoding="utf-8")
        model = models.load(f"hf:{tmp_path / 'net'}")
        assert (model.input_size, model.resize, model.squash) == expected

    def test_what_is_left_of_a_convnext_image(self, vit: Path, tmp_path: Path) -> None:
        shutil.copytree(vit, tmp_path / "net")
        file = tmp_path / "net" / "preprocessor_config.json"
        for side, expected in ((224, (224, 256, False)), (384, (384, 384, True))):
            settings = {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": side}}
            file.write_text(json.dumps(settings | {"crop_pct": 0.875}), encoding="utf-8")
            model = models.load(f"hf:{tmp_path / 'net'}")
            assert (model.input_size, model.resize, model.squash) == expected

    def test_oblong_images_are_refused(self, vit: Path, tmp_path: Path) -> None:
        shutil.copytree(vit, tmp_path / "net")
        file = tmp_path / "net" / "preprocessor_config.json"
        file.write_text(
            json.dumps(json.loads(file.read_text(encoding="utf-8")) | {"size": {"height": 32, "width": 64}}),
            encoding="utf-8",
        )
        with pytest.raises(ModelError, match="takes images of the size .*; choose one for square images"):
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
        config = json.loads((tmp_path / "net" / "config.json").read_text(encoding="utf-8"))
        config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
        (tmp_path / "net" / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (tmp_path / "net" / "own.py").write_text(
            f"import os\nos.mkdir({str(tmp_path / 'trace')!r})\n", encoding="utf-8"
        )
        with pytest.raises(ModelError, match="cannot be loaded .*; it must be an image classifier that transformers"):
            models.load(f"hf:{tmp_path / 'net'}")
        assert not (tmp_path / "trace").exists()

    def test_a_network_that_was_not_trained_to_classify(
        self, vit: Path, transformers: ModuleType, tmp_path: Path
    ) -> None:
        shutil.copytree(vit, tmp_path / "net")
        transformers.ViTModel.from_pretrained(vit, add_pooling_layer=False).save_pretrained(tmp_path / "net")
        with pytest.raises(ModelError, match="no weights for classifier.bias, classifier.weight; choose a trained"):
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
        (tmp_path / "net" / file).write_text(content, encoding="utf-8")
        with pytest.raises(ModelError, match="cannot be loaded"):
            models.load(f"hf:{tmp_path / 'net'}")

    def test_a_folder_in_the_hubs_cache(self, vit: Path, tmp_path: Path) -> None:
        folder = tmp_path / "hf" / "models--somebody--vit"
        shutil.copytree(vit, folder / "snapshots" / "c0ffee")
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text("c0ffee", encoding="utf-8")
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
        with pytest.raises(
            PackageError, match=r'needs transformers, which is not installed; run pip install "fei\[hf\]"'
        ):
            models.load("hf:somebody/vit")


def test_rollout_agrees_with_the_attentions_that_transformers_returns(vit: Path, transformers: ModuleType) -> None:
    """Where attention is computed explicitly the library tells its patterns; the other network's is fused."""
    load = transformers.AutoModelForImageClassification.from_pretrained
    fused, plain = (load(vit, attn_implementation=how).double().eval() for how in ("sdpa", "eager"))
    for parameter in (*fused.parameters(), *plain.parameters()):
        parameter.data *= 10  # as they are drawn, patterns would be all but even
    x = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        patterns = [pattern[0] for pattern in plain(x, output_attentions=True).attentions]
    tokens = len(patterns[0][0])
    assert patterns[-1].amax() > 2 / tokens
    total = torch.eye(tokens, dtype=torch.float64)
    for pattern in patterns:
        mixed = pattern.mean(0) + torch.eye(tokens, dtype=torch.float64)
        total = (mixed / mixed.sum(1, keepdim=True)) @ total
    side = round((tokens - 1) ** 0.5)
    expected = F.interpolate(total[0, 1:].view(1, 1, side, side), (32, 32), mode="bilinear", align_corners=False)
    for net in (fused, plain):  # the explicit softmax is in single precision
        torch.testing.assert_close(methods.create("attention-rollout")(net, x), expected, rtol=1e-5, atol=1e-7)
