r"""Calls computed in a cheaper way that gives the same values, without a change to the network.

In evaluation mode BatchNorm is affine, so that conv → BatchNorm is one convolution with other weights:

    w' = w·s,    b' = (b − μ)·s + β,    s = γ/√(σ² + ε).

The calls of a pass are exchanged as they are made: the convolution gets w' and b', and BatchNorm hands back what it is
given. What follows, a clip site behind BatchNorm among it, sees the same values up to rounding. Weights are kept in the
layout of the images.

On a CPU, channels last, three more calls are made in another way. A convolution of single pixels is one product of
matrices, images × pixels by channels, where torch's own way copies both sides into another order. A ReLU behind a
convolution works in place, as nobody else reads the value. And zeros around an image are written once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fei.core.checks import layout_of
from fei.core.dataflow import Call, CallKey, Flow, trace
from fei.core.sites import Site

_DTYPES = (torch.float32, torch.float64)

# What is done in place of a call, from the function, its arguments and its keyword arguments.
Exchange = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True)
class Folding:
    """The calls that are exchanged in a pass."""

    exchanged: Mapping[CallKey, Exchange] = field(default_factory=dict)

    def call(self, key: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call, or what stands in for it."""
        exchange = self.exchanged.get(key)
        return func(*args, **kwargs) if exchange is None else exchange(func, args, kwargs)


@dataclass(frozen=True)
class _Convolution:
    """A convolution with other weights; a pointwise one as a product of matrices."""

    weight: Tensor
    bias: Tensor | None
    pointwise: bool

    def __call__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.pointwise:
            return _Pointwise.apply(args[0], self.weight.flatten(1), self.bias)  # type: ignore[no-untyped-call]
        return func(args[0], self.weight, self.bias, *args[3:], **kwargs)


def _handed_back(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


@dataclass(frozen=True)
class Ramp:
    """A ReLU, with an upper bound or without, that works in place."""

    low: float
    high: float

    def __call__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a call, in the memory of what it was given."""
        return self._bound(_input(args, kwargs))

    def unseen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """The value of such a call, of which the graph knows nothing: gradients have yet to get its slope."""
        value = _input(args, kwargs)
        self._bound(value.detach())
        return value

    def slope(self, grad: Tensor, value: Tensor) -> None:
        """Multiply gradients, in place, with the slope at what came out."""
        if self._plain:
            torch.ops.aten.threshold_backward.grad_input(grad, value, self.low, grad_input=grad)
        else:
            torch.ops.aten.hardtanh_backward.grad_input(grad, value, self.low, self.high, grad_input=grad)

    def _bound(self, value: Tensor) -> Tensor:
        return torch.relu_(value) if self._plain else F.hardtanh_(value, self.low, self.high)

    @property
    def _plain(self) -> bool:
        return (self.low, self.high) == (0.0, torch.inf)


def _input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    value: Tensor = args[0] if args else kwargs["input"]
    return value


def _ramp(call: Call) -> Ramp:
    """What a call of `_RELUS` does, by its name and arguments."""
    if call.function != "hardtanh":
        return Ramp(0.0, 6.0 if call.function == "relu6" else torch.inf)
    given = dict(zip(("input", "min_val", "max_val"), call.args, strict=False)) | call.kwargs
    return Ramp(given.get("min_val", -1.0), given.get("max_val", 1.0))


_RELUS = frozenset({"relu", "relu6", "hardtanh"})


def _padded(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def with_zeros(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
        plain = len(pad) == 4 and min(pad) >= 0 and input.ndim == 4 and mode == "constant" and not value
        if not plain:
            return func(*args, **kwargs)
        return _Padded.apply(input, tuple(pad))  # type: ignore[no-untyped-call]

    return with_zeros(*args, **kwargs) if func is F.pad else func(*args, **kwargs)


class _Pointwise(torch.autograd.Function):
    """A convolution of single pixels, channels last; there is a gradient for the images alone."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Images (n, inputs, h, w) by weight (outputs, inputs)."""
        ctx.weight = weight
        return _product(images, weight.t(), bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _product(grads[0], ctx.weight, None), None, None


def _product(images: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    n, channels, height, width = images.shape
    result = _empty(images, n, matrix.shape[1], height, width)
    rows = result.permute(0, 2, 3, 1).view(-1, matrix.shape[1])
    pixels = images.permute(0, 2, 3, 1).reshape(-1, channels)
    if bias is None:
        torch.mm(pixels, matrix, out=rows)
    else:
        torch.addmm(bias, pixels, matrix, out=rows)
    return result


class _Padded(torch.autograd.Function):
    """Zeros around images, channels last."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, pad: tuple[int, int, int, int]) -> Tensor:
        """Images (n, c, h, w), and how many columns left and right and rows above and below."""
        left, right, top, bottom = pad
        n, channels, height, width = images.shape
        rows, columns = ctx.inside = slice(top, top + height), slice(left, left + width)
        result = _empty(images, n, channels, top + height + bottom, left + width + right)
        for border in (result[:, :, :top], result[:, :, rows.stop :], result[..., :left], result[..., columns.stop :]):
            border.zero_()
        result[:, :, rows, columns] = images
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0][:, :, *ctx.inside].contiguous(memory_format=torch.channels_last), None


def _empty(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def can_fold(image: Tensor) -> bool:
    """Whether calls may be exchanged at all: half precision and autocast are left alone."""
    return image.dtype in _DTYPES and not torch.is_autocast_enabled(image.device.type)


class FirstPass(NamedTuple):
    """A first pass over a network, on one image.

    Attributes:
        image: The leaf that the pass started from, (1, C, H, W).
        flow: What was computed.
        output: What came out, with its graph.
        weights: What convolutions and BatchNorms computed with.
    """

    image: Tensor
    flow: Flow
    output: Any
    weights: Weights


def first_pass(model: nn.Module, image: Tensor) -> FirstPass:
    """Run a network once on a batch of one image."""
    leaf, weights = image.detach().clone().requires_grad_(), Weights()
    flow, output = trace(model, leaf, weights.keep)
    return FirstPass(leaf, flow, output, weights)


def find_folding(model: nn.Module, seen: FirstPass, sites: Sequence[Site]) -> Folding:
    """What can be exchanged in a network.

    A convolution that is a clip site itself keeps its value, and so does one whose value goes anywhere but into
    BatchNorm.

    Args:
        model: The network.
        seen: A pass on one image.
        sites: Where gradients are clipped.
    """
    flow, image = seen.flow, seen.image
    held = {site.key for site in sites}
    pairs = {
        call.key: call.consumers[0].key
        for call in flow.calls
        if call.function == "conv2d" and call.key not in held and _only_into(call, {"batch_norm"})
    }
    layout = layout_of(image)
    last = image.device.type == "cpu" and layout is torch.channels_last
    exchanged: dict[CallKey, Exchange] = {}
    for key, (weight, bias, pointwise) in seen.weights.convolutions.items():
        affine = seen.weights.norms.get(pairs[key]) if key in pairs else None
        if affine is not None:
            scale, shift = affine
            weight = weight * scale.view(-1, 1, 1, 1)
            bias = shift if bias is None else bias * scale + shift
            exchanged[pairs[key]] = _handed_back
        exchanged[key] = _Convolution(weight.contiguous(memory_format=layout), bias, pointwise and last)
    if last:
        watched = is_watched(model)
        for call in flow.calls:
            if call.function == "pad":
                exchanged[call.key] = _padded
            elif call.key in exchanged and call.key not in held and _only_into(call, _RELUS) and not watched:
                exchanged[call.consumers[0].key] = _ramp(call.consumers[0])
    return Folding(exchanged)


def is_watched(model: nn.Module) -> bool:
    """Whether somebody hooked a module, and so may keep its values or gradients: these are not to be overwritten."""
    return any(m._forward_hooks or m._backward_hooks or m._backward_pre_hooks for m in model.modules())


def _only_into(call: Call, functions: Collection[str]) -> bool:
    return call.depends and len(call.consumers) == 1 and call.consumers[0].function in functions


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


class Weights:
    """The weights of convolutions, and scale and shift of BatchNorms in evaluation mode, as a pass used them."""

    def __init__(self) -> None:
        self.convolutions: dict[CallKey, tuple[Tensor, Tensor | None, bool]] = {}
        self.norms: dict[CallKey, tuple[Tensor, Tensor]] = {}

    def keep(self, key: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep those of a call."""
        # weights by position, as modules give them; whoever calls in another way is left alone
        if func is F.conv2d and len(args) >= 3 and args[0].ndim == 4:
            weight, bias = args[1].detach(), None if args[2] is None else args[2].detach()
            self.convolutions[key] = (weight, bias, _is_pointwise(weight, *args[3:], **kwargs))
        elif func is F.batch_norm:
            self._keep_norm(key, *args, **kwargs)

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
