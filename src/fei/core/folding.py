r"""Convolutions computed in a cheaper way that gives the same values, without a change to the network.

In evaluation mode BatchNorm is affine, so that conv → BatchNorm is one convolution with other weights:

    w' = w·s,    b' = (b − μ)·s + β,    s = γ/√(σ² + ε).

The calls of a pass are exchanged as they are made: the convolution gets w' and b', and BatchNorm hands back what it is
given. What follows, a clip site behind BatchNorm among it, sees the same values up to rounding. Weights are kept in the
layout of the images. Channels last, a convolution of single pixels is one product of matrices, images × pixels by
channels; torch's own way of computing it copies both sides into another order.
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
_DTYPES = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Convolution:
    """What a convolution is called with.

    Attributes:
        weight: (outputs, inputs, h, w).
        bias: (outputs,), or ``None``.
        pointwise: Whether it is computed as a product of matrices.
    """

    weight: Tensor
    bias: Tensor | None
    pointwise: bool

    def __call__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call with these weights in place of its own."""
        if self.pointwise:
            return _Pointwise.apply(args[0], self.weight.flatten(1), self.bias)
        return func(args[0], self.weight, self.bias, *args[3:], **kwargs)


@dataclass(frozen=True)
class Folding:
    """What is exchanged in a pass.

    Attributes:
        convolutions: For each call of conv2d, what is computed instead.
        dropped: The calls of batch_norm that do nothing any more.
    """

    convolutions: dict[CallKey, Convolution] = field(default_factory=dict)
    dropped: frozenset[CallKey] = frozenset()

    def call(self, key: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call, or what stands in for it."""
        if key in self.dropped:
            return args[0]
        convolution = self.convolutions.get(key)
        return func(*args, **kwargs) if convolution is None else convolution(func, args, kwargs)


class _Pointwise(torch.autograd.Function):
    """A convolution of single pixels, channels last; there is a gradient for the images alone."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Images (n, inputs, h, w) by weight (outputs, inputs)."""
        ctx.weight = weight
        return _product(images, weight.t(), bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """The gradient for the images."""
        return _product(grads[0], ctx.weight, None), None, None


def _product(images: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    n, channels, height, width = images.shape
    result = torch.empty((n, matrix.shape[1], height, width), dtype=images.dtype, memory_format=torch.channels_last)
    rows = result.permute(0, 2, 3, 1).view(-1, matrix.shape[1])
    pixels = images.permute(0, 2, 3, 1).reshape(-1, channels)
    if bias is None:
        torch.mm(pixels, matrix, out=rows)
    else:
        torch.addmm(bias, pixels, matrix, out=rows)
    return result


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
    convolutions: dict[CallKey, Convolution] = {}
    dropped: set[CallKey] = set()
    layout = layout_of(image)
    last = image.device.type == "cpu" and layout is torch.channels_last
    for key, (weight, bias, pointwise) in reader.convolutions.items():
        affine = reader.norms.get(pairs[key]) if key in pairs else None
        if affine is not None:
            scale, shift = affine
            weight = weight * scale.view(-1, 1, 1, 1)
            bias = shift if bias is None else bias * scale + shift
            dropped.add(pairs[key])
        convolutions[key] = Convolution(weight.contiguous(memory_format=layout), bias, pointwise and last)
    return Folding(convolutions, frozenset(dropped))


def _is_pointwise(weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> bool:
    def each(value: Any, wanted: int) -> bool:
        return all(v == wanted for v in (value if isinstance(value, (tuple, list)) else (value,)))

    # padding may be a word as well, "same" or "valid", which changes nothing here
    return (
        weight.shape[2:] == (1, 1)
        and groups == 1
        and each(stride, 1)
        and (isinstance(padding, str) or each(padding, 0))
    )


class _Reader(TorchFunctionMode):
    """Keeps the weights of convolutions, and scale and shift of BatchNorms in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[str] = Counter()
        self.convolutions: dict[CallKey, tuple[Tensor, Tensor | None, bool]] = {}
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
                weight, bias = args[1].detach(), None if args[2] is None else args[2].detach()
                self.convolutions[key] = (weight, bias, _is_pointwise(weight, *args[3:], **kwargs))
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
