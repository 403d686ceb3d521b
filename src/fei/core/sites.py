"""Where to clip: convolutions, attention patterns, MLP units; found by data flow (never by module order).

A convolution's value is followed through a normalisation and then a pointwise activation, while each is the only
consumer; the last value reached is the site. What happens at a residual addition is the caller's choice, see
`find_sites`. In a network with attention the patterns (`fei.core.attention`) and the activations of its MLPs are sites
too; of a gated MLP, act(a)·b, it is the gate act(a).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from fei.common.words import suggestion
from fei.core.attention import find_attention, pattern_shape
from fei.core.dataflow import ACTIVATIONS, ADDITIONS, CONVOLUTIONS, NORMALIZATIONS, Call, CallKey, Flow
from fei.errors import InputError, ModelError

RESIDUALS = ("branch", "post_add", "both")
_SHARE = re.compile(r"(first|last):([0-9]+)/([0-9]+)")


@dataclass(frozen=True)
class Site:
    """A value inside the network whose gradient is clipped.

    Attributes:
        name: The module whose output it is, ``#n`` appended where the module runs more than once (its call number,
            from 0), or ``block:function`` for a function called in a block's own forward.
        index: Rank in execution order among the sites.
        key: The torch function call that makes the value.
        activation: Whether the value comes out of a pointwise activation; elsewhere "inactive" just means ≤ 0.
        units: How many units one image has there; 0 if that is not known.

    Examples:
        >>> from fei.core.dataflow import trace
        >>> from fei.core.sites import find_sites
        >>> (first, *_) = find_sites(model, trace(model, images[:1])[0])
        >>> first.name, first.index, first.activation
        ('network.2', 0, True)
    """

    name: str
    index: int
    key: CallKey
    activation: bool
    units: int = 0


@dataclass(frozen=True)
class AttentionSite(Site):
    """The pattern A of an attention, behind its softmax."""


SiteSelection = str | Sequence[str] | Callable[[Site], bool]


def find_sites(model: nn.Module, flow: Flow, select: SiteSelection = "auto", residual: str = "branch") -> list[Site]:
    """The clip sites of a network, in execution order.

    Args:
        model: The network `flow` was traced from; consulted for module names.
        flow: Its data flow.
        select: "auto" ("activation", and in a network with attention also "attention" and "mlp"), "activation" (the
            rule for convolutions above), "attention" (the patterns), "mlp" (in a network with attention, the
            activations that follow no convolution), "conv" (every convolution's own output), "block" (the outputs of
            the outermost modules of a class that occurs more than once), "nonlinearity" (all pointwise activations),
            several of these joined by "+", "first:a/b" or "last:a/b" (that share of the "auto" sites, rounded;
            together the two are all), module names (a name's unique ending will do, ``#n`` picks one call), or a
            predicate that keeps some of the "auto" sites.
        residual: For a convolution whose value goes into an addition unactivated: "branch" clips that value,
            "post_add" the sum (after its activation, if it has one), "both" clips both.

    Examples:
        >>> from fei.core.dataflow import trace
        >>> from fei.core.sites import find_sites
        >>> flow, _ = trace(model, images[:1])
        >>> [site.name for site in find_sites(model, flow)]
        ['network.2', 'network.5']
    """
    share = _SHARE.fullmatch(select) if isinstance(select, str) else None
    patterns: list[Call] = []
    if callable(select) or isinstance(select, str):
        kinds = kinds_of(select, model, flow)
        calls = [call for kind in kinds for call in _KINDS[kind](model, flow, residual)]
        if "attention" in kinds:
            patterns = find_attention(model, flow).reached
    else:
        calls = [call for name in select for call in _named(flow, name)]
    sites = sites_at(model, flow, calls, patterns)
    if callable(select):
        sites = [site for site in sites if select(site)]
    return _part(sites, *share.groups()) if share else sites


def sites_at(model: nn.Module, flow: Flow, calls: Iterable[Call], patterns: Sequence[Call] = ()) -> list[Site]:
    """The sites at some calls, each once and in execution order; `patterns` are those that make an attention's."""
    order = {id(call): rank for rank, call in enumerate(flow.calls)}
    unique = sorted({id(call): call for call in calls if call.clippable}.values(), key=lambda c: order[id(c)])
    names = _names(model, flow)
    return [_site(call, names[id(call)], i, flow.rows, call in patterns) for i, call in enumerate(unique)]


def check_kind(select: str) -> None:
    """Refuse a word that `find_sites` does not know."""
    share = _SHARE.fullmatch(select)
    if not set(select.split("+")) <= set(SITE_KINDS) and not (share and 0 < int(share[2]) <= int(share[3])):
        raise InputError(f"Unknown sites {select!r}; choose one of {', '.join(SITE_KINDS)}, first:1/2, last:1/2.")


def find_layer(model: nn.Module, flow: Flow, name: str) -> Site:
    """The one value that a layer's name stands for."""
    calls = find_sites(model, flow, [name])
    if len(calls) != 1:
        raise several_calls(name, len(calls))
    return calls[0]


def several_calls(layer: str, count: int) -> InputError:
    """What is said of a layer that runs more than once."""
    return InputError(f"The layer {layer!r} runs {count} times; name one call as {layer}#0 to {layer}#{count - 1}.")


def unreachable(flow: Flow) -> list[str]:
    """What the sites cannot cover, as phrases for a warning: code that hides its calls or its gradients."""
    where = {name: f"in module {name!r}" if name else "in the network's own forward" for name in flow.blind}
    phrases = [f"values made by scripted or foreign code turn up {where[name]}" for name in flow.blind]
    hidden = sum(call.function in CONVOLUTIONS and call.depends and not call.differentiable for call in flow.calls)
    if hidden:
        phrases.append(f"{hidden} convolution(s) run without a gradient graph (custom or checkpointed code)")
    return phrases


def resolve_name(name: str, known: Iterable[str]) -> str:
    """The known module name that is `name` or, uniquely, ends in ``.name``."""
    known = list(known)
    if name in known:
        return name
    endings = [candidate for candidate in known if candidate.endswith(f".{name}")]
    if len(endings) == 1:
        return endings[0]
    if endings:
        raise InputError(f"The module name {name!r} is ambiguous: it ends {', '.join(sorted(endings)[:4])}; give more.")
    hint = suggestion(name, known, "see model.named_modules().", cutoff=0.4)
    raise InputError(f"The network ran no module named {name!r}; {hint}")


def _part(sites: list[Site], end: str, part: str, whole: str) -> list[Site]:
    """The first or last share of the sites, one at least; the last 6/13 are what the first 7/13 leave."""
    n, a, b = len(sites), int(part), int(whole)
    if end == "first":
        return sites[: max(1, round(n * a / b))]
    return sites[min(n - 1, round(n * (b - a) / b)) :] if sites else []


def _convolutions(flow: Flow) -> list[Call]:
    return [call for call in flow.calls if call.function in CONVOLUTIONS and call.differentiable]


# What "auto" stands for in a network with attention, by measurement (docs/transformers.md), and in any other.
_WITH_ATTENTION = ("activation", "attention", "mlp")
_WITHOUT = ("activation",)

# How the calls of each kind of sites are found in a network and its flow, residual additions being treated as told.
_KINDS: dict[str, Callable[[nn.Module, Flow, str], list[Call]]] = {
    "activation": lambda _, flow, residual: _activations(flow, residual),
    "attention": lambda model, flow, _: find_attention(model, flow).reached,
    "mlp": lambda model, flow, residual: _mlp_units(model, flow, residual),
    "conv": lambda _, flow, __: _convolutions(flow),
    "block": lambda model, flow, _: _block_outputs(model, flow),
    "nonlinearity": lambda _, flow, __: [call for call in flow.calls if call.function in ACTIVATIONS],
}
SITE_KINDS = ("auto", *_KINDS)


def kinds_of(select: SiteSelection, model: nn.Module, flow: Flow) -> list[str]:
    """The kinds of sites that a selection stands for; none where it names modules."""
    if not isinstance(select, str) and not callable(select):
        return []
    words = select.split("+") if isinstance(select, str) and not _SHARE.fullmatch(select) else ["auto"]
    auto = _WITH_ATTENTION if find_attention(model, flow).between_tokens else _WITHOUT
    return [kind for word in words for kind in (auto if word == "auto" else (word,))]


def _site(call: Call, name: str, index: int, rows: int, is_pattern: bool) -> Site:
    if is_pattern:
        return AttentionSite(name, index, call.key, False, math.prod(pattern_shape(call)) // rows)
    return Site(name, index, call.key, call.function in ACTIVATIONS, math.prod(call.shape or ()) // rows)


def _activations(flow: Flow, residual: str) -> list[Call]:
    return [end for call in _convolutions(flow) for end in _follow(call, residual)]


def _mlp_units(model: nn.Module, flow: Flow, residual: str) -> list[Call]:
    if not find_attention(model, flow).between_tokens:
        return []
    after_convolutions = _activations(flow, residual)
    return [call for call in flow.calls if call.function in ACTIVATIONS and call not in after_convolutions]


def _only_consumer(call: Call, functions: frozenset[str]) -> Call | None:
    if len(call.consumers) != 1:
        return None
    consumer = call.consumers[0]
    return consumer if consumer.function in functions and consumer.clippable else None


def _follow(convolution: Call, residual: str) -> list[Call]:
    value = _only_consumer(convolution, NORMALIZATIONS) or convolution
    activation = _only_consumer(value, ACTIVATIONS)
    if activation is not None:
        return [activation]
    total = _residual_sum(value) if residual != "branch" else None
    if total is None:
        return [value]
    total = _only_consumer(total, ACTIVATIONS) or total
    return [total] if residual == "post_add" else [value, total]


def _residual_sum(value: Call) -> Call | None:
    """The sum of computed values of one shape that `value` goes into, and nothing else uses it."""
    total = None
    while (step := _only_consumer(value, ADDITIONS)) is not None and len({i.shape for i in step.inputs}) == 1:
        if len(step.inputs) < 2:
            break
        total = value = step
    return total


def _block_outputs(model: nn.Module, flow: Flow) -> list[Call]:
    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    modules = [(n, m) for n, m in model.named_modules() if n and next(m.children(), None) is not None]
    classes = Counter(type(m) for _, m in modules if type(m) not in containers)
    repeated = [n for n, m in modules if classes[type(m)] > 1]
    blocks = {n for n in repeated if not any(n.startswith(f"{outer}.") for outer in repeated)}
    if not blocks:
        raise ModelError("`sites='block'` found no module class that occurs more than once; name the modules instead.")
    return [call for (name, _), call in flow.outputs.items() if name in blocks]


def _named(flow: Flow, name: str) -> list[Call]:
    if not isinstance(name, str):
        raise InputError(f"A module is named by a string; got {name!r}; see model.named_modules().")
    path, _, number = name.partition("#")
    path = resolve_name(path, dict.fromkeys(module for module, _ in flow.outputs))
    calls = {n: call for (module, n), call in flow.outputs.items() if module == path}
    if number:
        if not number.isdigit() or int(number) not in calls:
            raise InputError(
                f"{name!r} names a call that was not made; {path!r} ran {len(calls)} time(s), counted from 0."
            )
        calls = {int(number): calls[int(number)]}
    if not all(call.clippable for call in calls.values()):
        raise InputError(
            f"The output of module {path!r} is no value to hold on to: it is the image itself, comes with others out "
            "of one call, or has no gradient that leads to the image; name another module."
        )
    return list(calls.values())


def _names(model: nn.Module, flow: Flow) -> dict[int, str]:
    leaves = {name for name, module in model.named_modules() if name and next(module.children(), None) is None}

    def stem_of(call: Call) -> str:
        """A leaf's name for its output, and a function's in a module for any other value."""
        name = call.owner[0]
        return name if name in leaves and flow.outputs.get(call.owner) is call else f"{name}:{call.function}"

    # in execution order, which numbers a leaf's outputs as its calls
    runs: dict[str, list[Call]] = {}
    for call in flow.calls:
        runs.setdefault(stem_of(call), []).append(call)
    return {
        id(call): f"{stem}#{number}" if len(calls) > 1 else stem
        for stem, calls in runs.items()
        for number, call in enumerate(calls)
    }
