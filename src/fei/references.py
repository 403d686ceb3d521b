"""The reference R that stands in for removed pixels.

By default one random colour per image (paper, section 4.1). Where the input space is known (a `Classifier` takes RGB
in [0,1]) the colour is drawn there; a bare module's input space is unknown, so each channel is drawn between its
minimum and maximum over the image.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from fei.core.checks import check_choice, is_number, kind_of
from fei.core.randomness import generator_for, image_digest
from fei.errors import InputError

KINDS = ("color", "black", "white", "mean", "blur", "noise", "clouds", "photo")
_RANDOM = ("color", "noise", "clouds")
_RESAMPLE = ":resample"
_SHARED, _CONTRAST = 0.6, 0.22  # of clouds: the part of the variance that channels share, and the deviation
_SAME = 0.8  # correlation from which on two pictures count as one
_PHOTOS = ("astronaut", "chelsea", "coffee", "rocket")  # of the install


@dataclass(frozen=True)
class Reference:
    """A named reference, or a mixture of several.

    Attributes:
        kind: "color" (one random colour per image), "black", "white", "mean" (the network's mean colour), "blur"
            (11×11 Gaussian, σ = 5), "noise" (uniform), "clouds" (noise with the spectrum of photographs) or "photo"
            (another photograph, one of `fei.data.demo_image`); a mixture has several of them with "+" between, as in
            "color+blur".
        resample: Draw a fresh one for each mask at each optimisation step; where the kind is random, or a mixture.

    Examples:
        >>> fei.Reference("blur")
        Reference(kind='blur', resample=False)
        >>> str(fei.Reference.of("color+clouds:resample"))
        'color+clouds:resample'
    """

    kind: str = "color"
    resample: bool = False

    def __post_init__(self) -> None:
        """Refuse what does not exist."""
        for kind in self.kinds:
            check_choice("reference", kind, KINDS, ", or pass a tensor")
        if self.resample and len(self.kinds) == 1 and self.kind not in _RANDOM:
            raise InputError(
                f"The reference {self.kind!r} is not random; resample color, noise, clouds or a mixture, such as "
                "'color+blur'."
            )
        if len(self.kinds) > 1 and not self.resample:
            raise InputError(
                f"The mixture {self.kind!r} needs a draw at each step; give '{self.kind}{_RESAMPLE}', or one kind."
            )

    @classmethod
    def of(cls, text: str) -> Reference:
        """From a name such as "color", "color:resample" or "color+blur:resample"."""
        return cls(text.removesuffix(_RESAMPLE), resample=text.endswith(_RESAMPLE))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of a mixture, or the only one."""
        return tuple(self.kind.split("+"))

    def __str__(self) -> str:
        """The name that `of` takes."""
        return self.kind + _RESAMPLE * self.resample


ReferenceSpec = str | float | Tensor | Reference | Callable[[Tensor], Tensor] | None


class References:
    """The references of a batch of images.

    Args:
        spec: A name, a `Reference`, a number, a tensor that broadcasts to the images, a callable on them, or ``None``
            for a random colour.
        inputs: The images (N, C, H, W).
        digests: Their digests, see `image_digest`.
        model: The network: its `pixel_range` and `mean`, if it has them, say what its input space is.
        seed: Seed of the random kinds.

    Examples:
        >>> made = fei.references.References("black", images, ["a", "b"], model, seed=0)
        >>> tuple(made.values.shape), made.values.any().item()
        ((2, 3, 1, 1), False)
    """

    def __init__(
        self, spec: ReferenceSpec, inputs: Tensor, digests: Sequence[str], model: nn.Module, seed: int
    ) -> None:
        if isinstance(spec, tuple) and len(spec) == 1:  # captum's way of passing baselines
            spec = spec[0]
        self._inputs, self._digests, self._model, self._seed = inputs, list(digests), model, seed
        self._named = Reference() if spec is None else Reference.of(spec) if isinstance(spec, str) else spec
        self.resample = isinstance(self._named, Reference) and self._named.resample
        self.name = self._named.kind if isinstance(self._named, Reference) else type(spec).__name__
        self._fixed: dict[str, Tensor] = {}
        self.values = self._draw(0)

    def at(self, step: int) -> Tensor:
        """R for one optimisation step: always the same unless it is resampled."""
        return self._draw(step) if self.resample and step else self.values

    def of_rows(self, step: int, rows: Sequence[tuple[int, int]]) -> Tensor:
        """R of rows at one optimisation step, each given by the numbers of its image and of its mask."""
        if not self.resample:
            return self.values[[image for image, _ in rows]]
        return torch.stack([self._row(image, f"{step}/{mask}") for image, mask in rows])

    def _row(self, image: int, purpose: str) -> Tensor:
        """A fresh reference for one row; of a mixture each kind is as likely."""
        kinds = self.name.split("+")
        chosen = kinds[0]
        if len(kinds) > 1:
            generator = generator_for(self._seed, self._digests[image], f"mixture/{purpose}")
            chosen = kinds[int(torch.randint(len(kinds), (1,), generator=generator))]
        if chosen in _RANDOM:
            drawn = self._random(chosen, image, purpose)
        else:
            if chosen not in self._fixed:
                self._fixed[chosen] = self._make(chosen, 0)
            drawn = self._fixed[chosen][image]
        return drawn if len(kinds) == 1 else drawn.expand_as(self._inputs[image])

    def _draw(self, step: int) -> Tensor:
        spec = self._named
        drawn = self._make(spec.kinds[0], step) if isinstance(spec, Reference) else self._given(spec)
        if not drawn.isfinite().all():
            raise InputError(
                "The reference holds NaN or infinite values; replace them, or scale the images, before the call."
            )
        return drawn

    def _given(self, spec: float | Tensor | Callable[[Tensor], Tensor]) -> Tensor:
        values = spec(self._inputs) if callable(spec) else spec
        if not _is_real(values):
            raise InputError(
                "A reference must be a name, a number, a tensor of real numbers or a callable that returns one; got "
                f"{kind_of(values)}."
            )
        tensor = torch.as_tensor(values, dtype=self._inputs.dtype, device=self._inputs.device).detach()
        try:
            tensor = tensor.expand(len(self._inputs), -1, -1, -1) if tensor.ndim == 4 else tensor
            torch.broadcast_to(tensor, self._inputs.shape)
        except RuntimeError as error:
            raise InputError(
                f"A reference of shape {tuple(tensor.shape)} does not fit inputs of shape {tuple(self._inputs.shape)}; "
                "give one that broadcasts to them."
            ) from error
        if tensor.ndim < 4:
            tensor = torch.broadcast_to(tensor, (1, *self._inputs.shape[1:])).expand(len(self._inputs), -1, -1, -1)
        return tensor.clone()

    def _make(self, kind: str, step: int) -> Tensor:
        x = self._inputs
        if kind == "blur":
            return blur(x)
        if kind == "photo":
            return another_photograph(x, self._model)
        if kind in _RANDOM:
            return torch.stack([self._random(kind, image, str(step)) for image in range(len(x))])
        known = pixel_range(self._model)
        if known is None:
            raise InputError(
                f"The reference {kind!r} needs a network on RGB [0,1]; wrap it in fei.models.Classifier, or pass the "
                "colour as a tensor in the network's own input space."
            )
        if kind == "mean":
            return mean_colour(x, self._model).expand(len(x), -1, -1, -1).clone()
        return x.new_full((len(x), x.shape[1], 1, 1), known[0] if kind == "black" else known[1])

    def _random(self, kind: str, image: int, purpose: str) -> Tensor:
        """A random colour, noise or clouds for one image, (C, 1, 1) or (C, H, W)."""
        x, known = self._inputs[image], pixel_range(self._model)
        generator = generator_for(self._seed, self._digests[image], f"{kind}/{purpose}")
        size = (len(x), 1, 1) if kind == "color" else tuple(x.shape)
        drawn = (clouds(x.shape, generator) if kind == "clouds" else torch.rand(size, generator=generator)).to(x)
        if known is not None:
            low, high = x.new_tensor(known[0]), x.new_tensor(known[1])
        else:
            low, high = x.amin((1, 2), keepdim=True), x.amax((1, 2), keepdim=True)
        return low + (high - low) * drawn


def clouds(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Random clouds of a random colour in [0, 1], (C, H, W): noise whose amplitude falls with 1/frequency.

    So do the spectra of photographs (Field 1987). The deviation of a pixel from the colour is .22, before what leaves
    [0, 1] is cut off, and channels correlate at .6.

    Examples:
        >>> drawn = fei.references.clouds((3, 8, 8), torch.Generator().manual_seed(0))
        >>> tuple(drawn.shape), bool((drawn >= 0).all() and (drawn <= 1).all())
        ((3, 8, 8), True)
    """
    channels, height, width = shape
    # in double precision, in which processors differ by round-off alone
    white = torch.randn(channels + 1, height, width, generator=generator).double()
    pink = torch.fft.irfft2(torch.fft.rfft2(white) * _pink(height, width, torch.get_default_dtype()), s=(height, width))
    pink = pink / pink.std((1, 2), keepdim=True, correction=0).clamp(min=torch.finfo(pink.dtype).tiny)
    mixed = _SHARED**0.5 * pink[:1] + (1 - _SHARED) ** 0.5 * pink[1:]
    middle = 0.2 + 0.6 * torch.rand(channels, 1, 1, generator=generator)
    drawn: Tensor = (middle + _CONTRAST * mixed).clamp(0, 1)
    return drawn


@functools.lru_cache(maxsize=8)
def _pink(height: int, width: int, dtype: torch.dtype) -> Tensor:
    """The amplitude at each frequency of images of a size."""
    rows = torch.fft.fftfreq(height, dtype=dtype, device="cpu")[:, None]
    columns = torch.fft.rfftfreq(width, dtype=dtype, device="cpu")
    amplitude: Tensor = 1 / (rows**2 + columns**2).sqrt().clamp(min=1 / max(height, width))
    return amplitude


def smooth_noise(size: Sequence[int], generator: torch.Generator) -> Tensor:
    """Normal random numbers (H, W) blurred by a Gaussian of σ = 16/224 of the longer side, as smooth as a CAM.

    Examples:
        >>> tuple(fei.references.smooth_noise((8, 8), torch.Generator().manual_seed(0)).shape)
        (8, 8)
    """
    sigma = 16 / 224 * max(size)
    noise = torch.randn(tuple(size), dtype=torch.float64, generator=generator)
    return gaussian_blur(noise[None, None], sigma, round(3 * sigma))[0, 0]


def _is_real(values: object) -> bool:
    if isinstance(values, Tensor):
        return values.layout is torch.strided and not values.is_complex()
    return isinstance(values, float) or is_number(values)


def pixel_range(model: nn.Module) -> tuple[float, float] | None:
    """The lowest and highest value of a pixel in a network's input space, if that is known.

    Examples:
        >>> fei.references.pixel_range(model), fei.references.pixel_range(model.network)
        ((0.0, 1.0), None)
    """
    return getattr(model, "pixel_range", None)


def mean_colour(images: Tensor, model: nn.Module) -> Tensor:
    """The mean colour of a network whose input space is known, (1, C, 1, 1), for images of as many channels.

    Examples:
        >>> tuple(fei.references.mean_colour(images, model).shape)
        (1, 3, 1, 1)
    """
    colour = torch.as_tensor(model.mean).to(images).reshape(1, -1, 1, 1)
    if colour.shape[1] != images.shape[1]:
        raise InputError(
            f"The network's mean colour has {colour.shape[1]} channels and the images have {images.shape[1]}; pass "
            "images as the network takes them."
        )
    return colour


def normalised_zero(images: Tensor, model: nn.Module) -> Tensor:
    """Zero in the network's normalised space: its mean colour if it takes pixels, 0 if it takes normalised input.

    The middle of the pixels' range stands for a mean colour that is not known.

    Examples:
        >>> fei.references.normalised_zero(images, model.network).any().item()  # it takes what it takes: zero is zero
        False
    """
    known = pixel_range(model)
    if known is None:
        return torch.zeros_like(images)
    if getattr(model, "mean", None) is None:
        return torch.full_like(images, sum(known) / 2)
    return mean_colour(images, model).expand_as(images)


def another_photograph(images: Tensor, model: nn.Module) -> Tensor:
    """For each image one of the install's photographs, another than the image itself, whatever the seed.

    Where the input space is not known, each channel gets the image's own mean and spread.

    Examples:
        >>> fei.references.another_photograph(images, model).shape == images.shape
        True
    """
    known, drawn = pixel_range(model), []
    for image in images:
        order = torch.randperm(len(_PHOTOS), generator=generator_for(0, image_digest(image), "photo")).tolist()
        photo = _unlike([_PHOTOS[place] for place in order], image)
        if known is not None:
            drawn.append(known[0] + (known[1] - known[0]) * photo)
        else:
            of_both = (torch.std_mean(each, (1, 2), keepdim=True, correction=0) for each in (image, photo))
            (own, mean), (spread, middle) = of_both
            drawn.append(mean + own * (photo - middle) / spread.clamp(min=torch.finfo(spread.dtype).tiny))
    return torch.stack(drawn)


@functools.cache
def _decoded(name: str) -> NDArray[np.uint8]:
    """A photograph of the install, read once: with a small network that took longer than to score a map."""
    from fei.data.images import demo_image

    return np.array(demo_image(name).convert("RGB"))


def _photograph(name: str, image: Tensor) -> Tensor:
    """A photograph in [0, 1] with the size and as many channels as an image."""
    pixels = torch.from_numpy(_decoded(name)).permute(2, 0, 1)[None] / 255
    resized = F.interpolate(pixels, image.shape[1:], mode="bilinear", antialias=True, align_corners=False)[0]
    channels = resized if len(image) == 3 else resized.mean(0, keepdim=True).expand(len(image), -1, -1)
    return channels.to(image)


def _unlike(names: Sequence[str], image: Tensor) -> Tensor:
    """The first photograph that is hardly correlated with an image; of a few pixels, the least correlated one."""
    alike: list[tuple[float, Tensor]] = []
    for name in names:
        photo = _photograph(name, image)
        both = torch.stack([photo.flatten(), image.flatten()]).double()
        correlation = 0.0 if both.shape[1] < 2 else float(both.corrcoef()[0, 1].nan_to_num().abs())
        if correlation < _SAME:
            return photo
        alike.append((correlation, photo))
    return min(alike, key=lambda pair: pair[0])[1]


def blur(images: Tensor) -> Tensor:
    """Images blurred with an 11×11 Gaussian of σ = 5, edges repeated.

    Examples:
        >>> torch.allclose(fei.references.blur(torch.ones(1, 3, 16, 16)), torch.ones(1, 3, 16, 16))  # one colour stays
        True
    """
    return gaussian_blur(images, 5.0, 5, torch.float32)


def gaussian_blur(
    images: Tensor, sigma: float, reach: int, precision: torch.dtype | None = None, edges: str = "replicate"
) -> Tensor:
    """Images (n, C, H, W) convolved with a Gaussian.

    Args:
        images: What is blurred.
        sigma: Width of the Gaussian in pixels.
        reach: How many pixels on each side of its centre it covers.
        precision: What its values are computed in; that of the images if not given.
        edges: What is around the images: "replicate", their own edges, or "constant", zeros.

    Examples:
        >>> point = torch.zeros(1, 1, 9, 9)
        >>> point[..., 4, 4] = 1
        >>> round(fei.references.gaussian_blur(point, sigma=1.0, reach=3).sum().item(), 3)
        1.0
    """
    offsets = torch.arange(-reach, reach + 1, dtype=precision or images.dtype, device=images.device)
    kernel = torch.exp(-(offsets**2) / (2 * sigma**2))
    kernel = (kernel / kernel.sum()).to(images.dtype)
    channels = images.shape[1]
    padded = F.pad(images, (reach, reach, reach, reach), mode=edges)
    rows = F.conv2d(padded, kernel.view(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)
    return F.conv2d(rows, kernel.view(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)
