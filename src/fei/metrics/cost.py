"""What a call costs: rows through the network forwards and backwards, time, memory."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fei.metrics.declaration import Metric

Result = TypeVar("Result")


@dataclass(frozen=True)
class Cost:
    """What a call cost.

    Attributes:
        forwards: Rows (images) that entered the network.
        backwards: Rows whose output a gradient came back to.
        seconds: Wall-clock time, with work queued on a GPU finished before and after.
        peak_bytes: On CUDA the most memory that tensors held at a time, beyond what they held before the call. On the
            CPU the growth of the process's largest resident memory so far: 0 where the call needs no more than
            something earlier in the process did, so compare methods in fresh processes. ``None`` where the system
            does not tell (Windows).

    Examples:
        >>> _, cost = fei.metrics.measure_cost(model, lambda: model(images))
        >>> cost.forwards, cost.backwards, cost.seconds > 0
        (2, 0, True)
    """

    forwards: int
    backwards: int
    seconds: float
    peak_bytes: int | None


def measure_cost(model: nn.Module, call: Callable[[], Result]) -> tuple[Result, Cost]:
    """Run a call and say what it cost.

    Calls of `model` itself are counted, also nested in wrappers; calls of its parts alone (a head on kept activations)
    and of copies of it are not. The model's hooks are as before afterwards, failures included.

    Args:
        model: The network whose rows are counted.
        call: What to run, for example ``lambda: method(model, images)``.

    Returns:
        What the call returned, and its cost.

    Examples:
        >>> found, cost = fei.metrics.measure_cost(model, lambda: fei.methods.create("saliency")(model, images))
        >>> cost.forwards, cost.backwards
        (2, 2)
    """
    tensor = next(model.parameters(), next(model.buffers(), None))
    device = torch.device("cpu") if tensor is None else tensor.device
    with _counted(model) as counts:
        before = _memory_before(device)
        start = time.perf_counter()
        result = call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - start
        after = _peak_memory(device)
    peak = None if before is None or after is None else max(0, after - before)
    return result, Cost(counts["forwards"], counts["backwards"], seconds, peak)


@contextmanager
def _counted(model: nn.Module) -> Iterator[dict[str, int]]:
    counts, thread = {"forwards": 0, "backwards": 0}, threading.get_ident()  # others may use the network too
    on_outputs: list[Any] = []

    def entered(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.get_ident() == thread:
            counts["forwards"] += _rows((args, kwargs))

    def left(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        rows = _rows((args, kwargs))
        # one tensor stands for all: a gradient is counted once, also where a network has auxiliary outputs
        tensor = next((t for t in _tensors(output) if t.requires_grad), None)
        if tensor is not None and threading.get_ident() == thread:

            def came_back(gradient: Tensor) -> None:
                counts["backwards"] += rows

            on_outputs.append(tensor.register_hook(came_back))

    handles = [
        model.register_forward_pre_hook(entered, with_kwargs=True),
        model.register_forward_hook(left, with_kwargs=True),
    ]
    try:
        yield counts
    finally:
        # the graph may outlive the call, with the caller
        for handle in [*handles, *on_outputs]:
            handle.remove()


def _rows(arguments: Any) -> int:
    first = next(_tensors(arguments), None)
    return 0 if first is None else len(first) if first.ndim else 1


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _tensors(item)
    elif isinstance(getattr(value, "logits", None), Tensor):
        yield value.logits


def _memory_before(device: torch.device) -> int | None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    return _peak_memory(device)


def _peak_memory(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, the others kilobytes


METRICS = (
    Metric("seconds", "seconds", False, "cost", format=".1f"),
    Metric("forwards", "forwards", False, "cost", format="d"),
    Metric("backwards", "backwards", False, "cost", format="d"),
    Metric("peak_bytes", "peak bytes", False, "cost", format="d", detail=True),
)
