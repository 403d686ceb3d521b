"""Networks with other classes than they were trained for."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from foreign_files import NET
from safetensors.torch import save_file
from torch import Tensor, nn

from fei import models
from fei.errors import InputError, ModelError
from fei.models import Classifier
from fei.models.sources._checkpoint import read_checkpoint
from fei.models.structure import replace_head

pytestmark = pytest.mark.slow

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
        (tmp_path / "net.py").write_text(NET, encoding="utf-8")
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
        assert read_checkpoint(file).labels == labels

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
            (["a", "b"], "names 2 classes and the network has 5; write the file again with a label for each class"),
            ({"a": 1}, "are not a JSON list of strings; write the file again"),
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
            read_checkpoint(tmp_path / "odd.safetensors")

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
        with pytest.raises(ModelError, match="fails on an image of 224 × 224 pixels .*; check `input_size`"):
            replace_head(nn.Linear(5, 2), 3)

    @pytest.mark.parametrize("classes", [0, -1, 2.0, True])
    def test_a_number_that_is_none(self, classes: Any) -> None:
        with pytest.raises(InputError, match="`classes` .* of at least 1"):
            replace_head(nn.Linear(5, 2), classes)
