"""The table of methods and how one is made from its name and options.

Nothing heavy is imported to list them: the code of a method is loaded when it is made or its options are asked for.
That of plug-ins, the methods of other packages, is loaded when they are listed, or when a name is none of ours.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property, partial
from typing import Any, NamedTuple

from fei.common.plugins import Plugin, Plugins
from fei.common.words import suggestion
from fei.errors import InputError
from fei.methods._call import Method
from fei.methods._options import Option, options_of


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
        family: "optimisation", "gradient", "activation", "attention" (for transformers alone), "perturbation",
            "chance", "plug-in" or "adapter".
        summary: One line about it.
        cost: Passes through the network for one image with the default options, forward + backward, besides a few to
            find the class, the layers and what can be computed faster.
        source: Who described it first, and where.
        load: Imports its code.

    Examples:
        >>> entry = fei.methods.describe("smoothgrad")
        >>> entry.family, entry.source
        ('gradient', 'Smilkov et al. 2017, arXiv:1706.03825')
        >>> [option.name for option in entry.options]
        ['samples', 'noise', 'score']
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


def _optimisation(variant: str | None) -> _Code:
    from fei.core.attribution import FEI
    from fei.methods.fei import FEIMethod, FGVis, FGVisMethod

    told = FGVis if variant == "fgvis" else FEI
    factory = FGVisMethod if variant == "fgvis" else partial(FEIMethod, variant)
    return _Code(factory, options_of(FEI, without=frozenset({"model", "variant"})), inspect.getdoc(told) or "")


def _baseline(home: str) -> _Code:
    module, _, name = home.partition(":")
    method = getattr(importlib.import_module(f"fei.methods.{module}"), name)
    return _Code(method, options_of(method), inspect.getdoc(method) or "")


def _adapter(name: str) -> _Code:
    from fei.methods.adapters import as_method

    return _Code(partial(as_method, name), (), "")  # its options are checked when it is made


def _plugged(plugin: Plugin) -> Entry:
    """The entry of a method that another package brings: a `Baseline`, or a function (model, inputs, target)."""
    from fei.methods._baseline import Baseline
    from fei.methods.adapters import as_method

    code = plugin.content
    if inspect.isclass(code) and issubclass(code, Baseline):
        options = options_of(code)
    elif inspect.isfunction(code) and len(inspect.signature(code).parameters) >= 3:
        options = options_of(code)[3:]
    else:
        raise TypeError("it is neither a class derived from Baseline nor a function (model, inputs, target)")

    def make(**told: Any) -> Method:
        method = as_method(code, **told)
        if isinstance(method, Baseline):
            method.package = plugin.package
        return method

    load = _Code(make, options, inspect.getdoc(code) or "")
    return Entry(plugin.name, "plug-in", plugin.summary, "?", plugin.package, lambda: load)


_EQO = "100 + 100"  # five quantiles, twenty steps
_VARIANTS = {
    "vm": "value matching: no unit moves away from its original value",
    "ivm": "inactivated value matching: no unit rises further above its original value",
    "avm": "activated value matching: no unit falls further below its original value",
    "ibm": "inactivated binary matching: no originally inactive unit is driven up",
    "bm": "binary matching: inactive units are not driven up, active ones not down",
    "abm": "activated binary matching: no originally active unit is driven down",
    "none": "no constraint on the network's inside",
}
# Two lines for each: name | passes, forward + backward | family | where its class is | source, and what it does.
_BASELINES = """
saliency | 1 + 1 | gradient | gradients:Saliency | Simonyan et al. 2013, arXiv:1312.6034
    largest absolute gradient over the channels
smoothgrad | 50 + 50 | gradient | gradients:SmoothGrad | Smilkov et al. 2017, arXiv:1706.03825
    mean gradient over noisy copies of the image
integrated-gradients | 50 + 50 | gradient | gradients:IntegratedGradients | Sundararajan et al. 2017, arXiv:1703.01365
    gradients integrated from the reference to the image
guided-backprop | 2 + 1 | gradient | gradients:GuidedBackprop | Springenberg et al. 2014, arXiv:1412.6806
    gradient with every ReLU blocking negative gradients too
gradient-shap | 50 + 50 | gradient | gradients:GradientShap | Lundberg & Lee 2017, arXiv:1705.07874
    gradients between random colours and the image, times the difference
gradcam | 1 + 1 | activation | cam:GradCAM | Selvaraju et al. 2017, arXiv:1610.02391
    channels of the last feature map weighted by their mean gradient
gradcam++ | 1 + 1 | activation | cam:GradCAMPlusPlus | Chattopadhay et al. 2018, arXiv:1710.11063
    channels weighted by the positive gradients of single positions
layercam | 1 + 1 | activation | cam:LayerCAM | Jiang et al. 2021, doi:10.1109/TIP.2021.3089943
    features weighted position by position by their positive gradient
xgradcam | 1 + 1 | activation | cam:XGradCAM | Fu et al. 2020, arXiv:2008.02312
    channels weighted by the gradient averaged where they are active
scorecam | channels + 0 | activation | masking:ScoreCAM | Wang et al. 2020, arXiv:1910.01279
    channels weighted by the score of the image they leave visible
liftcam | 1 + head | activation | heads:LiftCAM | Jung & Oh 2021, arXiv:2102.05228
    channels weighted by their DeepLIFT contribution to the logit
iia | 11 + 121 heads | activation | heads:IIA | Barkan et al. 2023, arXiv:2310.20585
    head gradients integrated over images and activations
fgvce | 1 + 64 heads per point | activation | heads:FGVCE | Zhang et al. 2025, arXiv:2511.07974
    Shapley values of the points of the last feature map, after FG-VCE
attention-rollout | 1 + 1 | attention | attention:Rollout | Abnar & Zuidema 2020, arXiv:2005.00928
    attention patterns of all blocks, multiplied; no class is asked for
generic-attention | 1 + 1 | attention | attention:GenericAttention | Chefer et al. 2021, arXiv:2103.15679
    attention patterns times their positive gradients, from block to block
legrad | 1 + 1 per block | attention | attention:LeGrad | Bousselham et al. 2025, arXiv:2404.03214
    positive gradients of each block's own score by its attention pattern
libra-fullgrad | 1 + 1 | attention | libra:Libra | Mehri et al. 2025, arXiv:2411.16760
    tokens and biases times balanced gradients, over all blocks
vit-cx | 2 per mask + 0 | attention | vitcx:ViTCX | Xie et al. 2023, arXiv:2211.03064
    channels of tokens as masks, merged, weighted by the score they keep
rise | 4000 + 0 | perturbation | masking:RISE | Petsiuk et al. 2018, arXiv:1806.07421
    the mean score of random masks that show a pixel
extremal-perturbation | 3200 + 3200 | perturbation | extremal:ExtremalPerturbation | Fong et al. 2019, arXiv:1910.08485
    smooth masks of fixed areas that keep the score highest
occlusion | 170 + 0 | perturbation | regions:Occlusion | Zeiler & Fergus 2014, arXiv:1311.2901
    what the score loses when a window is painted over
kernel-shap | 1000 + 0 | perturbation | regions:KernelShap | Lundberg & Lee 2017, arXiv:1705.07874
    Shapley values of segments by weighted linear regression
random | 0 + 0 | chance | controls:Random | the floor of any metric
    a random number for each pixel
smooth-noise | 0 + 0 | chance | controls:SmoothNoise | a control: chance, as smooth as a class activation map
    random numbers, blurred
centre | 0 + 0 | chance | controls:Centre | a control: where photographs have their object
    how near a pixel is to the centre
brightness | 0 + 0 | chance | controls:Brightness | a control: what is in the photograph alone
    the luma of each pixel
edges | 0 + 0 | chance | controls:Edges | a control: what is in the photograph alone
    the gradient of the luma
"""


def _entries() -> Iterator[Entry]:
    flagship = "FEI led to where the class has its evidence, over references that are drawn afresh"
    yield Entry(
        "fei", "optimisation", flagship, "101 + 101", "this project, after the FEI paper", partial(_optimisation, None)
    )
    for variant, summary in _VARIANTS.items():
        load = partial(_optimisation, variant)
        yield Entry(f"fei-{variant}", "optimisation", f"FEI, {summary}", _EQO, "the FEI paper", load)
    summary, source = "masks per channel, gradients kept in the original range", "Wagner et al. 2019, arXiv:1908.02686"
    yield Entry("fgvis", "optimisation", summary, _EQO, source, partial(_optimisation, "fgvis"))
    lines = _BASELINES.strip().splitlines()
    for row, summary in zip(lines[::2], lines[1::2], strict=True):
        name, cost, family, home, source = row.split(" | ")
        yield Entry(name, family, summary.strip(), cost, source, partial(_baseline, home))


_ENTRIES = {entry.name: entry for entry in _entries()}
_PLUGINS = Plugins("fei.methods", "method", lambda: _ENTRIES, _plugged)


def available(pattern: str = "*") -> list[str]:
    """The names of the methods, those of plug-ins last, optionally only those a wildcard pattern matches.

    Examples:
        >>> fei.methods.available("*cam*")[:3]
        ['gradcam', 'gradcam++', 'layercam']
    """
    _PLUGINS.tell()
    return [name for name in (*_ENTRIES, *_PLUGINS.found()) if fnmatch(name, pattern)]


def describe(name: str) -> Entry:
    """The registry's entry of a method, or of what a "package.module:object" string names.

    Examples:
        >>> fei.methods.describe("gradcam").cost
        '1 + 1'
    """
    if not isinstance(name, str):
        raise InputError(f"A method is known by its name, not by a {type(name).__name__}; see fei.methods.available().")
    if ":" in name:
        return Entry(name, "adapter", "attribution code from elsewhere", "?", "", partial(_adapter, name))
    known = name.lower()
    entry = _ENTRIES.get(known) or _PLUGINS.found().get(known)
    if entry is None:
        if known in _PLUGINS.broken():
            raise InputError(_PLUGINS.broken()[known])
        raise InputError(f"Unknown method {name!r}; {suggestion(name, [*_ENTRIES, *_PLUGINS.found()])}")
    return entry


def is_control(name: str) -> bool:
    """Whether a method is there to be beaten: one that never looks at the network, or FEI without its constraint.

    Examples:
        >>> fei.methods.is_control("edges"), fei.methods.is_control("gradcam")
        (True, False)
    """
    entry = _ENTRIES.get(name.lower())
    return entry is not None and (entry.family == "chance" or entry.name == "fei-none")


def create(name: str, **options: Any) -> Method:
    """A method by name, with its options.

    Examples:
        >>> method = fei.methods.create("rise", samples=20)
        >>> tuple(method(model, images, target=1).shape)
        (2, 1, 16, 16)
    """
    entry = describe(name)
    known = [option.name for option in entry.options]
    unknown = [option for option in options if option not in known and entry.family != "adapter"]
    if unknown:
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        raise InputError(f"The method {entry.name!r} has no option {unknown[0]!r}; {takes}.")
    return entry.factory(**options)
