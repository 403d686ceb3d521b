"""The table of methods and how one is made from its name and options."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fei.core.attribution import FEI
from fei.core.scoring import Target
from fei.errors import InputError
from fei.methods._baseline import Baseline
from fei.methods.adapters import as_method
from fei.methods.cam import GradCAM, GradCAMPlusPlus, LayerCAM, XGradCAM
from fei.methods.extremal import ExtremalPerturbation
from fei.methods.fei import FEIMethod
from fei.methods.fgvce import FGVCE
from fei.methods.fgvis import FGVisMethod
from fei.methods.gradients import GradientShap, GuidedBackprop, IntegratedGradients, Saliency, SmoothGrad
from fei.methods.iia import IIA
from fei.methods.kernel_shap import KernelShap
from fei.methods.liftcam import LiftCAM
from fei.methods.occlusion import Occlusion
from fei.methods.random import Random
from fei.methods.rise import RISE
from fei.methods.scorecam import ScoreCAM
from fei.progress import Progress
from fei.references import ReferenceSpec


class Method(Protocol):
    """What every attribution method can be called as."""

    def __call__(
        self,
        model: nn.Module,
        inputs: Tensor,
        target: Target = None,
        *,
        reference: ReferenceSpec = None,
        generator: torch.Generator | None = None,
        batch_size: int | None = None,
        progress: bool | Progress = False,
    ) -> Tensor:
        """Attribution maps (N, 1, H, W); higher is more important.

        Args:
            model: The classifier; never changed.
            inputs: Images (N, C, H, W).
            target: As in `fei.FEI.explain`.
            reference: R, for methods that replace pixels.
            generator: Supplies the seed of whatever is random.
            batch_size: Rows in one forward pass.
            progress: ``True`` for a progress bar, or a callable on (done, total).
        """
        ...


@dataclass(frozen=True)
class Entry:
    """A registered method: its name, family, one line about it, what makes it, and the options it takes."""

    name: str
    family: str
    summary: str
    factory: Callable[..., Method]
    options: tuple[str, ...]


_VARIANTS = {
    "vm": "value matching: no unit moves away from its original value",
    "ivm": "inactivated value matching: no unit rises further above its original value",
    "avm": "activated value matching: no unit falls further below its original value",
    "ibm": "inactivated binary matching: no originally inactive unit is driven up",
    "bm": "binary matching: inactive units are not driven up, active ones not down",
    "abm": "activated binary matching: no originally active unit is driven down",
    "none": "no constraint on the network's inside",
}


_BASELINES: tuple[tuple[str, str, str, type[Baseline]], ...] = (
    ("saliency", "gradient", "largest absolute gradient over the channels", Saliency),
    ("smoothgrad", "gradient", "mean gradient over noisy copies of the image", SmoothGrad),
    ("integrated-gradients", "gradient", "gradients integrated from the reference to the image", IntegratedGradients),
    ("guided-backprop", "gradient", "gradient with every ReLU blocking negative gradients too", GuidedBackprop),
    ("gradient-shap", "gradient", "gradients between random colours and the image, times the difference", GradientShap),
    ("gradcam", "activation", "channels of the last feature map weighted by their mean gradient", GradCAM),
    ("gradcam++", "activation", "channels weighted by the positive gradients of single positions", GradCAMPlusPlus),
    ("layercam", "activation", "features weighted position by position by their positive gradient", LayerCAM),
    ("xgradcam", "activation", "channels weighted by the gradient averaged where they are active", XGradCAM),
    ("scorecam", "activation", "channels weighted by the score of the image they leave visible", ScoreCAM),
    ("liftcam", "activation", "channels weighted by their DeepLIFT contribution to the logit", LiftCAM),
    ("iia", "activation", "head gradients integrated over images and activations", IIA),
    ("fgvce", "activation", "Shapley values of the points of the last feature map, after FG-VCE", FGVCE),
    ("rise", "perturbation", "the mean score of random masks that show a pixel", RISE),
    (
        "extremal-perturbation",
        "perturbation",
        "smooth masks of fixed areas that keep the score highest",
        ExtremalPerturbation,
    ),
    ("occlusion", "perturbation", "what the score loses when a window is painted over", Occlusion),
    ("kernel-shap", "perturbation", "Shapley values of segments by weighted linear regression", KernelShap),
    ("random", "chance", "a random number for each pixel", Random),
)


def _options(factory: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(p for p in inspect.signature(factory).parameters if p not in {"model", "variant"})


_ENTRIES = {
    entry.name: entry
    for entry in (
        *(
            Entry(f"fei-{variant}", "optimisation", f"FEI, {summary}", partial(FEIMethod, variant), _options(FEI))
            for variant, summary in _VARIANTS.items()
        ),
        Entry(
            "fgvis",
            "optimisation",
            "masks per channel, gradients kept in the original range",
            FGVisMethod,
            _options(FEI),
        ),
        *(Entry(name, family, summary, method, _options(method)) for name, family, summary, method in _BASELINES),
    )
}


def available(pattern: str = "*") -> list[str]:
    """The names of the methods, optionally only those a wildcard pattern matches."""
    return [name for name in _ENTRIES if fnmatch(name, pattern)]


def describe(name: str) -> Entry:
    """The registry's entry of a method, or of what a "package.module:object" string names."""
    if ":" in name:  # its options are checked when it is made
        return Entry(name, "adapter", "attribution code from elsewhere", partial(as_method, name), ())
    entry = _ENTRIES.get(name.lower())
    if entry is None:
        close = difflib.get_close_matches(name.lower(), _ENTRIES, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"choose one of {', '.join(_ENTRIES)}"
        raise InputError(f"unknown method {name!r}; {hint}")
    return entry


def create(name: str, **options: Any) -> Method:
    """A method by name, with its options."""
    entry = describe(name)
    unknown = [option for option in options if option not in entry.options and entry.family != "adapter"]
    if unknown:
        raise InputError(f"method {entry.name!r} has no option {unknown[0]!r}; it takes {', '.join(entry.options)}")
    return entry.factory(**options)
