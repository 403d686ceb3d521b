"""The layers of a network that carry learned weights, in the order in which they run, and how one is re-initialised."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from fei.common.random_state import lent_random_state
from fei.core.checks import explained_failure
from fei.core.dataflow import WatchingMode, tensors_in
from fei.core.randomness import generator_for
from fei.core.sites import resolve_name
from fei.errors import InputError, ModelError

_NORMALIZATIONS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


@dataclass(frozen=True)
class Layer:
    """A module with weights of its own.

    Attributes:
        name: As in ``model.named_modules()``; "(root)" for the network itself, which may own a class token.
        module: The module.
        parameters: Its own parameters by name, without those that a layer named earlier shares.
    """

    name: str
    module: nn.Module
    parameters: dict[str, nn.Parameter]

    @torch.no_grad()
    def values(self) -> dict[str, Tensor]:
        """A copy of the parameters' values."""
        return {name: parameter.clone() for name, parameter in self.parameters.items()}

    @torch.no_grad()
    def assign(self, values: dict[str, Tensor]) -> None:
        """Give the parameters new values, in place: whoever shares them sees them too."""
        for name, parameter in self.parameters.items():
            parameter.copy_(values[name])

    @torch.no_grad()
    def fresh_values(self, seed: int) -> dict[str, Tensor]:
        """What the module's own initialisation draws, or else normal values of each parameter's mean and deviation.

        Args:
            seed: With the layer's name it decides the draw, so that each layer has its own, whichever others there are.
        """
        generator = generator_for(seed, self.name, "re-initialisation")
        drawn: dict[str, Tensor] = {}
        if _resets(self.module):
            # a copy, since some modules reset their children too; on the CPU, where every machine draws the same
            twin: Any = copy.deepcopy(self.module).cpu()
            with lent_random_state(generator.initial_seed()):
                twin.reset_parameters()
            drawn = dict(twin.named_parameters(recurse=False))
        return {
            # a reset may miss a parameter, and a layer that kept its weights would pass for a stage
            name: drawn[name] if name in drawn and not torch.equal(drawn[name], old.cpu()) else _like(old, generator)
            for name, old in self.parameters.items()
        }


class _Uses(WatchingMode):
    """Notes when each tensor was last an argument of a torch function, whichever module made the call."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[int, int] = {}
        self._count = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        for tensor in tensors_in((args, kwargs or {})):
            if isinstance(tensor, nn.Parameter):
                self.last[id(tensor)] = self._count
                self._count += 1
        return func(*args, **(kwargs or {}))


def weight_layers(model: nn.Module, inputs: Tensor) -> list[Layer]:
    """The layers with weights, from the logits down: in reverse order of the last use of their weights.

    A layer is a module that owns a parameter of two or more dimensions, such as a convolution or a linear layer;
    normalisations are none. One that did not run (an auxiliary head) is left out, and weights that two modules share
    belong to the one that is named first.

    Args:
        model: The network; only called.
        inputs: Images it takes; the first is enough.
    """
    with torch.no_grad(), explained_failure(inputs), _Uses() as uses:
        model(inputs[:1])
    claimed: set[int] = set()
    ranked: list[tuple[int, Layer]] = []
    for name, module in model.named_modules():
        own = {n: p for n, p in module.named_parameters(recurse=False) if id(p) not in claimed}
        ranks = [uses.last[id(p)] for p in own.values() if p.ndim >= 2 and id(p) in uses.last]
        if ranks and not isinstance(module, _NORMALIZATIONS):
            claimed.update(map(id, own.values()))
            ranked.append((max(ranks), Layer(name or "(root)", module, own)))
    if not ranked:
        raise ModelError(
            "No layer with weights was seen to run: the network has none, or its code is scripted or compiled; pass "
            "the network as it was before."
        )
    return [layer for _, layer in sorted(ranked, key=lambda pair: pair[0], reverse=True)]


def select_layers(layers: Sequence[Layer], wanted: int | Sequence[str] | None) -> list[Layer]:
    """Some of the layers, in their order: all, so many from the top, or those named."""
    if wanted is None:
        return list(layers)
    if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= 1:
        return list(layers[:wanted])
    names = [] if isinstance(wanted, (int, str)) else list(wanted)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(
            f"`layers` must be a number of layers, at least 1, a list of names, or None for all; got {wanted!r}."
        )
    known = [layer.name for layer in layers]
    chosen = {resolve_name(name, known) for name in names}
    return [layer for layer in layers if layer.name in chosen]


def _resets(module: nn.Module) -> bool:
    """Whether a module can initialise itself; not if it holds a plain tensor: the old weight norm computes one."""
    computed = any(isinstance(value, Tensor) for value in vars(module).values())
    return callable(getattr(module, "reset_parameters", None)) and not computed


def _like(parameter: Tensor, generator: torch.Generator) -> Tensor:
    values = parameter.detach().float()
    noise = torch.randn(values.shape, generator=generator).to(values.device)
    return values.mean() + values.std(correction=0) * noise
