"""Methods that replace regions of an image and read the score: sliding windows, or segments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from captum import attr
from torch import Tensor

from fei.common.packages import need
from fei.common.random_state import lent_random_state
from fei.core.checks import check_count, is_count
from fei.core.scoring import Score
from fei.errors import InputError
from fei.methods._baseline import Baseline, Task, checked

_WINDOWS_ALONG_A_SIDE = 7  # without overlap: 32 pixels of 224
_COMPACTNESS = (10.0, 100.0, 1000.0, 10000.0)  # scikit-image's default first; the last gives nearly a grid


@dataclass(eq=False, kw_only=True)
class Occlusion(Baseline):
    """Occlusion: M_p = mean over the windows W that hold pixel p of s(x) − s(x with W painted with R).

    Zeiler & Fergus 2014, "Visualizing and understanding convolutional networks"; computed by captum (BSD-3), the
    window covering all colour channels. One forward pass of one row per window: 169 for 224×224 with the defaults. At
    the lower and right edge a window that does not fit is cut off.

    Args:
        window: Side of the window in pixels, or its height and width; by default a seventh of the image's (32 of 224).
        stride: Distance between windows, likewise; by default half the window.
        score: s, "logit", or "softmax" as in the original.
    """

    window: int | tuple[int, int] | None = None
    stride: int | tuple[int, int] | None = None
    score: Score = "logit"

    one_by_one = True
    parts = 100

    def __post_init__(self) -> None:
        """Refuse bad options, and take a number for both sides."""
        super().__post_init__()
        self.window, self.stride = window, stride = _pair("window", self.window), _pair("stride", self.stride)
        if window and stride:
            _check_covering(window, stride)

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        channels, *size = task.images.shape[1:]
        window, stride = self._geometry((size[0], size[1]))
        windows = math.prod(1 + -(-(side - w) // step) for side, w, step in zip(size, window, stride, strict=True))
        attribution: Tensor = attr.Occlusion(task.scored(1 + windows)).attribute(
            task.images,
            sliding_window_shapes=(channels, *window),
            strides=(channels, *stride),
            baselines=task.reference.expand_as(task.images),
            perturbations_per_eval=task.rows,
        )
        return attribution[:, 0]  # the same in every channel, since a window covers them all

    def _geometry(self, size: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Window and stride for an image of one size."""
        height, width = (max(1, round(side / _WINDOWS_ALONG_A_SIDE)) for side in size)
        window = _pair("window", self.window) or (height, width)
        if window[0] > size[0] or window[1] > size[1]:
            raise InputError(f"`window` {window} is larger than the image {size}; choose a smaller one.")
        stride = _pair("stride", self.stride) or (max(1, window[0] // 2), max(1, window[1] // 2))
        _check_covering(window, stride)
        return window, stride


def _pair(name: str, value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or not all(map(is_count, pair)):
        raise InputError(f"`{name}` must be a whole number of pixels of at least 1, or two of them; got {value!r}.")
    return pair


def _check_covering(window: tuple[int, int], stride: tuple[int, int]) -> None:
    if stride[0] > window[0] or stride[1] > window[1]:
        raise InputError(
            f"`stride` {stride} is larger than the window {window}, so pixels would be left out; choose a smaller one."
        )


@dataclass(eq=False, kw_only=True)
class KernelShap(Baseline):
    """KernelSHAP: argmin_φ Σ_z k(z)·(s(x_z) − φ₀ − Σ_i φ_i z_i)², x_z having R where segment i is off (z_i = 0).

    Lundberg & Lee 2017, "A unified approach to interpreting model predictions", with the Shapley kernel k; computed by
    captum (BSD-3) over the segments that SLIC finds (Achanta et al. 2012, scikit-image). Each pixel gets the value φ_i
    of its segment. `samples` forward passes of one row. The empty and the full coalition are always among the samples,
    with a weight that makes Σ_i φ_i = s(x) − s(R). Needs scikit-learn for the regression.

    Args:
        samples: Coalitions z; they must outnumber the segments.
        segments: About how many segments; SLIC decides.
        score: s, "logit" or "softmax".
    """

    samples: int = checked(1000, partial(check_count, least=2))
    segments: int = checked(100, partial(check_count, least=2))
    score: Score = "logit"

    one_by_one = True
    parts = 100

    def __post_init__(self) -> None:
        """Refuse bad options, and an installation without scikit-image or scikit-learn."""
        super().__post_init__()
        need("The method kernel-shap", "shap", "skimage", "sklearn")

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        labels = segment(task.images[0], self.segments)
        count = int(labels.max()) + 1
        if self.samples <= count:
            raise InputError(
                f"`samples` is {self.samples}, too few to solve for {count} segments; raise it or lower `segments`."
            )
        method = attr.KernelShap(task.scored(self.samples))
        with lent_random_state(task.generator("kernel-shap").initial_seed()):  # captum draws from the global state
            values: Tensor = method.attribute(
                task.images,
                baselines=task.reference.expand_as(task.images),
                feature_mask=labels.expand_as(task.images),
                n_samples=self.samples,
                perturbations_per_eval=task.rows,
                return_input_shape=False,
            )
        return values.flatten()[labels][None]


def segment(image: Tensor, count: int) -> Tensor:
    """SLIC segments of an image (C, H, W): labels (H, W) from 0 up, about `count` of them.

    Where texture keeps SLIC from finding half as many, as in noise, its weight of closeness in space over closeness
    in colour is raised.
    """
    from skimage.segmentation import slic

    pixels = image.detach().permute(1, 2, 0).to("cpu", torch.float64).numpy()
    for compactness in _COMPACTNESS:
        labels = slic(pixels, n_segments=count, compactness=compactness, start_label=0, channel_axis=-1)
        found, labels = np.unique(labels, return_inverse=True)
        if 2 * len(found) >= count:
            break
    if len(found) < 2:
        raise InputError(f"An image of {tuple(image.shape[1:])} pixels cannot be cut into segments; use larger images.")
    return torch.from_numpy(labels.reshape(pixels.shape[:2])).to(image.device)
