"""Networks made by a function of a package, checkpoints behind a name, and the list of all sources."""

import json
import sys
from types import ModuleType

import pytest
from typer.testing import CliRunner

from fei import models
from fei.cli._app import app
from fei.errors import InputError, ModelError

pytestmark = pytest.mark.slow


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
            ("torchvison:resnet50", InputError, r"'torchvison'; did you mean torchvision:resnet50\?"),
            (
                "some_nets.small_ones:smal",
                InputError,
                "no factory 'smal', which the form package.module:factory needs; did you mean small",
            ),
            ("some_nets.small_ones:", InputError, "'some_nets.small_ones' is given without a factory"),
            ("some_nets.small_ones:fails", ModelError, "'some_nets.small_ones:fails' failed .RuntimeError: no"),
            ("some_nets.broken:f", ModelError, "'some_nets.broken' cannot be imported .ZeroDivisionError"),
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
