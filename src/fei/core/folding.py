r"""BatchNorm worked into the convolution before it, without a change to the network.

In evaluation mode BatchNorm is affine, so that conv → BatchNorm is one convolution with other weights:

    w' = w·s,    b' = (b − μ)·s + β,    s = γ/√(σ² + ε).

The calls of a pass are exchanged as they are made: the convolution gets w' and b', and BatchNorm hands back what it is
given. What follows, a clip site behind BatchNorm among it, sees the same values up to rounding. Weights are kept in the
layout of the images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fei.core.checks import layout_of
from fei.core.dataflow import CallKey, Flow, function_name, tensors_in, uncompiled
from fei.core.sites import Site

FOLDED = frozenset({"conv2d", "batch_norm"})
_MAKE_GRADIENTS = frozenset({"conv2d", "pad", "max_pool2d"})
_DTYPES = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Folding:
    """What is exchanged in a pass.

    Attributes:
        convolutions: For each call of conv2d, its weight and bias.
        dropped: The calls of batch_norm that do nothing any more.
        owned: The calls whose value has a gradient of its own: it goes into one convolution or padding, which makes the
            gradient anew, so that nobody minds if it is changed in place.
    """

    convolutions: dict[CallKey, tuple[Tensor, Tensor | None]] = field(default_factory=dict)
    dropped: frozenset[CallKey] = frozenset()
    owned: frozenset[CallKey] = frozenset()

    def call(self, key: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call, or what stands in for it."""
        if key in self.dropped:
            return args[0]
        exchanged = self.convolutions.get(key)
        return func(*args, **kwargs) if exchanged is None else func(args[0], *exchanged, *args[3:], **kwargs)


def find_folding(model: nn.Module, flow: Flow, sites: Sequence[Site], image: Tensor) -> Folding:
    """What can be folded in a network; one pass on one image.

    A convolution that is a clip site itself keeps its value, and so does one whose value goes anywhere but into
    BatchNorm. Half precision and autocast are left alone.

    Args:
        model: The network.
        flow: Its data flow.
        sites: Where gradients are clipped.
        image: A batch of one image.
    """
    if image.dtype not in _DTYPES or torch.is_autocast_enabled(image.device.type):
        return Folding()
    held = {site.key for site in sites}
    pairs = {
        call.key: call.consumers[0].key
        for call in flow.calls
        if call.function == "conv2d"
        and call.key not in held
        and call.depends
        and len(call.consumers) == 1
        and call.consumers[0].function == "batch_norm"
    }
    reader = _Reader()
    with uncompiled(), reader:
        model(image.clone().requires_grad_().clone())  # with a gradient, as networks may compute otherwise without
    convolutions: dict[CallKey, tuple[Tensor, Tensor | None]] = {}
    dropped: set[CallKey] = set()
    for key, (weight, bias) in reader.convolutions.items():
        affine = reader.norms.get(pairs[key]) if key in pairs else None
        if affine is not None:
            scale, shift = affine
            weight = weight * scale.view(-1, 1, 1, 1)
            bias = shift if bias is None else bias * scale + shift
            dropped.add(pairs[key])
        convolutions[key] = (weight.contiguous(memory_format=layout_of(image)), bias)
    return Folding(convolutions, frozenset(dropped), _owned(model, flow))


def _owned(model: nn.Module, flow: Flow) -> frozenset[CallKey]:
    if any(module._backward_hooks or module._backward_pre_hooks for module in model.modules()):
        return frozenset()  # whoever hooked it may keep gradients
    return frozenset(
        call.key
        for call in flow.calls
        if len(call.consumers) == 1 and call.consumers[0].function in _MAKE_GRADIENTS and call.clippable
    )


class _Reader(TorchFunctionMode):
    """Keeps the weights of convolutions, and scale and shift of BatchNorms in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[str] = Counter()
        self.convolutions: dict[CallKey, tuple[Tensor, Tensor | None]] = {}
        self.norms: dict[CallKey, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = function_name(func)
        if name in FOLDED and next(tensors_in(result), None) is not None:
            key = (name, self._counts[name])
            self._counts[name] += 1
            # weights by position, as modules give them; whoever calls in another way is left alone
            if func is F.conv2d and len(args) >= 3 and args[0].ndim == 4:
                bias = args[2]
                self.convolutions[key] = (args[1].detach(), None if bias is None else bias.detach())
            elif func is F.batch_norm:
                self._keep_norm(key, *args, **kwargs)
        return result

    def _keep_norm(
        self,
        key: CallKey,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> None:
        if training or running_mean is None or running_var is None or running_mean.dtype != input.dtype:
            return
        scale = (running_var.detach() + eps).rsqrt()
        scale = scale if weight is None else scale * weight.detach()
        shift = -running_mean.detach() * scale
        self.norms[key] = (scale, shift if bias is None else shift + bias.detach())
