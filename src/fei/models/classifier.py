"""The one face of every network: RGB in [0, 1] in, logits out."""

import difflib
import operator
import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from fei.common.words import suggestion
from fei.core.checks import is_number
from fei.data.dataset import Box
from fei.data.images import read_image, to_rgb
from fei.errors import InputError, ModelError
from fei.models.structure import find_feature_layers, grey_image

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


_INTERPOLATIONS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}

# A longer row of digits cannot be the index of a class.
_MOST_DIGITS = 18

# Resizing keeps the aspect ratio, so a ribbon one pixel high would grow to gigabytes before the crop.
_MAX_ASPECT_RATIO = 20


class _Way(NamedTuple):
    """The way of an image's columns, or of its rows, to the network's input."""

    trimmed: int  # what is left off at the beginning of a ribbon too long to be resized whole
    kept: int  # how much of the image there is then
    resized: int  # what that is resized to
    cut: int  # what is then left off before the central square


class Classifier(nn.Module):
    """A network on RGB in [0, 1], shape (N, 3, H, W), that returns logits (N, classes).

    The wrapped network is not touched: its mode, its parameters and its device stay what they are.

    Args:
        network: The network. If it returns an object with `.logits`, these are taken.
        mean: Per-channel mean; with `std`, the network sees (x − mean) / std. Without, it sees x as it is.
        std: Per-channel standard deviation.
        input_size: Side S of the square images it was trained on.
        resize: What the short side of an image is resized to before the central S × S is cut out; by default
            S · 256/224, rounded.
        interpolation: How it is resized, "bicubic" or "bilinear".
        squash: Resize both sides to `resize`, without keeping their ratio, as for many transformers.
        labels: Names of the classes, in order.
        feature_layers: Names of modules inside `network`, from shallow to deep, the last one being the layer for class
            activation maps. A module that is called several times is named with the number of the call, counted from 0:
            "relu#1". Found automatically if not given.
        spec: What `load` was asked for.

    Attributes:
        mean: The mean colour, (3, 1, 1). Where none was given, ImageNet's, as the best guess; it is then not applied.
        std: The standard deviation, (3, 1, 1), in the same way.

    Raises:
        InputError: If one of these does not fit the others or the network.

    Examples:
        >>> from torch import nn
        >>> network = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
        >>> model = fei.models.Classifier(
        ...     network, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2), input_size=16, labels=["cat", "dog"]
        ... )
        >>> model.label(1), tuple(model.preprocess(fei.data.demo_image()).shape)
        ('dog', (3, 16, 16))
    """

    pixel_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    mean: Tensor
    std: Tensor
    files: tuple[str, ...] = ()  # of the code that built it, where it is a user's own
    remarks: tuple[str, ...] = ()  # sentences on how it was loaded that a user of it should know
    told: bool = False  # whether mean and std were said by who asked, and not by who made the network

    def __init__(
        self,
        network: nn.Module,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        input_size: int = 224,
        resize: int | None = None,
        interpolation: str = "bicubic",
        squash: bool = False,
        labels: Sequence[str] | None = None,
        feature_layers: Sequence[str] | None = None,
        spec: str = "",
    ) -> None:
        super().__init__()
        self.network, self.spec = network, spec
        self.training = network.training  # a network in evaluation mode stays one
        self.describe(mean, std, input_size, resize, interpolation, squash, labels)
        self._feature_layers = None if feature_layers is None else self._named_layers(feature_layers)

    def describe(
        self,
        mean: Sequence[float] | None,
        std: Sequence[float] | None,
        input_size: int,
        resize: int | None,
        interpolation: str,
        squash: bool,
        labels: Sequence[str] | None,
    ) -> None:
        """Say what images the network was trained on, and what its classes are called; as of the class.

        Raises:
            InputError: If one of these does not fit the others.
        """
        if (mean is None) != (std is None):
            raise InputError("One of mean and std is missing; give both or neither.")
        if not _is_side(input_size):
            raise InputError(f"`input_size` is {input_size!r}; give the side of the square in pixels, such as 224.")
        resize = round(input_size * 256 / 224) if resize is None else resize
        if not _is_side(resize) or resize < input_size:
            raise InputError(f"`resize` is {resize!r}; give a side in pixels, at least `input_size`, {input_size}.")
        if interpolation not in _INTERPOLATIONS:
            raise InputError(f"`interpolation` is {interpolation!r}; give one of {', '.join(_INTERPOLATIONS)}.")
        self.normalizes = mean is not None
        self.register_buffer("mean", _per_channel("mean", IMAGENET_MEAN if mean is None else mean), persistent=False)
        self.register_buffer("std", _per_channel("std", IMAGENET_STD if std is None else std), persistent=False)
        if not bool((self.std > 0).all()):
            raise InputError(f"`std` is {std}; give values above zero.")
        self.input_size, self.resize, self.interpolation, self.squash = input_size, resize, interpolation, squash
        self.labels = None if labels is None else _checked_names("labels", labels)

    @property
    def description(self) -> dict[str, Any]:
        """What `describe` was told."""
        return {
            "mean": self.mean.flatten().tolist() if self.normalizes else None,
            "std": self.std.flatten().tolist() if self.normalizes else None,
            "input_size": self.input_size,
            "resize": self.resize,
            "interpolation": self.interpolation,
            "squash": self.squash,
            "labels": self.labels,
        }

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits (N, classes) for RGB images in [0, 1], shape (N, 3, H, W)."""
        output = self.network((pixels - self.mean) / self.std if self.normalizes else pixels)
        logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
        if not isinstance(logits, Tensor):
            network, wrong = type(self.network).__name__, type(output).__name__
            raise ModelError(f"The network {network} returned a {wrong}; wrap it in one that returns logits alone.")
        return logits

    @property
    def feature_layers(self) -> list[str]:
        """Names of modules of this classifier, from shallow to deep; the last one is the layer for CAM methods.

        Where none were given, they are found once, by a forward pass on a grey image.
        """
        if self._feature_layers is None:
            self._feature_layers = find_feature_layers(self, grey_image(self))
        return list(self._feature_layers)

    def preprocess(self, image: Image.Image | NDArray[Any] | str | os.PathLike[str]) -> Tensor:
        """Prepare an image as the network's were: resized (short side to `resize`), then the central S × S.

        Args:
            image: A PIL image, the path of an image file, or an array (H, W), (H, W, 3) or (H, W, 4) of 8-bit integers
                or of floating-point numbers in [0, 1].

        Returns:
            RGB in [0, 1], shape (3, S, S), S being `input_size`.

        Raises:
            InputError: If the image is of another type or shape, or there is no such file.
            DataError: If the file cannot be read as an image.
        """
        rgb = _rgb_image(image)
        x, y = self._ways(rgb.size)
        if (x.kept, y.kept) != rgb.size:
            rgb = rgb.crop((x.trimmed, y.trimmed, x.trimmed + x.kept, y.trimmed + y.kept))
        resized = rgb.resize((x.resized, y.resized), _INTERPOLATIONS[self.interpolation])
        cropped = resized.crop((x.cut, y.cut, x.cut + self.input_size, y.cut + self.input_size))
        return torch.from_numpy(np.array(cropped)).permute(2, 0, 1).contiguous().float() / 255

    def place_boxes(self, boxes: Iterable[Sequence[float]], size: tuple[int, int]) -> list[Box | None]:
        """Where boxes on an image are after `preprocess`.

        Args:
            boxes: (left, top, right, bottom) of each, in pixels of the upright original image.
            size: Its width and height.

        Returns:
            The boxes in pixels of the preprocessed image, cut at its border, in the same order; None for a box that is
            outside of it.

        Raises:
            InputError: If the size, or the corners of a box, are not such.
        """
        if not isinstance(size, Sequence) or len(size) != 2 or not all(map(_is_side, size)):
            raise InputError(f"`size` is {size!r}; give the image's width and height in pixels.")
        ways = self._ways(size)
        return [self._placed(box, ways) for box in boxes]

    def seen_part(self, size: tuple[int, int]) -> Box:
        """What of an image of that width and height the network sees: (left, top, right, bottom) in its pixels."""
        ends = [
            (way.trimmed + edge * way.kept / way.resized for edge in (way.cut, way.cut + self.input_size))
            for way in self._ways(size)
        ]
        (left, right), (top, bottom) = ends
        return left, top, right, bottom

    def label(self, index: int) -> str:
        """The name of a class; "class 7" where it has no name."""
        labels = self.labels or []
        return labels[index] if 0 <= index < len(labels) else f"class {index}"

    def index(self, name_or_index: str | int) -> int:
        """The index of a class, from the index itself, its name, one of its comma-separated synonyms, or a part of it.

        Args:
            name_or_index: Such as 281, "281", "tabby", "Tabby" or, since no other class contains it, "abby".

        Returns:
            The index.

        Raises:
            InputError: If no class, or more than one, is meant.
        """
        if not isinstance(name_or_index, str):
            if not isinstance(name_or_index, SupportsIndex):
                raise InputError(f"The class is given as {name_or_index!r}; give its name or its index.")
            return self._checked_index(operator.index(name_or_index))
        wanted = name_or_index.strip().casefold()
        wanted = wanted if self.labels and wanted in map(str.casefold, self.labels) else wanted.removeprefix("class ")
        if wanted.isdecimal() and len(wanted) <= _MOST_DIGITS:
            return self._checked_index(int(wanted))
        if self.labels is None:
            raise InputError(f"'{name_or_index}' is unknown, as this network has no class names; give an index.")
        names = [name.casefold() for name in self.labels]
        synonyms = [[part.strip() for part in name.split(",")] for name in names]
        for matches in (
            [i for i, name in enumerate(names) if name == wanted],
            [i for i, parts in enumerate(synonyms) if wanted in parts],
            [i for i, name in enumerate(names) if wanted and wanted in name],
        ):
            if len(matches) == 1:
                return matches[0]
            if matches:
                raise InputError(f"'{name_or_index}' may mean {self._listing(matches)}; give the name or the index.")
        spelled = {part: i for i, parts in enumerate(synonyms) for part in parts}
        close = [spelled[part] for part in difflib.get_close_matches(wanted, spelled, n=5)]
        hint = f"did you mean {self._listing(close)}?" if close else f"give a name or an index below {len(names)}."
        raise InputError(f"No class is called '{name_or_index}'; {hint}")

    def __repr__(self) -> str:
        classes = "unnamed classes" if self.labels is None else f"{len(self.labels)} classes"
        return f"Classifier({self.spec!r}, {type(self.network).__name__}, input_size={self.input_size}, {classes})"

    def _ways(self, size: tuple[int, int]) -> "tuple[_Way, _Way]":
        """What happens to an image of that size, with the rounding that torchvision uses: its columns, and its rows."""

        def way(side: int) -> _Way:
            kept = side if self.squash else min(side, min(size) * _MAX_ASPECT_RATIO)
            resized = self.resize if self.squash else int(self.resize * kept / min(size))
            return _Way(round((side - kept) / 2), kept, resized, round((resized - self.input_size) / 2))

        return way(size[0]), way(size[1])

    def _placed(self, box: Sequence[float], ways: "tuple[_Way, _Way]") -> Box | None:
        corners = [float(value) for value in box] if all(map(is_number, box)) else []
        if len(corners) != 4 or not (corners[0] < corners[2] and corners[1] < corners[3]):
            raise InputError(f"A box is {tuple(box)}; give (left, top, right, bottom), left < right and top < bottom.")
        each = zip(corners, ways * 2, strict=True)
        moved = [(value - way.trimmed) * way.resized / way.kept - way.cut for value, way in each]
        left, top, right, bottom = (min(max(value, 0.0), float(self.input_size)) for value in moved)
        return (left, top, right, bottom) if left < right and top < bottom else None

    def _checked_index(self, index: int) -> int:
        if index < 0 or (self.labels is not None and index >= len(self.labels)):
            limit = "0 and above" if self.labels is None else f"0 to {len(self.labels) - 1}"
            raise InputError(f"There is no class {index}; the classes are numbered {limit}.")
        return index

    def _listing(self, indices: Sequence[int], most: int = 5) -> str:
        names = ", ".join(f"'{self.label(i)}' ({i})" for i in indices[:most])
        return names + (f" or {len(indices) - most} others" if len(indices) > most else "")

    def _named_layers(self, names: Sequence[str]) -> list[str]:
        modules = {name for name, _ in self.network.named_modules() if name}
        for name in _checked_names("feature_layers", names):
            module, mark, call = name.partition("#")
            if module not in modules or (mark and not call.isdecimal()):
                hint = suggestion(module, modules, "see network.named_modules()", most=5)
                raise InputError(f"`feature_layers` names '{name}', which is no module of the network; {hint}")
        return [f"network.{name}" for name in names]


def _is_side(value: Any) -> bool:
    """Whether a value is a whole number of pixels."""
    return isinstance(value, int) and is_number(value) and value > 0


def _per_channel(what: str, values: Sequence[float]) -> Tensor:
    try:
        tensor = torch.as_tensor(values, dtype=torch.float32).flatten()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        tensor = torch.empty(0)
    if tensor.numel() != 3 or not bool(tensor.isfinite().all()):
        raise InputError(f"`{what}` is {values}; give three finite numbers, one each for red, green and blue.")
    return tensor.view(3, 1, 1).clone()


def _checked_names(what: str, names: Sequence[str]) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InputError(f"`{what}` is a {type(names).__name__}; give a list of strings.")
    return list(names)


def _rgb_image(image: Image.Image | NDArray[Any] | str | os.PathLike[str]) -> Image.Image:
    """Any accepted kind of image as an 8-bit RGB image."""
    if isinstance(image, Image.Image):
        return to_rgb(image)
    if isinstance(image, str | os.PathLike):
        return read_image(image)
    if not isinstance(image, np.ndarray):
        raise InputError(f"The image is a {type(image).__name__}; give a PIL image, a path or a NumPy array.")
    if not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (3, 4))) or image.size == 0:
        raise InputError(f"The image array has the shape {image.shape}; give (H, W), (H, W, 3) or (H, W, 4).")
    if np.issubdtype(image.dtype, np.floating):
        if not (image.min() >= 0 and image.max() <= 1):
            raise InputError("The image array has floating-point values outside [0, 1]; scale them to [0, 1].")
        image = (image * 255 + 0.5).astype(np.uint8)
    if image.dtype != np.uint8:
        raise InputError(f"The image array is of type {image.dtype}; give 8-bit integers, or floats in [0, 1].")
    return to_rgb(Image.fromarray(image))
