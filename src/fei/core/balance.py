"""Balanced gradients: a transformer made linear around what it computes, and what each token then says for a class.

Plain gradients of a transformer vanish or cancel where a softmax, a gate or a LayerNorm's scale follows the values they
were made from. With attention patterns softmax(QKᵀ), the gate f(z)/z of an activation (Φ(z) of GELU) and the scale of
LayerNorm held fixed, x·∂s/∂x of all tokens before any block and b·∂s/∂y of all biases y = … + b behind it add up to the
logit (Mehri, Baghshah & Pilehvar 2025, "LibraGrad"; written from the paper). An activation that multiplies another
value, as in SwiGLU, is held fixed as a whole. Biases are those of linear layers and of LayerNorm on tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from fei.core.attention import FUSED
from fei.core.dataflow import ACTIVATIONS, Call, CallKey, Flow, function_name
from fei.core.folding import Exchange, Folding
from fei.core.pathway import visit_sites
from fei.core.stream import Stream

_PRODUCTS = frozenset({"mul", "mul_"})


def balanced_relevance(
    model: nn.Module, flow: Flow, stream: Stream, images: Tensor, score: Callable[[Any], Tensor]
) -> Tensor:
    """What each token says for a class, (N, T): Σ over blocks of Σ_c x·∂s/∂x at what goes in, plus Σ over biases.

    One pass forwards and one backwards.

    Args:
        model: The network.
        flow: Its data flow.
        stream: Its tokens.
        images: What it looks at, (N, C, H, W).
        score: s of each row of its output.
    """
    parts: list[Tensor] = []
    first: list[Tensor] = []

    def enter(number: int, value: Tensor) -> None:
        first[:] = first or [value]
        tokens = value.detach().clone()
        value.register_hook(lambda gradient: parts.append((tokens * gradient).sum(-1)))

    def bias_at(value: Tensor, bias: Tensor | None) -> None:
        if bias is not None and value.ndim == 3 and value.shape[1] == stream.grid.tokens and value.requires_grad:
            value.register_hook(lambda gradient: parts.append((bias.detach() * gradient).sum(-1)))

    folding = Folding(_balanced(flow, frozenset(site.key for site in stream.patterns), bias_at))
    with torch.enable_grad():
        output = visit_sites(model, stream.inputs, images.detach().requires_grad_(), enter, folding)
        torch.autograd.grad(score(output).sum(), first)  # no further than the first block
    return reduce(torch.add, parts)  # one after the other: the order of a sum may depend on the batch


def _balanced(
    flow: Flow, held: frozenset[CallKey], bias_at: Callable[[Tensor, Tensor | None], None]
) -> dict[CallKey, Exchange]:
    """What is exchanged in a pass so that its gradient is balanced, and biases are told of.

    Args:
        flow: The network's data flow.
        held: The calls that compute attention: fused ones, or the softmax.
        bias_at: Is told of values that a bias was added to.
    """

    def linear(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = func(*args, **kwargs)
        bias_at(value, args[2] if len(args) > 2 else kwargs.get("bias"))
        return value

    def norm(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        restated = _layer_norm if function_name(func) == "layer_norm" else _rms_norm
        value, bias = restated(func(*args, **kwargs), *args, **kwargs)
        bias_at(value, bias)
        return value

    exchanges: dict[str, Exchange] = {"linear": linear, "layer_norm": norm, "rms_norm": norm}
    found: dict[CallKey, Exchange] = {}
    for call in flow.calls:
        if not call.differentiable:
            continue
        if call.key in held:
            found[call.key] = _attention
        elif call.function in ACTIVATIONS:
            found[call.key] = _fixed if _is_gate(call) else _with_fixed_gate
        elif call.function in exchanges:
            found[call.key] = exchanges[call.function]
    return found


def _is_gate(call: Call) -> bool:
    """Whether a value is multiplied by another one that depends on the image."""
    return any(
        user.function in _PRODUCTS and sum(source.depends for source in user.inputs) > 1 for user in call.consumers
    )


def _fixed(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs).detach()


def _attention(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if function_name(func) != FUSED:
        return func(*args, **kwargs).detach()
    named = dict(zip(("query", "key"), args[:2], strict=False)) | kwargs
    query, key = named.pop("query").detach(), named.pop("key").detach()
    return func(query, key, *args[2:], **named)


def _with_fixed_gate(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """f(z) as (f(z) − f(0))/z·z + f(0) with the first factor held fixed; where z = 0 it is the derivative."""
    z: Tensor = args[0]
    inner = z.detach().clone().requires_grad_()
    y = func(inner.clone(), *args[1:], **kwargs)  # on a copy: it may work in place
    (slope,) = torch.autograd.grad(y.sum(), inner)
    with torch.no_grad():
        rise = y - func(torch.zeros_like(z), *args[1:], **kwargs)
        gate = torch.where(z == 0, slope, rise / torch.where(z == 0, 1.0, z))
    return y.detach() + gate * (z - z.detach())


def _layer_norm(
    value: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor | None]:
    """LayerNorm with its scale held fixed, and its bias; `value` is what it gives."""
    axes = tuple(range(-len(normalized_shape), 0))
    return _scaled(value, input - input.mean(axes, keepdim=True), axes, weight, eps), bias


def _rms_norm(
    value: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, Tensor | None]:
    """RMSNorm with its scale held fixed; it has no bias."""
    axes = tuple(range(-len(normalized_shape), 0))
    return _scaled(value, input, axes, weight, torch.finfo(input.dtype).eps if eps is None else eps), None


def _scaled(value: Tensor, centred: Tensor, axes: tuple[int, ...], weight: Tensor | None, eps: float) -> Tensor:
    fixed = centred.detach()
    scale = (fixed.square().mean(axes, keepdim=True) + eps).rsqrt()
    return value.detach() + (centred - fixed) * (scale if weight is None else scale * weight.detach())
