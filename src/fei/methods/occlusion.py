"""Occlusion: what the score loses when a window of the image is painted over."""

from __future__ import annotations

import math
from typing import Any

from captum.attr import Occlusion as CaptumOcclusion
from torch import Tensor

from fei.core.scoring import Score, check_score
from fei.errors import InputError
from fei.methods._baseline import Baseline, Task

_WINDOWS_ALONG_A_SIDE = 7  # without overlap: 32 pixels of 224


class Occlusion(Baseline):
    """Occlusion: M_p = mean over the windows W that hold pixel p of s(x) − s(x with W painted with R).

    Zeiler & Fergus 2014, "Visualizing and understanding convolutional networks"; computed by captum (BSD-3), the
    window covering all colour channels. One forward pass of a row a window: 169 for 224×224 with the defaults. At the
    lower and right edge a window that does not fit is cut off.

    Args:
        window: Side of the window in pixels, or its height and width; by default a seventh of the image's (32 of 224).
        stride: Distance between windows, likewise; by default half the window.
        score: s, "logit", or "softmax" as in the original.
    """

    one_by_one = True
    parts = 100

    def __init__(
        self,
        *,
        window: int | tuple[int, int] | None = None,
        stride: int | tuple[int, int] | None = None,
        score: Score = "logit",
    ) -> None:
        check_score(score)
        self.window, self.stride, self.score = _pair("window", window), _pair("stride", stride), score
        if self.window and self.stride:
            _check_covering(self.window, self.stride)

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        channels, *size = task.images.shape[1:]
        window, stride = self._geometry((size[0], size[1]))
        windows = math.prod(1 + -(-(side - w) // step) for side, w, step in zip(size, window, stride, strict=True))
        attribution: Tensor = CaptumOcclusion(task.scored(1 + windows)).attribute(
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
        window = self.window or (height, width)
        if window[0] > size[0] or window[1] > size[1]:
            raise InputError(f"`window` {window} is larger than the image {size}; choose a smaller one")
        stride = self.stride or (max(1, window[0] // 2), max(1, window[1] // 2))
        _check_covering(window, stride)
        return window, stride


def _pair(name: str, value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or not all(isinstance(side, int) and not isinstance(side, bool) and side >= 1 for side in pair):
        raise InputError(f"`{name}` must be a whole number of pixels of at least 1, or two of them; got {value!r}")
    return pair


def _check_covering(window: tuple[int, int], stride: tuple[int, int]) -> None:
    if stride[0] > window[0] or stride[1] > window[1]:
        raise InputError(
            f"`stride` {stride} is larger than the window {window}, so pixels would be left out; choose a smaller one"
        )
