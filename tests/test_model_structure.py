"""Feature layers found by watching a network, and torchvision imported where its compiled part does not fit."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fei import models
from fei.errors import ModelError, PackageError
from fei.models.sources import import_torchvision
from fei.models.structure import find_feature_layers

pytestmark = pytest.mark.slow


def grey(size: int) -> Tensor:
    return torch.full((1, 3, size, size), 0.5)


class TestFeatureLayers:
    # Expected from the papers' figures: VGG16 before each pooling, ResNet's stages, a transformer's quarters. The last
    # one is what goes into the pooling: "features" is all of a network's body.
    @pytest.mark.parametrize(
        ("name", "layers"),
        [
            ("vgg16", ["features.3", "features.8", "features.15", "features.22", "features.29"]),
            ("resnet18", ["layer1", "layer2", "layer3", "layer4"]),
            ("googlenet", ["conv1", "conv3", "inception3b", "inception4e", "inception5b"]),
            ("alexnet", ["features.1", "features.4", "features.11"]),
            ("densenet121", [*(f"features.denseblock{block}" for block in (1, 2, 3)), "features"]),
            ("mobilenet_v2", ["features.1", "features.3", "features.6", "features.13", "features"]),
            ("mobilenet_v3_small", ["features.0", "features.1", "features.3", "features.8", "features"]),
            ("efficientnet_b0", ["features.1", "features.2", "features.3", "features.5", "features"]),
            ("convnext_tiny", ["features.1", "features.3", "features.5", "features"]),
            ("regnet_y_400mf", [*(f"trunk_output.block{block}" for block in (1, 2, 3)), "trunk_output"]),
            ("shufflenet_v2_x0_5", ["stage2", "stage3", "conv5"]),
            ("mnasnet0_5", ["layers.7", "layers.8", "layers.9", "layers.11", "layers"]),
            ("squeezenet1_1", ["features.1", "features.4", "features.7", "features"]),
            ("swin_t", ["features.0.0", "permute"]),  # what is between them has its channels last
            ("vit_b_16", [f"encoder.layers.encoder_layer_{block}" for block in (2, 5, 8, 11)]),
        ],
    )
    def test_of_the_usual_networks(self, name: str, layers: list[str]) -> None:
        with torch.random.fork_rng(devices=[]):
            options = {"init_weights": False} if name in ("vgg16", "googlenet") else {}
            network = import_torchvision().models.get_model(name, weights=None, **options)
        assert find_feature_layers(network, grey(224)) == layers

    def test_maps_that_differ_by_a_few_pixels_are_one_resolution(self) -> None:
        network = import_torchvision().models.inception_v3(weights=None, init_weights=False)
        assert find_feature_layers(network, grey(299)) == [
            "Conv2d_2b_3x3",  # 147 pixels; Conv2d_1a_3x3 has 149
            "Conv2d_4a_3x3",  # 71; 73
            "Mixed_5d",
            "Mixed_6e",
            "Mixed_7c",
        ]

    @pytest.mark.parametrize(
        ("name", "layers"),
        [
            ("test_resnet", ["layer1", "layer2", "layer3", "layer4"]),
            ("resnet18d", ["layer1", "layer2", "layer3", "layer4"]),  # its stem has three convolutions
            ("test_convnext", ["stages.0", "stages.1", "stages.2", "norm_pre"]),
            ("test_vit2", ["blocks.1", "blocks.3", "blocks.5", "blocks.7"]),
        ],
    )
    def test_of_networks_of_timm(self, name: str, layers: list[str]) -> None:
        import_torchvision()
        network = importlib.import_module("timm").create_model(name)
        assert find_feature_layers(network, grey(160)) == layers

    def test_maps_with_their_channels_last_are_none(self) -> None:
        """As in timm's Swin: a layer for CAMs would be read as if its rows were channels."""

        class Block(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))

            def forward(self, x: Tensor) -> Tensor:
                return x + self.inner(x.flatten(1, 2)).view_as(x)

        class Patches(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.proj = nn.Conv2d(3, 8, 4, 4)

            def forward(self, x: Tensor) -> Tensor:
                return self.proj(x).permute(0, 2, 3, 1)

        assert find_feature_layers(nn.Sequential(Patches(), Block(), Block()), grey(16)) == []

    @pytest.mark.needs_assets
    def test_of_a_resnet_are_its_stages(self, assets: Path) -> None:
        model = models.load(f"{assets}/zoo.py:resnet50")
        assert find_feature_layers(model.network, grey(224)) == [f"net.layer{stage}" for stage in (1, 2, 3, 4)]

    @pytest.mark.needs_assets
    @pytest.mark.parametrize("name", ["resnet50", "squeezenet", "deit_tiny"])
    def test_agree_with_those_chosen_by_hand(self, assets: Path, name: str) -> None:
        """The last one matters most: it is the layer of the CAM methods."""
        model = models.load(f"{assets}/zoo.py:{name}")
        found = find_feature_layers(model, grey(model.input_size))
        chosen = model.feature_layers
        assert set(chosen[:-1]) <= set(found)
        modules = dict(model.named_modules())
        seen: list[Tensor] = []
        handles = [
            modules[layer].register_forward_hook(lambda *a: seen.append(a[2])) for layer in (chosen[-1], found[-1])
        ]
        with torch.no_grad():
            model(torch.rand(1, 3, model.input_size, model.input_size))
        for handle in handles:
            handle.remove()
        assert torch.equal(seen[0], seen[1])

    def test_a_module_called_twice_is_named_with_its_call(self, embedded: models.Classifier) -> None:
        """Chosen by hand for the embedded network: the deepest one is the second call of the shared activation."""
        found = find_feature_layers(embedded, grey(224))
        assert found[-1] == embedded.feature_layers[-1] == "network._swish#1"
        assert found[1:-1] == embedded.feature_layers[1:-2]

    def test_the_network_is_as_before(self) -> None:
        network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        network[1].eval()
        state = {key: tensor.clone() for key, tensor in network.state_dict().items()}
        assert find_feature_layers(network, grey(8)) == ["1"]
        assert [module.training for module in network] == [True, False, True, True]
        assert all(not module._forward_hooks for module in network.modules())
        assert all(torch.equal(tensor, state[key]) for key, tensor in network.state_dict().items())

    def test_a_network_without_any(self) -> None:
        assert find_feature_layers(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), grey(2)) == []

    def test_a_network_that_fails(self) -> None:
        model = models.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(5, 2)), input_size=8)
        with pytest.raises(ModelError, match="fails on an image of 8 × 8 pixels .RuntimeError: .*; check `input_size`"):
            _ = model.feature_layers
        assert all(not module._forward_hooks for module in model.modules())


def run(program: str) -> str:
    """Run a program in a fresh interpreter, since an import happens once."""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, encoding="utf-8"
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


class TestTorchvision:
    def test_its_networks_run(self) -> None:
        program = """
import torch, warnings
warnings.simplefilter("error")
from fei.models.sources import import_torchvision
torchvision = import_torchvision()
assert import_torchvision() is torchvision
import torchvision.models as plainly_imported
for name, options in (("squeezenet1_1", {}), ("googlenet", {"init_weights": False})):
    network = torchvision.models.get_model(name, weights=None, **options).eval()
    with torch.no_grad():
        print(tuple(network(torch.rand(1, 3, 64, 64)).shape))
"""
        assert run(program) == "(1, 1000)\n(1, 1000)\n"

    def test_after_an_import_that_failed(self) -> None:
        """Somebody tried a plain import before, and went on. The package must still be whole."""
        program = """
import sys
try:
    import torchvision
except RuntimeError:
    pass
from fei.models.sources import import_torchvision
torchvision = import_torchvision()
assert all(hasattr(torchvision, name.split(".")[1]) for name in sys.modules if name.startswith("torchvision."))
print(torchvision.models.resnet18(weights=None).fc.out_features)
"""
        assert run(program) == "1000\n"

    def test_beside_another_package_that_declared_the_operators(self) -> None:
        program = """
import torch
try:
    import torchvision
except RuntimeError:
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from fei.models.sources import import_torchvision
print(import_torchvision().__name__)
"""
        assert run(program) == "torchvision\n"

    def test_without_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "path", [])
        monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if "Path" in str(finder)])
        with pytest.raises(PackageError, match="needs torchvision, which is not installed; run pip install"):
            import_torchvision()
