"""What is known of each metric, declared once in the metric's own file: its name, title, direction, needs and function.

A file of this package that has a tuple `METRICS` is found by itself. Plans name its metrics; tables, figures and pages
read their titles and directions here:

    METRICS = (Metric("gini", "Gini", True, group="complexity", measure=of_maps(gini)),)

Other packages bring theirs as plug-ins, see `fei.common.plugins`: an entry point "fei.metrics" that is a `Metric`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

import fei.metrics
from fei.common.plugins import Plugin, Plugins
from fei.common.words import suggestion
from fei.errors import InputError
from fei.metrics.curve import Curve

Need = Literal["network", "protocol", "layers", "boxes", "method"]
Result = TypeVar("Result")


@dataclass
class Subject:
    """One map and all that its metrics depend on.

    Attributes:
        model: The network.
        inputs: The image, (1, C, H, W).
        maps: Its map, (1, 1, H, W).
        target: The explained class.
        boxes: The object's boxes, in pixels of `inputs`.
        layers: Where to look inside; None for the network's feature layers.
        seed: Of the reference and of whatever is random.
        batch_size: Rows in one forward pass.
        protocol: Under which the metrics are measured, for those that need one.
        method: What made the map, for metrics that ask it for others.

    Examples:
        >>> one = fei.metrics.Subject(
        ...     model, images[:1], maps[:1], target=0, boxes=(), layers=None, seed=0, batch_size=None
        ... )
        >>> tuple(fei.metrics.insertion(*one.given, **one.options).auc.shape)
        (1,)
    """

    model: nn.Module
    inputs: Tensor
    maps: Tensor
    target: int
    boxes: Sequence[Any]
    layers: Sequence[str] | None
    seed: int
    batch_size: int | None
    protocol: str = ""
    method: Callable[..., Any] | None = None
    _kept: dict[Callable[[Subject], Any], Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def given(self) -> tuple[nn.Module, Tensor, Tensor, int]:
        """What metrics of a network take first: model, inputs, maps and target."""
        return self.model, self.inputs, self.maps, self.target

    @property
    def options(self) -> dict[str, Any]:
        """A fresh generator, since every measurement is to draw the same R, and the batch size."""
        return {"generator": torch.Generator().manual_seed(self.seed), "batch_size": self.batch_size}

    def once(self, compute: Callable[[Subject], Result]) -> Result:
        """What several metrics read off the same forward passes: computed for the first of them, then kept."""
        if compute not in self._kept:
            self._kept[compute] = compute(self)
        found: Result = self._kept[compute]
        return found


@dataclass(frozen=True)
class Metric:
    """A number by which maps are judged.

    Attributes:
        name: That of its function, or of what the function returns.
        title: In headings.
        higher_is_better: None where neither is.
        group: Metrics of one group are measured together, in the same forward passes; its own name by default.
        measure: The metric of one map: a tensor (1,), a curve, or a tensor (1,) for each layer; None where there is
            nothing to say of this map. A metric without this function is none of those that a plan can name.
        needs: What has to be there: passes through the network, a protocol, layers, boxes, the method itself.
        score: The name that runs store it under; its own by default.
        format: How a single number is written, as Python's `format` takes it.
        logarithmic: Whether axes are.
        detail: Whether the page of a run tells it of single images alone.
        version: Raised when the number changes its meaning: runs then measure its group again and store it under
            another name, "pointing-2", so that no stale number is taken for it.

    Examples:
        >>> def brightest(subject):
        ...     return subject.maps.amax((1, 2, 3))
        >>> fei.metrics.Metric("brightest", "highest value", None, measure=brightest).name
        'brightest'
    """

    name: str
    title: str
    higher_is_better: bool | None
    group: str = ""
    measure: Callable[[Subject], Tensor | Curve | dict[str, Tensor] | None] | None = None
    needs: tuple[Need, ...] = ()
    score: str = ""
    format: str = ".3f"
    logarithmic: bool = False
    detail: bool = False
    version: int = 1

    def __post_init__(self) -> None:
        score, suffix = self.score or self.name, f"-{self.version}" if self.version > 1 else ""
        object.__setattr__(self, "group", self.group or self.name)
        object.__setattr__(self, "score", score.removesuffix(suffix) + suffix)  # once, also for a copy

    @property
    def heading(self) -> str:
        """The title with an arrow to where it is better."""
        return f"{self.title} {self.arrow}".rstrip()

    @property
    def arrow(self) -> str:
        """To where it is better."""
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]

    def document(self) -> dict[str, Any]:
        """What the pages read of it."""
        return {
            "title": self.title,
            "arrow": self.arrow,
            "heading": self.heading[:1].upper() + self.heading[1:],
            "better": self.higher_is_better,
            "format": self.format,
            "logarithmic": self.logarithmic,
        }


def of_maps(function: Callable[[Tensor], Tensor]) -> Callable[[Subject], Tensor]:
    """A function on maps as a metric's `measure`."""
    return lambda subject: function(subject.maps)


def of_network(function: Callable[..., Result], **more: Any) -> Callable[[Subject], Result]:
    """A function on model, inputs, maps and target, with generator and batch size, as a metric's `measure`."""
    return lambda subject: function(*subject.given, **subject.options, **more)


@cache
def own() -> dict[str, Metric]:
    """The metrics of this package by their names, file by file."""
    found: dict[str, Metric] = {}
    for module in pkgutil.iter_modules(fei.metrics.__path__, "fei.metrics."):
        if not module.name.removeprefix("fei.metrics.").startswith("_"):
            metrics = getattr(importlib.import_module(module.name), "METRICS", ())
            found |= {metric.name: metric for metric in metrics}
    return found


def _plugged(plugin: Plugin) -> Metric:
    """The declaration that another package brings."""
    metric = plugin.content
    if not isinstance(metric, Metric) or metric.name != plugin.name:
        raise TypeError(f"it is no Metric('{plugin.name}', …)")
    if any(metric.score == each.score or metric.group == each.group for each in own().values()):
        raise ValueError("its group or its stored name is that of one of fei's metrics")
    return metric


_PLUGINS = Plugins("fei.metrics", "metric", lambda: own(), _plugged)


def declared() -> dict[str, Metric]:
    """All metrics by their names, those of plug-ins last.

    Examples:
        >>> fei.metrics.declared()["insertion"].title
        'insertion'
    """
    _PLUGINS.tell()
    return _all()


def _all() -> dict[str, Metric]:
    return own() | _PLUGINS.found()


def describe(name: str, protocol: str = "") -> Metric:
    """A metric by its name, or by the name that runs store it under.

    Args:
        name: The name.
        protocol: Of the stored score: metrics that share a stored name have protocols of their own.

    Raises:
        InputError: If there is no such metric.

    Examples:
        >>> fei.metrics.describe("deletion").higher_is_better
        False
    """
    found = [metric for metric in own().values() if name in (metric.name, metric.score)]
    found = found or [metric for metric in _PLUGINS.found().values() if name in (metric.name, metric.score)]
    if not found:
        raise _unknown(name, _all())
    named = [metric for metric in found if metric.name in (name, protocol.split("/")[0])]
    return named[0] if named else found[0] if len(found) == 1 else replace(found[0], higher_is_better=None)


def _unknown(name: str, names: Iterable[str]) -> InputError:
    if name in _PLUGINS.broken():
        return InputError(_PLUGINS.broken()[name])
    return InputError(f"There is no metric '{name}'; {suggestion(name, names)}")


def groups() -> dict[str, tuple[Metric, ...]]:
    """The groups of metrics that can be measured on a map.

    Examples:
        >>> [metric.name for metric in fei.metrics.groups()["localization"]]
        ['pointing_game', 'energy_pointing_game']
    """
    found: dict[str, tuple[Metric, ...]] = {}
    for metric in _all().values():
        if metric.measure is not None:
            found[metric.group] = (*found.get(metric.group, ()), metric)
    return found


def group_of(name: str) -> str:
    """The group that is measured where a plan names this metric or group.

    Raises:
        InputError: If there is none that can be measured on a map.

    Examples:
        >>> fei.metrics.group_of("insertion") == fei.metrics.group_of("deletion")
        True
    """
    known = groups()
    if name in known:
        return name
    fitting = {each for metrics in known.values() for metric in metrics for each in (metric.name, metric.score)}
    if name not in fitting:
        raise _unknown(name, sorted({*known, *fitting}))
    return describe(name).group
