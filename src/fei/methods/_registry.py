"""The table of methods and how one is made from its name and options.

Nothing heavy is imported to list them: the code of a method is loaded when it is made or its options are asked for.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fei.common.words import suggestion
from fei.errors import InputError
from fei.methods._options import Option, options_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from fei.core.scoring import Target
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


class _Code(NamedTuple):
    """What makes a method, what it can be told, and the whole description: equation, source, licence, cost."""

    factory: Callable[..., Method]
    options: tuple[Option, ...]
    documentation: str


@dataclass(frozen=True)
class Entry:
    """A registered method.

    Attributes:
        name: Its name.
        family: "optimisation", "gradient", "activation", "perturbation", "chance" or "adapter".
        summary: One line about it.
        cost: Passes through the network for one image with the default options, forward + backward, besides a few to
            find the class, the layers and what can be computed faster.
        source: Who described it first, and where.
        load: Imports its code.
    """

    name: str
    family: str
    summary: str
    cost: str
    source: str
    load: Callable[[], _Code] = field(repr=False)

    @cached_property
    def _code(self) -> _Code:
        return self.load()

    @property
    def factory(self) -> Callable[..., Method]:
        """What makes it."""
        return self._code.factory

    @property
    def options(self) -> tuple[Option, ...]:
        """What it can be told."""
        return self._code.options

    @property
    def documentation(self) -> str:
        """The whole description: equation, source, licence, cost."""
        return self._code.documentation


def _fei(variant: str) -> _Code:
    from fei.core.attribution import FEI
    from fei.methods.fei import FEIMethod

    return _Code(partial(FEIMethod, variant), _fei_options(), inspect.getdoc(FEI) or "")


def _fgvis() -> _Code:
    from fei.methods.fgvis import FGVis, FGVisMethod

    return _Code(FGVisMethod, _fei_options(), inspect.getdoc(FGVis) or "")


def _fei_options() -> tuple[Option, ...]:
    from fei.core.attribution import FEI

    return options_of(FEI, without=frozenset({"model", "variant"}))


def _baseline(home: str) -> _Code:
    module, _, name = home.partition(":")
    method = getattr(importlib.import_module(f"fei.methods.{module}"), name)
    return _Code(method, options_of(method), inspect.getdoc(method) or "")


def _adapter(name: str) -> _Code:
    from fei.methods.adapters import as_method

    return _Code(partial(as_method, name), (), "")  # its options are checked when it is made


_VARIANTS = {
    "vm": "value matching: no unit moves away from its original value",
    "ivm": "inactivated value matching: no unit rises further above its original value",
    "avm": "activated value matching: no unit falls further below its original value",
    "ibm": "inactivated binary matching: no originally inactive unit is driven up",
    "bm": "binary matching: inactive units are not driven up, active ones not down",
    "abm": "activated binary matching: no originally active unit is driven down",
    "none": "no constraint on the network's inside",
}

_EQO = "100 + 100"  # five quantiles, twenty steps
# name, family, what it does, passes (forward + backward), source, where its class is
_BASELINES: tuple[tuple[str, str, str, str, str, str], ...] = (
    (
        *("saliency", "gradient", "largest absolute gradient over the channels", "1 + 1"),
        *("Simonyan et al. 2013, arXiv:1312.6034", "gradients:Saliency"),
    ),
    (
        *("smoothgrad", "gradient", "mean gradient over noisy copies of the image", "50 + 50"),
        *("Smilkov et al. 2017, arXiv:1706.03825", "gradients:SmoothGrad"),
    ),
    (
        *("integrated-gradients", "gradient", "gradients integrated from the reference to the image", "50 + 50"),
        *("Sundararajan et al. 2017, arXiv:1703.01365", "gradients:IntegratedGradients"),
    ),
    (
        *("guided-backprop", "gradient", "gradient with every ReLU blocking negative gradients too", "2 + 1"),
        *("Springenberg et al. 2014, arXiv:1412.6806", "gradients:GuidedBackprop"),
    ),
    (
        *("gradient-shap", "gradient", "gradients between random colours and the image, times the difference"),
        *("50 + 50", "Lundberg & Lee 2017, arXiv:1705.07874", "gradients:GradientShap"),
    ),
    (
        *("gradcam", "activation", "channels of the last feature map weighted by their mean gradient", "1 + 1"),
        *("Selvaraju et al. 2017, arXiv:1610.02391", "cam:GradCAM"),
    ),
    (
        *("gradcam++", "activation", "channels weighted by the positive gradients of single positions", "1 + 1"),
        *("Chattopadhay et al. 2018, arXiv:1710.11063", "cam:GradCAMPlusPlus"),
    ),
    (
        *("layercam", "activation", "features weighted position by position by their positive gradient", "1 + 1"),
        *("Jiang et al. 2021, doi:10.1109/TIP.2021.3089943", "cam:LayerCAM"),
    ),
    (
        *("xgradcam", "activation", "channels weighted by the gradient averaged where they are active", "1 + 1"),
        *("Fu et al. 2020, arXiv:2008.02312", "cam:XGradCAM"),
    ),
    (
        *("scorecam", "activation", "channels weighted by the score of the image they leave visible"),
        *("channels + 0", "Wang et al. 2020, arXiv:1910.01279", "scorecam:ScoreCAM"),
    ),
    (
        *("liftcam", "activation", "channels weighted by their DeepLIFT contribution to the logit", "1 + head"),
        *("Jung & Oh 2021, arXiv:2102.05228", "liftcam:LiftCAM"),
    ),
    (
        *("iia", "activation", "head gradients integrated over images and activations", "10 + 100 heads"),
        *("Barkan et al. 2023, arXiv:2310.20585", "iia:IIA"),
    ),
    (
        *("fgvce", "activation", "Shapley values of the points of the last feature map, after FG-VCE"),
        *("1 + 64 heads a point", "Zhang et al. 2025, arXiv:2511.07974", "fgvce:FGVCE"),
    ),
    (
        *("rise", "perturbation", "the mean score of random masks that show a pixel", "4000 + 0"),
        *("Petsiuk et al. 2018, arXiv:1806.07421", "rise:RISE"),
    ),
    (
        *("extremal-perturbation", "perturbation", "smooth masks of fixed areas that keep the score highest"),
        *("3200 + 3200", "Fong et al. 2019, arXiv:1910.08485", "extremal:ExtremalPerturbation"),
    ),
    (
        *("occlusion", "perturbation", "what the score loses when a window is painted over", "170 + 0"),
        *("Zeiler & Fergus 2014, arXiv:1311.2901", "occlusion:Occlusion"),
    ),
    (
        *("kernel-shap", "perturbation", "Shapley values of segments by weighted linear regression", "1000 + 0"),
        *("Lundberg & Lee 2017, arXiv:1705.07874", "kernel_shap:KernelShap"),
    ),
    ("random", "chance", "a random number for each pixel", "0 + 0", "the floor of any metric", "random:Random"),
)

_ENTRIES = {
    entry.name: entry
    for entry in (
        *(
            Entry(f"fei-{variant}", "optimisation", f"FEI, {summary}", _EQO, "the FEI paper", partial(_fei, variant))
            for variant, summary in _VARIANTS.items()
        ),
        Entry(
            "fgvis",
            "optimisation",
            "masks per channel, gradients kept in the original range",
            _EQO,
            "Wagner et al. 2019, arXiv:1908.02686",
            _fgvis,
        ),
        *(
            Entry(name, family, summary, cost, source, partial(_baseline, home))
            for name, family, summary, cost, source, home in _BASELINES
        ),
    )
}


def available(pattern: str = "*") -> list[str]:
    """The names of the methods, optionally only those a wildcard pattern matches."""
    return [name for name in _ENTRIES if fnmatch(name, pattern)]


def describe(name: str) -> Entry:
    """The registry's entry of a method, or of what a "package.module:object" string names."""
    if not isinstance(name, str):
        raise InputError(f"a method is known by its name; got {type(name).__name__}; see fei.methods.available()")
    if ":" in name:
        return Entry(name, "adapter", "attribution code from elsewhere", "?", "", partial(_adapter, name))
    entry = _ENTRIES.get(name.lower())
    if entry is None:
        raise InputError(f"unknown method {name!r}; {suggestion(name, _ENTRIES)}")
    return entry


def create(name: str, **options: Any) -> Method:
    """A method by name, with its options."""
    entry = describe(name)
    known = [option.name for option in entry.options]
    unknown = [option for option in options if option not in known and entry.family != "adapter"]
    if unknown:
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        raise InputError(f"method {entry.name!r} has no option {unknown[0]!r}; {takes}")
    return entry.factory(**options)
