"""What a network computes, call by call: the data flow of one forward pass.

A `TorchFunctionMode` sees every torch function a Python forward makes, whether a module makes it or not, so in-place
and functional activations, a module used three times and ``out += identity`` look alike: each is one call that consumes
values and produces one. Modules are only consulted for names.
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d", "convolution", "_convolution"}) | {
    f"conv_transpose{n}d" for n in (1, 2, 3)
}
NORMALIZATIONS = frozenset({"batch_norm", "instance_norm", "group_norm"})
ADDITIONS = frozenset({"add", "add_"})
POINTWISE = (
    "relu relu6 hardtanh leaky_relu prelu rrelu elu selu celu silu gelu mish hardswish hardsigmoid softplus "
    "log_sigmoid softsign tanhshrink softshrink hardshrink threshold _threshold sigmoid tanh clamp clamp_min clip"
)
ACTIVATIONS = frozenset(name + suffix for name in POINTWISE.split() for suffix in ("", "_"))

# (function name, how many calls of that name came before): the same in every pass of a deterministic network.
CallKey = tuple[str, int]

# Told of a call that is about to be made: its key, the function, its arguments and its keyword arguments.
Watch = Callable[[CallKey, Callable[..., Any], tuple[Any, ...], dict[str, Any]], None]


def function_name(func: Callable[..., Any]) -> str:
    """The bare name of a torch function: "relu" for F.relu, torch.relu, Tensor.relu and aten.relu.default."""
    return getattr(func, "__name__", type(func).__name__).split(".")[0]


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in a value, through lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


class Value(NamedTuple):
    """A tensor that went into a call: the call that made it (``None`` for a weight) and its shape."""

    call: Call | None
    shape: torch.Size


@dataclass(eq=False)
class Call:
    """One torch function call and the value it produced.

    Attributes:
        key: Function name and call number.
        owner: The innermost module that was running, and how many times it had been entered before.
        inputs: The calls whose values this one consumed.
        consumers: The calls that consumed this one's value.
        shape: Shape of the value; ``None`` where a call returns several, or none and fills one of its arguments.
        depends: Whether the value depends on the image; what is computed from weights alone does not.
        differentiable: Whether it does and a gradient reaches it, so that it can be clipped there.
        args: What it was given by position, with a `Value` in place of each tensor.
        kwargs: What it was given by keyword, likewise.
    """

    key: CallKey
    owner: tuple[str, int]
    inputs: list[Call]
    shape: torch.Size | None
    depends: bool
    differentiable: bool
    consumers: list[Call] = field(default_factory=list)
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def function(self) -> str:
        """The name of the torch function."""
        return self.key[0]

    @property
    def clippable(self) -> bool:
        """Whether the value is one tensor with a gradient that leads to the image."""
        return self.differentiable and self.shape is not None


@dataclass
class Flow:
    """The calls of one forward pass in execution order, and where each module's output came from.

    Attributes:
        calls: Every call that returned a tensor.
        outputs: For each (module name, call number), the call that produced the module's output.
        blind: Names of modules in which values turned up that no visible call made (scripted or foreign code).
        rows: How many images the pass was made with.
    """

    calls: list[Call]
    outputs: dict[tuple[str, int], Call]
    blind: list[str]
    rows: int


class WatchingMode(TorchFunctionMode):
    """A mode that can be interrupted anywhere.

    Torch takes a mode off its stack while it handles a call, and an interrupt in the wrong moment leaves it off. To
    find it gone is no error then: what is on its way is the interrupt.
    """

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        try:
            super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        except RuntimeError:
            if error is None:
                raise


# The code of nn.MultiheadAttention in torch, without the question that makes it one opaque call under a mode: a mode
# then sees the projections and the attention inside.
_multi_head_attention = FunctionType(
    F.multi_head_attention_forward.__code__,
    vars(F) | {"has_torch_function": lambda _: False},
    argdefs=F.multi_head_attention_forward.__defaults__,
)


class CountingMode(WatchingMode, ABC):
    """A mode that knows each call by its key. Calls that return no tensor are not counted.

    `F.multi_head_attention_forward` is no call of its own: what it calls is counted in its place.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[str] = Counter()

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is F.multi_head_attention_forward:
            with self:  # torch took it off its stack for this call
                return _multi_head_attention(*args, **(kwargs or {}))
        name = function_name(func)
        result = self.make((name, self._counts[name]), func, args, kwargs or {})
        self._counts[name] += next(tensors_in(result), None) is not None
        return result

    @abstractmethod
    def make(self, key: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call, or do something else in its place."""


class _Tracer(CountingMode):
    """Records calls and follows values by identity; tensors are kept alive so that no identity is used twice."""

    def __init__(self, watch: Watch | None) -> None:
        super().__init__()
        self._watch = watch
        self.calls: list[Call] = []
        self.producer: dict[int, Call] = {}
        self.blind: list[str] = []
        self.stack: list[tuple[str, int]] = []
        self.image_node: Any = None
        self._alive: list[Tensor] = []
        self._with_gradient: set[int] = set()

    def make(self, key: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inputs = list(tensors_in((args, kwargs)))
        versions = [t._version for t in inputs]
        given = self._described(args), self._described(kwargs)
        if self._watch is not None:
            self._watch(key, func, args, kwargs)
        result = func(*args, **kwargs)
        outputs = list(tensors_in(result))
        changed = {id(t): t for t, before in zip(inputs, versions, strict=True) if t._version != before}
        fresh = [t for t in outputs if id(t) in changed or not self._is_given(t, inputs)]
        if fresh:
            self._record(key, inputs, fresh, fresh[0].shape if len(fresh) == 1 else None, *given)
        elif changed and not outputs:  # an assignment to a slice
            self._record(key, inputs, list(changed.values()), None, *given)
        return result

    def _described(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return Value(self.producer.get(id(value)), value.shape)
        if isinstance(value, (list, tuple)):
            return tuple(map(self._described, value))
        if isinstance(value, dict):
            return {name: self._described(item) for name, item in value.items()}
        return value

    def _is_given(self, output: Tensor, inputs: list[Tensor]) -> bool:
        """Whether a call handed back its argument, or a view that shows all of it: then nothing was computed.

        contiguous() and eval-mode dropout do the one, module backward hooks the other.
        """
        for given in inputs:
            if output is given:
                return True
            source = self.producer.get(id(given))
            if source is not None and _is_alias(output, given):
                self.own(output, source)
                return True
        return False

    def _record(
        self,
        key: CallKey,
        inputs: list[Tensor],
        outputs: list[Tensor],
        shape: torch.Size | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        sources: list[Call] = []
        depends = False
        for tensor in inputs:
            source = self.producer.get(id(tensor))
            if source is None:
                depends |= self.is_unseen(tensor)
                continue
            # a value that had no gradient when it was made, and has one now, was filled through a view
            depends |= source.depends or (tensor.grad_fn is not None and id(tensor) not in self._with_gradient)
            if source not in sources:
                sources.append(source)
        owner = self.stack[-1] if self.stack else ("", 0)
        differentiable = depends and all(t.requires_grad for t in outputs)
        call = Call(key, owner, sources, shape, depends, differentiable, args=args, kwargs=kwargs)
        for source in sources:
            source.consumers.append(call)
        for tensor in outputs:
            self.own(tensor, call)
        self.calls.append(call)

    def own(self, tensor: Tensor, call: Call) -> None:
        self.producer[id(tensor)] = call
        self._alive.append(tensor)
        if tensor.requires_grad:
            self._with_gradient.add(id(tensor))

    def is_unseen(self, tensor: Tensor) -> bool:
        """Whether a value comes from the image by calls that were not seen; if so, note where it turned up.

        Other values without a producer are weights, or were computed from them before this pass and kept.
        """
        if id(tensor) in self.producer or not self._leads_to_image(tensor):
            return False
        name = self.stack[-1][0] if self.stack else ""
        if name not in self.blind:
            self.blind.append(name)
        return True

    def _leads_to_image(self, tensor: Tensor) -> bool:
        nodes: list[Any] = [tensor.grad_fn]
        seen: set[Any] = {None}
        while nodes:
            node = nodes.pop()
            if node is self.image_node:
                return True
            if node not in seen:
                seen.add(node)
                nodes += [parent for parent, _ in node.next_functions]
        return False


def _is_alias(output: Tensor, given: Tensor) -> bool:
    """Whether one tensor is a view of another that shows the same values in the same places, with their gradient."""
    return (
        output._is_view()
        and output._base is (given if given._base is None else given._base)
        and output.shape == given.shape
        and output.stride() == given.stride()
        and output.storage_offset() == given.storage_offset()
        and output.dtype == given.dtype
        and output.requires_grad == given.requires_grad
    )


def uncompiled() -> AbstractContextManager[object]:
    """Run compiled modules as they were before ``torch.compile``: compiled code hides its calls."""
    dynamo = sys.modules.get("torch._dynamo")  # before it is imported nothing is compiled
    set_stance = getattr(dynamo, "set_stance", None)
    return nullcontext() if set_stance is None else set_stance("force_eager")


@contextmanager
def _module_names(model: nn.Module, tracer: _Tracer, outputs: dict[tuple[str, int], Call]) -> Iterator[None]:
    """Keep the tracer told which module is running, through hooks that are gone when the block ends."""
    thread = threading.get_ident()
    entered: Counter[str] = Counter()

    def enter(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any) -> None:
            if threading.get_ident() == thread:
                tracer.stack.append((name, entered[name]))
                entered[name] += 1

        return hook

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        if threading.get_ident() == thread:
            here = tracer.stack.pop()
            for tensor in tensors_in(output):
                call = tracer.producer.get(id(tensor))
                if call is not None:
                    outputs[here] = call
                break

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):  # takes no hooks, and hides its calls anyway
                continue
            for handle in (
                module.register_forward_pre_hook(enter(name), prepend=True),
                module.register_forward_hook(leave),
            ):
                hooks.callback(handle.remove)
        yield


def trace(model: nn.Module, inputs: Tensor, watch: Watch | None = None) -> tuple[Flow, Any]:
    """Run `model` once on `inputs` and return its data flow and its output, with its graph.

    Args:
        model: The network.
        inputs: Images (N, C, H, W). If they are a leaf that wants a gradient, the output's graph leads to it.
        watch: Called before each call.

    Examples:
        >>> from fei.core.dataflow import trace
        >>> flow, output = trace(model, images[:1])
        >>> torch.equal(output, model(images[:1]))
        True
    """
    tracer = _Tracer(watch)
    outputs: dict[tuple[str, int], Call] = {}
    with torch.enable_grad(), uncompiled(), _module_names(model, tracer, outputs):
        wanted = inputs.is_leaf and inputs.requires_grad
        image = (inputs if wanted else inputs.detach().clone().requires_grad_()).clone()
        # the image has a producer too, so that only values from unseen code lack one; it is no place to clip
        tracer.image_node = image.grad_fn
        tracer.own(image, Call(("image", 0), ("", 0), [], image.shape, depends=True, differentiable=False))
        with tracer:
            result = model(image)
        for tensor in tensors_in(getattr(result, "logits", result)):
            tracer.is_unseen(tensor)
    return Flow(tracer.calls, outputs, tracer.blind, len(inputs)), result
