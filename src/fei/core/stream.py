"""The residual stream of a transformer: one sequence of tokens that every block reads and adds to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from fei.core.attention import Attention, find_attention, pattern_shape
from fei.core.checks import check_mode, explained_failure
from fei.core.dataflow import ADDITIONS, Call, Flow, trace
from fei.core.sites import Site, find_sites, sites_at
from fei.core.tokens import Grid, token_grid
from fei.errors import ModelError


@dataclass(frozen=True)
class Stream:
    """The tokens of a plain vision transformer, whose blocks all attend over all of them.

    Attributes:
        grid: Which tokens are patches, and how they lie in the image.
        patterns: Where attention patterns are made, in execution order, one for each block.
        inputs: The tokens that go into the block of each pattern.
        output: Those that come out of the last one.
        blocks: The modules that return the tokens after each block, by name; empty where no module returns some of
            them.
    """

    grid: Grid
    patterns: list[Site]
    inputs: list[Site]
    output: Site
    blocks: list[str]

    def of_heads(self, pattern: Tensor, rows: int) -> Tensor:
        """A pattern, or its gradient, as (rows, heads, T, T); some code has rows and heads in one dimension."""
        return pattern.reshape(rows, -1, *pattern.shape[-2:])


def attention_in(model: nn.Module, flow: Flow) -> Attention:
    """The attention of a network that has some, all of which can be reached.

    Raises:
        ModelError: If there is none, or some cannot be reached.
    """
    attention = find_attention(model, flow)
    if attention.hidden:
        there = attention.hidden + len(attention.reached)
        raise ModelError(
            f"{attention.hidden} of the network's {there} attention layers cannot be reached (scripted, fused or "
            "without a gradient); pass the network as plain modules, or use a method that needs no attention."
        )
    if not attention.reached:
        raise ModelError("The network has no attention between tokens; use a method that needs none, such as gradcam.")
    return attention


def find_stream(model: nn.Module, flow: Flow) -> Stream:
    """The stream of a network.

    Raises:
        ModelError: If the network has none: no attention, or attention over windows or over other tokens from block to
            block.
    """
    attention = attention_in(model, flow)
    found = _tokens_around(flow, attention.reached)
    shapes = [pattern_shape(call) for call in attention.reached]
    if found is None or any(shape is None or shape[-2:] != (found[1].tokens,) * 2 for shape in shapes):
        raise ModelError(
            "The network's attention is not over one sequence of patches from its first block to its last (it has "
            "windows, pooled tokens or a grid that is not known); use a method that needs no attention, such as "
            "gradcam."
        )
    calls, grid = found
    *inputs, output = sites_at(model, flow, calls)
    return Stream(grid, find_sites(model, flow, "attention"), inputs, output, _returned_by(flow, calls[1:]))


def stream_of(model: nn.Module, image: Tensor) -> Stream | None:
    """The stream of a network on a batch of one image; ``None`` where it has none."""
    check_mode(model)
    with explained_failure(image):
        flow, _ = trace(model, image)
    try:
        return find_stream(model, flow)
    except ModelError:
        return None


def passages(flow: Flow) -> list[Call]:
    """The calls through whose value every way from the image to the output leads, in order of execution."""
    end = flow.outputs.get(("", 0))
    if end is None:
        return []
    live = _leading_to(end)
    order = {id(call): number for number, call in enumerate(flow.calls)}
    found: list[Call] = []
    # where the image, and the values so far, are used last
    furthest = max((order[id(call)] for call in flow.calls if id(call) in live and _reads_image(call)), default=-1)
    for number, call in enumerate(flow.calls):
        if id(call) not in live or not call.depends:
            continue
        if furthest <= number and call.shape is not None:
            found.append(call)
        furthest = max([furthest, *(order[id(user)] for user in call.consumers if id(user) in live)])
    return found


def _tokens_around(flow: Flow, attentions: Sequence[Call]) -> tuple[list[Call], Grid] | None:
    """The tokens that go into the block of each attention, and those that come out of the last block, with their grid.

    A block's tokens are the last value before its attention that everything passes, so that the shortcut starts there.

    Returns:
        One call for each attention and one more; ``None`` where the sequence is not one and the same all the way.
    """
    order = {id(call): number for number, call in enumerate(flow.calls)}
    on_the_way = [(order[id(call)], call) for call in passages(flow) if call.shape is not None and len(call.shape) == 3]
    found: list[Call] = []
    for attention in attentions:
        before = [call for number, call in on_the_way if number < order[id(attention)]]
        if not before or before[-1] in found:
            return None
        found.append(before[-1])
    after = [call for _, call in on_the_way if call.function in ADDITIONS and call.shape == found[-1].shape]
    if not after or after[-1] in found:
        return None
    found.append(after[-1])
    grids = [token_grid(flow, call) for call in found]
    first = grids[0]
    return None if first is None or any(grid != first for grid in grids) else (found, first)


def _returned_by(flow: Flow, calls: Sequence[Call]) -> list[str]:
    """The innermost module that returns the value of each call; none of them where one has no such module."""
    times = Counter(module for module, _ in flow.outputs)
    names: dict[int, str] = {}
    for (module, number), call in flow.outputs.items():
        if module:
            names.setdefault(id(call), f"{module}#{number}" if times[module] > 1 else module)
    return [names[id(call)] for call in calls] if all(id(call) in names for call in calls) else []


def _reads_image(call: Call) -> bool:
    return any(source.function == "image" for source in call.inputs)


def _leading_to(end: Call) -> set[int]:
    """The calls whose values a value was made from, and that call itself."""
    found, waiting = {id(end)}, [end]
    while waiting:
        for source in waiting.pop().inputs:
            if id(source) not in found:
                found.add(id(source))
                waiting.append(source)
    return found
