"""A network of one's own, from a file and a checkpoint; every mistake is one sentence, and no checkpoint runs code."""

import os
import pickle
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from fei import models
from fei.data import demo_image
from fei.errors import InputError, ModelError

FACTORIES = """
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Sizes:  # a dataclass looks its module up in sys.modules
    classes: int = 2


def small():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, Sizes().classes))


class Own(nn.Flatten):
    pass


def described():
    network = small()
    network.input_size, network.labels, network.feature_layers = 32, ["cat", "dog"], ["0"]
    return network


def misdescribed():
    network = small()
    network.labels = "cat"
    return network


def broken():
    raise KeyError("no such thing\\nand more")


def needs_an_argument(size):
    return small()


def number():
    return 3


def wrapped():
    from fei.models import Classifier
    return Classifier(small(), input_size=48)


constant = 5
"""


@pytest.fixture
def factories(tmp_path: Path) -> Path:
    file = tmp_path / "networks.py"
    file.write_text(FACTORIES, encoding="utf-8")
    return file


def weights(value: float) -> dict[str, Tensor]:
    """A state dict for `small`, filled with one number."""
    shapes = {"0.weight": (4, 3, 3, 3), "0.bias": (4,), "3.weight": (2, 4), "3.bias": (2,)}
    return {key: torch.full(shape, value) for key, shape in shapes.items()}


class RunsCode:
    """Unpickled carelessly, it makes the file it names."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.trace),)


class TestSpecifications:
    def test_what_is_available(self) -> None:
        assert models.available() == [
            "efficientnet_lite0",
            "torchvision:NAME[@WEIGHTS|@none][:checkpoint]",
            "timm:NAME[@none][:checkpoint]",
            "hf:ID[:checkpoint]",
            "path/to/file.py:factory[:checkpoint]",
            "package.module:factory[:checkpoint]",
        ]
        assert all(models.describe(form) for form in models.available())

    @pytest.mark.parametrize("spec", ["resnet", "efficientnet_lite", "a:b:c:d", ""])
    def test_an_unknown_model(self, spec: str) -> None:
        with pytest.raises(InputError, match=f"There is no model '{spec}'; give one of: efficientnet_lite0, torchvis"):
            models.load(spec)

    def test_a_model_that_is_no_string(self) -> None:
        with pytest.raises(InputError, match="The model is given as a NoneType; give a string"):
            models.load(None)


class TestFactories:
    def test_a_plain_network(self, factories: Path) -> None:
        model = models.load(f"{factories}:small")
        assert not any(module.training for module in model.modules())
        assert (model.input_size, model.labels, model.spec) == (224, None, f"{factories}:small")
        assert model(torch.rand(2, 3, 8, 8)).shape == (2, 2)
        assert model.feature_layers == ["network.0"]

    def test_a_network_that_describes_itself(self, factories: Path) -> None:
        model = models.load(f"{factories}:described")
        assert (model.input_size, model.labels, model.feature_layers) == (32, ["cat", "dog"], ["network.0"])

    def test_a_classifier_is_taken_as_it_is(self, factories: Path) -> None:
        model = models.load(f"{factories}:wrapped")
        assert (model.input_size, model.spec) == (48, f"{factories}:wrapped")
        assert not isinstance(model.network, models.Classifier)

    def test_two_files_of_one_name(self, tmp_path: Path) -> None:
        for folder, classes in (("a", 2), ("b", 5)):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "net.py").write_text(
                FACTORIES.replace("classes: int = 2", f"classes: int = {classes}"), encoding="utf-8"
            )
        own = [models.load(f"{tmp_path / folder / 'net.py'}:Own").network for folder in "ab"]
        assert all(sys.modules[type(network).__module__].Own is type(network) for network in own)
        first, second = (models.load(f"{tmp_path / folder / 'net.py'}:small") for folder in "ab")
        assert first(torch.rand(1, 3, 8, 8)).shape == (1, 2)
        assert second(torch.rand(1, 3, 8, 8)).shape == (1, 5)

    def test_a_real_network(self, squeezenet: models.Classifier, chelsea_squeezenet: Tensor) -> None:
        with torch.no_grad():
            assert int(squeezenet(chelsea_squeezenet).argmax()) in range(281, 286)
        assert squeezenet.input_size == 227
        assert squeezenet.preprocess(demo_image()).shape == (3, 227, 227)
        assert squeezenet.feature_layers[-1] == "network.net.features.12"
        assert squeezenet.labels is not None
        assert squeezenet.index("tabby") == 281

    @pytest.mark.parametrize(
        ("factory", "error", "message"),
        [
            ("smal", InputError, "has no factory 'smal', which the form file.py:factory needs; did you mean small."),
            ("constant", InputError, "has no factory 'constant'"),
            (
                "",
                InputError,
                r"is given without a factory, which the form file.py:factory needs; it defines Sizes, small, ",
            ),
            ("broken", ModelError, r"networks.py:broken' failed \(KeyError: 'no such thing.*\); it is called without"),
            ("needs_an_argument", ModelError, "failed .TypeError: .*missing 1 required positional argument"),
            ("number", ModelError, "networks.py:number' returned a int; it must return an nn.Module"),
            ("misdescribed", ModelError, "describes itself wrongly .`labels` is a str; give a list of strings"),
        ],
    )
    def test_a_factory_that_does_not_work(
        self, factories: Path, factory: str, error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message) as caught:
            models.load(f"{factories}:{factory}")
        assert "\n" not in str(caught.value)

    def test_a_file_without_a_factory(self, factories: Path) -> None:
        with pytest.raises(InputError, match="networks.py' is given without a factory"):
            models.load(str(factories))

    def test_a_missing_file(self) -> None:
        with pytest.raises(InputError, match="There is no model file 'absent.py'; check the path"):
            models.load("absent.py:small")

    @pytest.mark.parametrize("source", ["import nothing_of_this_name", "def f(:", "raise SystemExit(3)", "\0"])
    def test_a_file_that_does_not_import(self, tmp_path: Path, source: str) -> None:
        (tmp_path / "bad.py").write_text(source, encoding="utf-8")
        with pytest.raises(ModelError, match="bad.py' cannot be imported .*; it must run without errors") as caught:
            models.load(f"{tmp_path / 'bad.py'}:f")
        assert caught.value.__cause__ is not None


class TestCheckpoints:
    @pytest.mark.parametrize("key", [None, "state_dict", "model"])
    @pytest.mark.parametrize("ending", ["pt", "pth"])
    def test_a_torch_file(self, factories: Path, tmp_path: Path, key: str | None, ending: str) -> None:
        content = weights(0.5) if key is None else {key: weights(0.5), "epoch": 3}
        torch.save(content, tmp_path / f"weights.{ending}")
        model = models.load(f"{factories}:small:{tmp_path / f'weights.{ending}'}")
        assert all(bool((parameter == 0.5).all()) for parameter in model.parameters())

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e5m2, torch.uint16])
    def test_a_torch_file_of_any_precision(self, factories: Path, tmp_path: Path, dtype: torch.dtype) -> None:
        torch.save({key: tensor.to(dtype) for key, tensor in weights(2.0).items()}, tmp_path / "weights.pt")
        model = models.load(f"{factories}:small:{tmp_path / 'weights.pt'}")
        assert all(bool((p == 2).all()) and p.dtype == torch.float32 for p in model.parameters())

    @pytest.mark.parametrize("factory", ["small", "wrapped"])
    def test_a_safetensors_file(self, factories: Path, tmp_path: Path, factory: str) -> None:
        save_file({key: tensor.half() for key, tensor in weights(0.25).items()}, tmp_path / "weights.safetensors")
        model = models.load(f"{factories}:{factory}:{tmp_path / 'weights.safetensors'}")
        assert all(bool((p == 0.25).all()) and p.dtype == torch.float32 for p in model.parameters())

    @pytest.mark.parametrize("save", ["torch", "pickle"])
    def test_code_in_a_checkpoint_is_refused_and_not_run(self, factories: Path, tmp_path: Path, save: str) -> None:
        content = {**weights(1.0), "surprise": RunsCode(tmp_path / "trace")}
        if save == "torch":
            torch.save(content, tmp_path / "evil.pt")
        else:
            (tmp_path / "evil.pt").write_bytes(pickle.dumps(RunsCode(tmp_path / "trace")))
        with pytest.raises(
            ModelError, match="evil.pt' was refused, since .* Python objects besides tensors, which could run"
        ):
            models.load(f"{factories}:small:{tmp_path / 'evil.pt'}")
        assert not (tmp_path / "trace").exists()

    def test_what_lies_beside_a_file_is_not_imported_and_that_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "layers_of_mine.py").write_text("", encoding="utf-8")
        (tmp_path / "net.py").write_text("import layers_of_mine", encoding="utf-8")
        with pytest.raises(InputError, match="net.py' imports 'layers_of_mine', which lies beside it.*set PYTHONPATH"):
            models.load(f"{tmp_path / 'net.py'}:build")

    def test_a_whole_pickled_network_is_refused(self, factories: Path, tmp_path: Path) -> None:
        torch.save(torch.nn.Linear(2, 2), tmp_path / "network.pt")
        with pytest.raises(
            ModelError, match=r"network.pt' was refused, since .*; save the network's state_dict\(\) alone"
        ):
            models.load(f"{factories}:small:{tmp_path / 'network.pt'}")

    @pytest.mark.parametrize("ending", ["pt", "pth", "safetensors"])
    @pytest.mark.parametrize("kept", [0.0, 0.5, 0.95])
    def test_a_truncated_checkpoint(self, factories: Path, tmp_path: Path, ending: str, kept: float) -> None:
        file = tmp_path / f"cut.{ending}"
        save_file(weights(1.0), file) if ending == "safetensors" else torch.save(weights(1.0), file)
        content = file.read_bytes()
        file.write_bytes(content[: int(len(content) * kept)])
        with pytest.raises(ModelError, match=f"cut.{ending}' cannot be read .*; it may be damaged"):
            models.load(f"{factories}:small:{file}")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"3.bias": None}, "does not fit the network .missing: 3.bias; unexpected: none"),
            ({"other": torch.ones(1)}, "does not fit the network .missing: none; unexpected: other"),
            ({f"k{i}": torch.ones(1) for i in range(5)}, "unexpected: k0, k1, k2 and 2 more"),
            ({"3.bias": torch.ones(7)}, "does not fit the network .size mismatch for 3.bias"),
        ],
    )
    def test_weights_of_another_network(
        self, factories: Path, tmp_path: Path, change: dict[str, Tensor | None], message: str
    ) -> None:
        state = {key: tensor for key, tensor in {**weights(1.0), **change}.items() if tensor is not None}
        torch.save(state, tmp_path / "other.pt")
        with pytest.raises(ModelError, match=message) as caught:
            models.load(f"{factories}:small:{tmp_path / 'other.pt'}")
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("content", "found"), [(torch.ones(1), "a Tensor"), ({}, "none"), ({"epoch": 1, "loss": 0.5}, "epoch, loss")]
    )
    def test_a_file_without_a_state_dict(self, factories: Path, tmp_path: Path, content: object, found: str) -> None:
        torch.save(content, tmp_path / "odd.pt")
        with pytest.raises(ModelError, match=f"odd.pt' holds {found}; a state dict, or one under"):
            models.load(f"{factories}:small:{tmp_path / 'odd.pt'}")

    def test_a_missing_checkpoint(self, factories: Path) -> None:
        with pytest.raises(InputError, match=r"There is no checkpoint 'absent.pt'; check the path"):
            models.load(f"{factories}:small:absent.pt")

    def test_another_kind_of_file(self, factories: Path) -> None:
        with pytest.raises(InputError, match=r"The checkpoint 'w.h5' ends in '.h5'; give a .safetensors, .pt, .pth"):
            models.load(f"{factories}:small:w.h5")


class TestCheckpointsThatGrow:
    """Small files that would ask for more than there is; torch's reader runs no code of theirs, but would obey."""

    @staticmethod
    def refused(factories: Path, file: Path) -> str:
        with pytest.raises(ModelError) as caught:
            models.load(f"{factories}:small:{file}")
        return str(caught.value)

    def test_a_compressed_archive(self, factories: Path, tmp_path: Path) -> None:
        torch.save(weights(1.0), tmp_path / "plain.pt")
        with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(tmp_path / "bomb.pt", "w") as bomb:
            for name in plain.namelist():
                content = bytes(10**8) if name.endswith("/data/0") else plain.read(name)
                bomb.writestr(name, content, zipfile.ZIP_DEFLATED)
        assert (tmp_path / "bomb.pt").stat().st_size < 10**6
        assert "was refused, since it is damaged or holds" in self.refused(factories, tmp_path / "bomb.pt")

    def test_a_view_of_one_number_as_many(self, factories: Path, tmp_path: Path) -> None:
        state = weights(1.0) | {"3.weight": torch.zeros(1).expand(10**9, 4), "3.bias": torch.zeros(1).expand(10**9)}
        torch.save(state, tmp_path / "wide.pt")
        assert "'3.weight' in the checkpoint" in self.refused(factories, tmp_path / "wide.pt")

    @pytest.mark.parametrize(
        "body",
        [
            b"cbuiltins\nbytearray\n(\x8a\x05\x00\xe4\x0bT\x02tR",  # bytearray(10**10)
            b"ctorch\nFloatTensor\n(\x8a\x05\x00\xe4\x0bT\x02tR",
            # a key that is a tuple of a tuple twice, of a tuple twice, ...: sixty times over, to be hashed
            b"}(K\x01tq\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"K\x01s",
            b"}(K\x01tq\x00" + b"h\x00q\x01h\x01h\x01\x86q\x00" * 60 + b"K\x01s",
        ],
    )
    def test_pickles_of_a_few_bytes(self, factories: Path, tmp_path: Path, body: bytes) -> None:
        with zipfile.ZipFile(tmp_path / "small.pt", "w") as archive:
            archive.writestr("a/data.pkl", b"\x80\x02" + body + b".")
            archive.writestr("a/version", "3\n")
        (tmp_path / "bare.pt").write_bytes(b"\x80\x02" + body + b".")
        for name in ("small.pt", "bare.pt"):
            assert "was refused, since it is damaged or holds" in self.refused(factories, tmp_path / name)

    def test_the_notes_of_a_training_are_no_offence(self, factories: Path, tmp_path: Path) -> None:
        betas = (0.9, 0.999)
        network = torch.nn.Linear(2, 2)
        optimizer = torch.optim.Adam([{"params": [p], "betas": betas} for p in network.parameters()])
        network(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        content = {"state_dict": weights(2.0), "optimizer": optimizer.state_dict(), "epoch": 3, "best": float("inf")}
        torch.save(content, tmp_path / "training.pt")
        torch.save(content, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
        for name in ("training.pt", "old.pt"):
            assert models.load(f"{factories}:small:{tmp_path / name}").network[0].bias.tolist() == [2.0] * 4

    def test_weights_of_no_class(self, factories: Path, tmp_path: Path) -> None:
        save_file(
            weights(1.0) | {"3.weight": torch.zeros(0, 4), "3.bias": torch.zeros(0)}, tmp_path / "none.safetensors"
        )
        assert "does not fit the network" in self.refused(factories, tmp_path / "none.safetensors")

    def test_labels_of_brackets_without_end(self, factories: Path, tmp_path: Path) -> None:
        save_file(weights(1.0), tmp_path / "deep.safetensors", {"fei.labels": "[" * 100_000})
        assert "are not a JSON list of strings" in self.refused(factories, tmp_path / "deep.safetensors")
