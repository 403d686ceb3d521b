"""The embedded network, and the face that all networks share."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from fei import models
from fei.data import demo_image
from fei.errors import InputError, ModelError
from fei.models import Classifier
from fei.models.sources import import_torchvision

CATS = range(281, 286)  # tabby, tiger cat, Persian, Siamese, Egyptian


def tiny(**options: object) -> Classifier:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    return Classifier(network, **options)


class TestEmbedded:
    def test_sees_a_cat(self, embedded: Classifier, chelsea: Tensor) -> None:
        with torch.no_grad():
            probabilities = embedded(chelsea).softmax(1)[0]
        assert int(probabilities.argmax()) in CATS
        assert float(probabilities[list(CATS)].sum()) > 0.9

    def test_normalises_as_it_was_trained(self, embedded: Classifier, chelsea: Tensor) -> None:
        with torch.no_grad():
            expected = embedded.network((chelsea * 255 - 127) / 128)
            assert torch.allclose(embedded(chelsea), expected, atol=1e-4)

    def test_is_ready_to_explain(self, embedded: Classifier) -> None:
        assert not any(module.training for module in embedded.modules())
        assert embedded.input_size == 224
        assert embedded.spec == "efficientnet_lite0"
        assert embedded.pixel_range == (0.0, 1.0)
        assert embedded.mean.shape == embedded.std.shape == (3, 1, 1)

    def test_labels_are_the_thousand_of_imagenet(self, embedded: Classifier) -> None:
        assert embedded.labels is not None
        assert len(embedded.labels) == 1000
        assert [embedded.label(i) for i in (0, 281, 999)] == ["tench", "tabby", "toilet tissue"]

    def test_loading_is_silent_and_draws_no_random_numbers(self, capfd: pytest.CaptureFixture[str]) -> None:
        before = torch.get_rng_state()
        models.load("efficientnet_lite0")
        assert torch.equal(torch.get_rng_state(), before)
        assert capfd.readouterr() == ("", "")

    def test_feature_layers_go_down_to_the_input_of_the_linear_layer(
        self, embedded: Classifier, chelsea: Tensor
    ) -> None:
        outputs: dict[str, Tensor] = {}
        pooled: list[Tensor] = []
        modules = dict(embedded.named_modules())
        calls: dict[str, int] = {}

        def record(name: str) -> None:
            def hook(_: nn.Module, __: object, output: Tensor) -> None:
                call = calls[name] = calls.get(name, -1) + 1
                outputs[f"{name}#{call}"] = outputs[name] = output

            handles.append(modules[name].register_forward_hook(hook))

        handles = [modules["network._fc"].register_forward_pre_hook(lambda _, args: pooled.append(args[0]))]
        for layer in embedded.feature_layers:
            record(layer.partition("#")[0])
        with torch.no_grad():
            embedded(chelsea)
        for handle in handles:
            handle.remove()

        sides = [outputs[layer].shape[-1] for layer in embedded.feature_layers]
        assert sides == [112, 56, 28, 14, 7, 7]
        assert torch.allclose(outputs[embedded.feature_layers[-1]].mean((2, 3)), pooled[0], atol=1e-5)


class TestClassifier:
    def test_without_mean_and_std_the_network_sees_the_pixels(self) -> None:
        model = Classifier(nn.Flatten())
        pixels = torch.rand(2, 3, 4, 4)
        assert torch.equal(model(pixels), pixels.flatten(1))
        assert model.mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])
        assert model.std.flatten().tolist() == pytest.approx([0.229, 0.224, 0.225])

    def test_with_mean_and_std_it_sees_them_normalised(self) -> None:
        model = Classifier(nn.Flatten(), mean=(0.0, 0.5, 1.0), std=(1.0, 0.5, 2.0))
        assert model(torch.ones(1, 3, 1, 1)).tolist() == [[1.0, 1.0, 0.0]]

    def test_it_adds_nothing_to_the_weights_and_moves_as_one(self) -> None:
        model = tiny(mean=(0.5,) * 3, std=(0.5,) * 3)
        assert all(key.startswith("network.") for key in model.state_dict())
        assert model.double()(torch.rand(1, 3, 8, 8, dtype=torch.float64)).dtype == torch.float64

    def test_it_leaves_the_users_module_alone(self) -> None:
        network = nn.Dropout()
        assert Classifier(network).network is network
        assert network.training

    def test_logits_are_taken_out_of_an_output_object(self) -> None:
        class Wrapped(nn.Module):
            def forward(self, pixels: Tensor) -> SimpleNamespace:
                return SimpleNamespace(logits=pixels.sum((2, 3)))

        assert Classifier(Wrapped())(torch.ones(1, 3, 2, 2)).tolist() == [[4.0, 4.0, 4.0]]

    def test_an_output_without_logits_is_refused(self) -> None:
        class Pair(nn.Module):
            def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
                return pixels, pixels

        with pytest.raises(
            ModelError, match="The network Pair returned a tuple; wrap it in one that returns logits alone"
        ):
            Classifier(Pair())(torch.ones(1, 3, 2, 2))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"mean": (0.5, 0.5, 0.5)}, "One of mean and std is missing; give both or neither"),
            ({"mean": (0.5,), "std": (1.0,)}, "`mean` is .* give three finite numbers"),
            ({"mean": (0.5,) * 3, "std": (1.0, 0.0, 1.0)}, "`std` is .* above zero"),
            ({"input_size": 0}, "`input_size` is 0; give the side"),
            ({"input_size": (224, 224)}, r"`input_size` is \(224, 224\); give the side"),
            ({"resize": 200}, "`resize` is 200; give a side in pixels, at least `input_size`, 224"),
            ({"resize": 256.0}, "`resize` is 256.0; give a side"),
            ({"interpolation": "nearest"}, "`interpolation` is 'nearest'; give one of bicubic, bilinear"),
            ({"labels": "cat"}, "`labels` is a str; give a list of strings"),
            ({"labels": [1, 2]}, "`labels` is a list; give a list of strings"),
            ({"feature_layers": ["5"]}, "`feature_layers` names '5', which is no module of the network"),
            ({"feature_layers": ["0#x"]}, "`feature_layers` names '0#x'"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, options: dict[str, object], message: str) -> None:
        with pytest.raises(InputError, match=message):
            tiny(**options)

    def test_feature_layers_are_named_from_the_classifier(self) -> None:
        model = tiny(feature_layers=["0", "1#0"])
        assert model.feature_layers == ["network.0", "network.1#0"]

    def test_repr_is_one_line(self, embedded: Classifier) -> None:
        assert repr(embedded) == "Classifier('efficientnet_lite0', EfficientNet, input_size=224, 1000 classes)"
        assert repr(tiny()) == "Classifier('', Sequential, input_size=224, unnamed classes)"


class TestClassNames:
    LABELS = ("tabby, tabby cat", "tiger cat", "crane", "drake", "crane", "Große Katze")

    @pytest.mark.parametrize(
        ("wanted", "index"),
        [
            (1, 1),
            (np.int64(1), 1),
            ("1", 1),
            ("tiger cat", 1),
            ("Tiger Cat", 1),
            (" tabby ", 0),
            ("tabby cat", 0),
            ("tige", 1),
            ("drake", 3),
            ("große katze", 5),
        ],
    )
    def test_a_class_is_found(self, wanted: str | int, index: int) -> None:
        assert tiny(labels=self.LABELS).index(wanted) == index

    @pytest.mark.parametrize(
        ("wanted", "message"),
        [
            ("crane", r"'crane' may mean 'crane' \(2\), 'crane' \(4\); give the name or the index"),
            ("cat", r"'cat' may mean 'tabby, tabby cat' \(0\), 'tiger cat' \(1\)"),
            ("tabbi", r"No class is called 'tabbi'; did you mean 'tabby, tabby cat' \(0\)"),
            ("zzz", "No class is called 'zzz'; give a name or an index below 6"),
            ("", "No class is called ''"),
            ("6", "There is no class 6; the classes are numbered 0 to 5"),
            (-1, "There is no class -1; the classes are numbered 0 to 5"),
        ],
    )
    def test_what_is_not_a_class(self, wanted: str | int, message: str) -> None:
        with pytest.raises(InputError, match=message):
            tiny(labels=self.LABELS).index(wanted)

    def test_at_most_five_are_listed(self) -> None:
        with pytest.raises(InputError, match=r"\(4\) or 95 others; give") as caught:
            tiny(labels=[f"class {i}" for i in range(100)]).index("class")
        assert str(caught.value).count("'class ") == 5

    def test_without_names_only_an_index_will_do(self) -> None:
        model = tiny()
        assert (model.index(7), model.index("7"), model.label(7)) == (7, 7, "class 7")
        with pytest.raises(InputError, match="'cat' is unknown, as this network has no class names; give an index"):
            model.index("cat")

    def test_a_class_beyond_the_names_is_called_by_its_number(self) -> None:
        assert tiny(labels=["cat"]).label(1) == "class 1"


class TestPreprocess:
    @pytest.mark.parametrize("size", [(451, 300), (300, 451), (224, 224), (50, 40), (1000, 301)])
    @pytest.mark.parametrize("input_size", [224, 227])
    def test_equals_torchvisions_transforms(self, size: tuple[int, int], input_size: int) -> None:
        transforms = import_torchvision().transforms
        image = demo_image("chelsea").resize(size)
        expected = transforms.Compose(
            [
                transforms.Resize(round(input_size * 256 / 224), transforms.InterpolationMode.BICUBIC),
                transforms.CenterCrop(input_size),
                transforms.ToTensor(),
            ]
        )(image)
        assert torch.equal(tiny(input_size=input_size).preprocess(image), expected)

    @pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
    @pytest.mark.parametrize("squash", [True, False])
    def test_as_it_was_told(self, interpolation: str, squash: bool) -> None:
        transforms = import_torchvision().transforms
        image = demo_image("chelsea")
        expected = transforms.Compose(
            [
                transforms.Resize((250, 250) if squash else 250, transforms.InterpolationMode(interpolation)),
                transforms.CenterCrop(200),
                transforms.ToTensor(),
            ]
        )(image)
        model = tiny(input_size=200, resize=250, interpolation=interpolation, squash=squash)
        assert torch.equal(model.preprocess(image), expected)

    def test_takes_an_image_an_array_or_a_path(self, tmp_path: Path) -> None:
        model, image = tiny(input_size=64), demo_image("chelsea")
        image.save(tmp_path / "chelsea.png")
        expected = model.preprocess(image)
        assert torch.equal(model.preprocess(tmp_path / "chelsea.png"), expected)
        assert torch.equal(model.preprocess(str(tmp_path / "chelsea.png")), expected)
        assert torch.equal(model.preprocess(np.asarray(image)), expected)
        assert torch.equal(model.preprocess(np.asarray(image) / 255), expected)

    def test_channels_and_values_keep_their_places(self) -> None:
        pixels = tiny(input_size=8).preprocess(np.full((20, 20, 3), (255, 0, 51), dtype=np.uint8))
        assert pixels.dtype == torch.float32
        assert pixels.mean((1, 2)).tolist() == pytest.approx([1.0, 0.0, 0.2])

    def test_greyscale_and_transparent_arrays(self) -> None:
        model = tiny(input_size=8)
        assert torch.equal(model.preprocess(np.full((9, 9), 51, dtype=np.uint8)), torch.full((3, 8, 8), 51 / 255))
        assert torch.equal(model.preprocess(np.zeros((9, 9, 4), dtype=np.uint8)), torch.ones(3, 8, 8))

    def test_a_rotated_photograph_is_turned_once(self, tmp_path: Path) -> None:
        image = Image.new("RGB", (80, 80), "blue")
        image.paste("red", (0, 0, 80, 40))
        exif = Image.Exif()
        exif[0x0112] = 6  # the top is stored on the left
        image.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "photo.png", exif=exif)
        with Image.open(tmp_path / "photo.png") as opened:
            for photo in (opened, tmp_path / "photo.png"):
                pixels = tiny(input_size=64).preprocess(photo)
                assert pixels[:, 0].mean(1).tolist() == pytest.approx([1, 0, 0])
                assert pixels[:, -1].mean(1).tolist() == pytest.approx([0, 0, 1])

    def test_a_ribbon_does_not_fill_the_memory(self) -> None:
        """Resized whole, it would have 256 · 25,600,000 pixels. Its centre is white."""
        ribbon = np.zeros((1, 100_000, 3), dtype=np.uint8)
        ribbon[:, 49_000:51_000] = 255
        assert torch.equal(tiny().preprocess(ribbon), torch.ones(3, 224, 224))

    @pytest.mark.parametrize(
        ("image", "message"),
        [
            (None, "The image is a NoneType; give a PIL image, a path or a NumPy array"),
            (np.zeros((3, 8, 8), dtype=np.uint8), r"has the shape \(3, 8, 8\); give \(H, W\)"),
            (np.zeros((0, 8, 3), dtype=np.uint8), r"has the shape \(0, 8, 3\)"),
            (np.full((8, 8, 3), 255.0), r"floating-point values outside \[0, 1\]"),
            (np.full((8, 8, 3), np.nan), r"floating-point values outside \[0, 1\]"),
            (np.zeros((8, 8, 3), dtype=np.int64), "is of type int64; give 8-bit integers"),
        ],
    )
    def test_what_is_not_an_image(self, image: object, message: str) -> None:
        with pytest.raises(InputError, match=message):
            tiny().preprocess(image)
