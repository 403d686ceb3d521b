r"""The attention of a network: where it is computed, and its patterns as values that can be read and clipped.

Attention is A·V with A = softmax(Q·Kᵀ·scale + mask), a row of A for each query and a column for each key. In the data
flow it is a softmax over the last axis whose value goes into a product that sums over this axis, with another value
that depends on the image; or one call of `F.scaled_dot_product_attention`, which is exchanged for the explicit
arithmetic of `attend` in passes that look inside (`nn.MultiheadAttention` shows one or the other, see
`fei.core.dataflow.CountingMode`). A softmax that feeds no such product is none: gates, split attention, a classifier's.

To read the patterns of a network:

    sites = find_sites(model, flow, "attention")
    visit_sites(model, sites, images, visit)  # visit(i, A): A of the i-th attention, (rows, heads, queries, keys)

A is part of the graph: `torch.autograd.grad(score, A)` is its gradient, and a hook on `A.grad_fn`, the softmax, gets
that at the logits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fei.core.dataflow import CONVOLUTIONS, Call, Flow, Value

FUSED = "scaled_dot_product_attention"
_SOFTMAX = frozenset({"softmax", "special_softmax", "_softmax"})
_PRODUCTS = frozenset({"matmul", "bmm", "baddbmm", "__matmul__", "__rmatmul__"})
_TRANSPOSING = frozenset({"transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis", "__get__"})
# What a pattern may go through on its way to the product; heads are mixed by linear layers or 1 × 1 convolutions.
_PASSING = _TRANSPOSING | CONVOLUTIONS | {"linear", "batch_norm", "dropout", "where", "masked_fill", "nan_to_num"}
_PASSING |= {"to", "type", "type_as", "float", "double", "half", "bfloat16", "contiguous", "clone"}
_PASSING |= {"view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand"}
_PASSING |= {"mul", "mul_", "div", "div_", "add", "add_", "sub", "__rsub__"}
# Attention in one call that shows nothing of what is inside.
_OPAQUE = {"_native_multi_head_attention", "_transformer_encoder_layer_fwd", "flex_attention", "flash_attn_func"}
_OPAQUE |= {"memory_efficient_attention"} | {
    f"_scaled_dot_product_{kernel}"
    for kernel in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "attention_math")
}
_NAMED = re.compile(r"atten|attn", re.IGNORECASE)
_FAINT = math.exp(-50)  # of a row's largest entry: what is below was masked


class Attention(NamedTuple):
    """The attention layers of a network.

    Attributes:
        reached: The calls that make the patterns of attention between tokens, in execution order.
        over_channels: How many layers weigh channels and not tokens (cross-covariance attention): they have no pattern
            over the image.
        hidden: How many layers cannot be reached: scripted or fused code, or no gradient.
    """

    reached: list[Call]
    over_channels: int
    hidden: int

    @property
    def between_tokens(self) -> bool:
        """Whether there is attention between tokens, reached or not."""
        return bool(self.reached or self.hidden)

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self.reached) + self.over_channels + self.hidden

    @property
    def counts(self) -> dict[str, int]:
        """How many there are of each kind."""
        return {"reached": len(self.reached), "over_channels": self.over_channels, "hidden": self.hidden}


def find_attention(model: nn.Module, flow: Flow) -> Attention:
    """The attention layers of a network.

    Args:
        model: The network; asked for scripted modules alone, which are counted by their names.
        flow: Its data flow.
    """
    reached, over_channels, hidden = [], 0, _scripted(model)
    lengths: frozenset[int] | None = None
    for call in flow.calls:
        hidden += call.function in _OPAQUE and call.depends
        product = _product_of(call)
        if product is None:
            continue
        keys, width = product
        lengths = _token_counts(flow) if lengths is None else lengths
        shape = pattern_shape(call)
        if shape[-2] == keys not in lengths and width in lengths:
            over_channels += 1
        elif not call.differentiable:
            hidden += 1
        else:
            reached.append(call)
    return Attention(reached, over_channels, hidden)


def pattern_shape(call: Call) -> torch.Size:
    """The shape of A, from the call that makes it."""
    if call.function != FUSED:
        return call.shape or torch.Size()
    query, key = _values(call)[:2]
    return torch.Size((*query.shape[:-1], key.shape[-2]))


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    """`F.scaled_dot_product_attention` in explicit arithmetic: the result A·V, and A.

    As the fused kernels do, A is computed in single precision at least, and a row that may attend to nothing gives 0.
    """
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    wide = torch.promote_types(query.dtype, torch.float32)
    logits = query.to(wide) @ key.to(wide).mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        ahead = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).triu(1)
        logits = logits.masked_fill(ahead, -torch.inf)
    if attn_mask is not None:
        masked = attn_mask.dtype == torch.bool
        logits = logits.masked_fill(~attn_mask, -torch.inf) if masked else logits + attn_mask
    lost = (logits == -torch.inf).all(-1, keepdim=True)
    pattern = logits.masked_fill(lost, 0).softmax(-1)
    mixing = F.dropout(pattern.masked_fill(lost, 0).to(value.dtype), dropout_p)
    return mixing @ value, pattern


def even_share(pattern: Tensor) -> Tensor:
    """1/N for each row of A: N counts the keys that it may attend to.

    Masks are seen by what they do: an entry that is below e⁻⁵⁰ of the row's largest was masked, with −∞ or with a large
    negative number (Swin's −100).
    """
    attended = pattern > pattern.amax(-1, keepdim=True) * _FAINT
    return attended.sum(-1, keepdim=True).clamp(min=1).to(pattern.dtype).reciprocal()


def _product_of(call: Call) -> tuple[int, int] | None:
    """Of a call that makes the pattern of an attention: the number of keys, and the last axis of what is mixed."""
    if not call.depends:
        return None
    if call.function == FUSED:
        _, key, value = _values(call)[:3]
        return key.shape[-2], value.shape[-1]
    if call.function not in _SOFTMAX or call.shape is None or len(call.shape) < 3:
        return None
    axis = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else None)
    if axis not in (-1, len(call.shape) - 1):
        return None
    keys, size = call.shape[-1], call.shape.numel()
    waiting, seen = [(call, False)], {id(call)}
    while waiting:
        pattern, transposed = waiting.pop()
        for consumer in pattern.consumers:
            other = _mixed(consumer, pattern, keys, transposed)
            if other is not None:
                return keys, other
            passes = consumer.function in _PASSING and consumer.shape is not None and consumer.shape.numel() == size
            if passes and id(consumer) not in seen:
                seen.add(id(consumer))
                waiting.append((consumer, transposed or consumer.function in _TRANSPOSING))
    return None


def _mixed(product: Call, pattern: Call, keys: int, transposed: bool) -> int | None:
    """The last axis of the value that a product mixes by a pattern, or ``None`` if it is no such product."""
    operands = _values(product)
    if product.function == "einsum":
        return _mixed_by_name(product, operands, pattern)
    if product.function not in _PRODUCTS or len(operands) < 2:
        return None
    left, right = operands[-2:]
    if left.call is pattern and left.shape[-1] == keys and _depends(right):
        return right.shape[-1]
    if right.call is pattern and transposed and right.shape[-2] == keys and _depends(left):
        return left.shape[-2]
    return None


def _mixed_by_name(product: Call, operands: list[Value], pattern: Call) -> int | None:
    equation = product.args[0] if product.args else ""
    if not isinstance(equation, str) or len(operands) != 2:
        return None
    inputs, _, output = equation.replace(" ", "").partition("->")
    names = inputs.split(",")
    for mine, other in ((0, 1), (1, 0)):
        summed = names[mine][-1:]
        if operands[mine].call is pattern and summed in names[other] and summed not in output:
            return operands[other].shape[-1] if _depends(operands[other]) else None
    return None


def _depends(value: Value) -> bool:
    return value.call is not None and value.call.depends


def _values(call: Call) -> list[Value]:
    """The tensors that went into a call, in order."""

    def within(item: object) -> Iterator[Value]:
        if isinstance(item, Value):
            yield item
        elif isinstance(item, tuple):
            for part in item:
                yield from within(part)

    return [*within(call.args), *within(tuple(call.kwargs.values()))]


def _token_counts(flow: Flow) -> frozenset[int]:
    """How many tokens there may be: the places of maps, and these with others joined to them."""
    maps = [(call.function in CONVOLUTIONS, call.shape) for call in flow.calls if call.shape and len(call.shape) == 4]
    places = {math.prod(shape[2:]) for convolved, shape in maps if convolved}
    places |= {math.prod(shape[1:3]) for _, shape in maps if shape[1] == shape[2]}
    joined = {
        c.shape[1]
        for c in flow.calls
        if c.function == "cat" and c.shape and len(c.shape) == 3
        if any(len(part.shape) == 3 and part.shape[1] in places for part in _values(c))
    }
    return frozenset(places | joined)


def _scripted(model: nn.Module) -> int:
    """How many scripted modules are attention by their name, the outermost ones."""
    named = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.jit.ScriptModule) and _NAMED.search(getattr(module, "original_name", ""))
    ]
    return sum(not any(name.startswith(f"{outer}.") for outer in named if outer != name) for name in named)
