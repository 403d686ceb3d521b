"""KernelSHAP: Shapley values of the segments of an image, by weighted linear regression."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import torch
from captum.attr import KernelShap as CaptumKernelShap
from skimage.segmentation import slic
from torch import Tensor

from fei.common.random_state import forked_random_state
from fei.core.scoring import Score, check_score
from fei.errors import InputError, ModelError
from fei.methods._baseline import Baseline, Task

_COMPACTNESS = (10.0, 100.0, 1000.0, 10000.0)  # scikit-image's default first; the last gives nearly a grid


class KernelShap(Baseline):
    """KernelSHAP: argmin_φ Σ_z k(z)·(s(x_z) − φ₀ − Σ_i φ_i z_i)², x_z having R where segment i is off (z_i = 0).

    Lundberg & Lee 2017, "A unified approach to interpreting model predictions", with the Shapley kernel k; computed by
    captum (BSD-3) over the segments that SLIC finds (Achanta et al. 2012, scikit-image). Each pixel gets the value φ_i
    of its segment. `samples` forward passes of a row. The empty and the full coalition are always among the samples,
    with a weight that makes Σ_i φ_i = s(x) − s(R). Needs scikit-learn for the regression.

    Args:
        samples: Coalitions z; they must outnumber the segments.
        segments: About how many segments; SLIC decides.
        score: s, "logit" or "softmax".
    """

    one_by_one = True
    parts = 100

    def __init__(self, *, samples: int = 1000, segments: int = 100, score: Score = "logit") -> None:
        for name, value in (("samples", samples), ("segments", segments)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 2:
                raise InputError(f"`{name}` must be a whole number of at least 2; got {value!r}")
        check_score(score)
        if find_spec("sklearn") is None:
            raise ModelError(
                "scikit-learn is needed for kernel-shap and is not installed; run: pip install scikit-learn"
            )
        self.samples, self.segments, self.score = samples, segments, score

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        labels = segment(task.images[0], self.segments)
        count = int(labels.max()) + 1
        if self.samples <= count:
            raise InputError(
                f"`samples` is {self.samples}, too few to solve for {count} segments; raise it or lower `segments`"
            )
        method = CaptumKernelShap(task.scored(self.samples))
        with forked_random_state(task.generator("kernel-shap").initial_seed()):  # captum draws from the global state
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
    pixels = image.detach().permute(1, 2, 0).to("cpu", torch.float64).numpy()
    for compactness in _COMPACTNESS:
        labels = slic(pixels, n_segments=count, compactness=compactness, start_label=0, channel_axis=-1)
        found, labels = np.unique(labels, return_inverse=True)
        if 2 * len(found) >= count:
            break
    if len(found) < 2:
        raise InputError(f"an image of {tuple(image.shape[1:])} pixels cannot be cut into segments; use larger images")
    return torch.from_numpy(labels.reshape(pixels.shape[:2])).to(image.device)
