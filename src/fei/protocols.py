"""Named, versioned protocols for insertion and deletion: a score without one cannot be compared with anything.

A protocol fixes the six choices on which libraries differ: how many pixels are replaced at each point of the curve, by
what, which score is read, of which class, how the curve becomes a number, and how equal map values are ordered. Its id
(`fei-paper/1`) travels with every score. Own protocols are made by composition::

    mine = dataclasses.replace(fei.protocols.get("fei-fine"), name="mine", score="logit", replacement="black")
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fei.common.packages import need
from fei.common.words import suggestion
from fei.core.checks import check_count, is_number
from fei.core.randomness import generator_for
from fei.core.scoring import Score, check_score
from fei.core.settings import PAPER_QUANTILES
from fei.errors import InputError
from fei.references import ReferenceSpec, another_photograph, normalised_zero

Levels = Callable[[int, int], tuple[list[int], list[int]]]
Order = Callable[[Tensor, str, int, int], Tensor]


# How many of `total` values are replaced at each point, for insertion and for deletion


@dataclass(frozen=True)
class Quantiles:
    """n = round(q·total), half to even, for both curves: deletion replaces the top n, insertion the bottom n.

    Examples:
        >>> fei.protocols.Quantiles((0.1, 0.5))(100, 10)
        ([10, 50], [10, 50])
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what is no increasing sequence in [0, 1]."""
        if not self.values or not all(is_number(q) and 0 <= q <= 1 for q in self.values):
            raise InputError(f"The quantiles of a protocol must lie in [0,1]; got {list(self.values)}.")
        if any(a >= b for a, b in itertools.pairwise(self.values)):
            raise InputError(f"The quantiles of a protocol must increase; got {list(self.values)}.")

    def __call__(self, total: int, width: int) -> tuple[list[int], list[int]]:
        """Counts for insertion and deletion."""
        counts = [round(q * total) for q in self.values]
        return counts, counts


def rows(total: int, width: int) -> tuple[list[int], list[int]]:
    """At each step as many as an image row is wide, end points included.

    Examples:
        >>> fei.protocols.rows(9, 3)
        ([0, 3, 6, 9], [0, 3, 6, 9])
    """
    counts = [*range(0, total, width), total]
    return counts, counts


@dataclass(frozen=True)
class Intervals:
    """`steps` intervals of ceil(total/steps) in order of rank: 0 to all replaced, or, inserting, all to 0 replaced.

    Examples:
        >>> fei.protocols.Intervals(4)(10, 5)
        ([0, 1, 4, 7, 10], [0, 3, 6, 9, 10])
    """

    steps: int

    def __post_init__(self) -> None:
        """Refuse what is no number of steps."""
        check_count("steps", self.steps)

    def __call__(self, total: int, width: int) -> tuple[list[int], list[int]]:
        """Counts for insertion and deletion."""
        counts = [*range(0, total, -(-total // self.steps)), total]
        return [total - n for n in reversed(counts)], counts


@dataclass(frozen=True)
class WithoutStart:
    """Another schedule without its first, unperturbed point.

    Examples:
        >>> fei.protocols.WithoutStart(fei.protocols.rows)(9, 3)
        ([3, 6, 9], [3, 6, 9])
    """

    levels: Levels

    def __repr__(self) -> str:
        name = getattr(self.levels, "__name__", repr(self.levels))  # of a function not where it is in memory
        return f"WithoutStart({name})"

    def __call__(self, total: int, width: int) -> tuple[list[int], list[int]]:
        """Counts for insertion and deletion."""
        insertion, deletion = self.levels(total, width)
        return insertion[1:], deletion[1:]


# What order pixels are taken in, the most important first


def jittered(values: Tensor, digest: str, seed: int, channels: int) -> Tensor:
    """Equal values in a random order that depends on the image and the seed alone.

    Examples:
        >>> fei.protocols.jittered(torch.tensor([1.0, 3.0, 2.0]), "digest", seed=0, channels=3).tolist()
        [1, 2, 0]
    """
    shuffled = torch.randperm(len(values), generator=generator_for(seed, digest, "ties")).to(values.device)
    return shuffled[values[shuffled].argsort(descending=True, stable=True)]


def reversed_argsort(values: Tensor, digest: str, seed: int, channels: int) -> Tensor:
    """RISE's ``flip(argsort(map))``: of equal values the last in raster order comes first.

    Examples:
        >>> fei.protocols.reversed_argsort(torch.tensor([1.0, 2.0, 2.0]), "digest", seed=0, channels=3).tolist()
        [2, 1, 0]
    """
    return values.argsort(stable=True).flip(0)


def raster(values: Tensor, digest: str, seed: int, channels: int) -> Tensor:
    """Equal values in raster order.

    Examples:
        >>> fei.protocols.raster(torch.tensor([1.0, 2.0, 2.0]), "digest", seed=0, channels=3).tolist()
        [1, 2, 0]
    """
    return values.argsort(descending=True, stable=True)


def numpy_per_value(values: Tensor, digest: str, seed: int, channels: int) -> Tensor:
    """Quantus' ``np.argsort(-a)`` over the map repeated for each channel: the channels of a pixel may part ways.

    The repetition makes every value a tied one, and NumPy's default sort orders ties by the processor's vector
    instructions: two machines may give one map two scores.

    Examples:
        >>> fei.protocols.numpy_per_value(torch.tensor([1.0, 2.0]), "digest", seed=0, channels=1).tolist()
        [1, 0]
    """
    repeated = np.tile(values.cpu().numpy(), channels)
    return torch.from_numpy(np.argsort(-repeated)).to(values.device)


def raster_per_value(values: Tensor, digest: str, seed: int, channels: int) -> Tensor:
    """Equal values in raster order, the channels of a pixel one after the other; the same on every machine.

    Examples:
        >>> fei.protocols.raster_per_value(torch.tensor([1.0, 2.0]), "digest", seed=0, channels=2).tolist()
        [1, 3, 0, 2]
    """
    return values.repeat(channels).argsort(descending=True, stable=True)


# What replaces pixels


def rise_blur(images: Tensor, model: nn.Module) -> Tensor:
    """RISE's blur: scipy's gaussian_filter (σ = 5) of an 11×11 impulse as kernel, zero padding, in normalised space.

    Examples:
        >>> fei.protocols.rise_blur(images, model).shape == images.shape
        True
    """
    need("The protocol rise", "bench", "scipy")
    from scipy.ndimage import gaussian_filter

    impulse = np.zeros((11, 11))
    impulse[5, 5] = 1
    kernel = torch.from_numpy(gaussian_filter(impulse, 5)).to(images)
    channels = images.shape[1]
    zero = normalised_zero(images, model)
    return zero + F.conv2d(images - zero, kernel.expand(channels, 1, 11, 11), padding=5, groups=channels)


def input_minimum(images: Tensor, model: nn.Module) -> Tensor:
    """The smallest value of each image, whichever channel it is in.

    Examples:
        >>> torch.equal(fei.protocols.input_minimum(images, model)[:, 0, 0, 0], images.amin((1, 2, 3)))
        True
    """
    return images.amin((1, 2, 3), keepdim=True).expand_as(images)


def zeros(images: Tensor, model: nn.Module) -> Tensor:
    """Zero in the network's input space, whatever that is.

    Examples:
        >>> fei.protocols.zeros(images, model).any().item()
        False
    """
    return torch.zeros_like(images)


Replacement = Callable[[Tensor, nn.Module], Tensor]


@dataclass(frozen=True)
class Averaged:
    """Several replacements, the same ones for both curves: each point of a curve is the mean over all of them.

    Examples:
        >>> both = fei.protocols.Averaged((fei.protocols.zeros, fei.protocols.input_minimum))
        >>> import dataclasses
        >>> mine = dataclasses.replace(fei.protocols.get("fei-paper"), name="mine", replacement=both)
        >>> fei.metrics.insertion(model, images, maps, protocol=mine).protocol
        'mine/1'
    """

    makers: tuple[Replacement, ...]


@dataclass(frozen=True)
class LeftOut:
    """Nothing stands in: patches are left out of the sequence of a transformer, before its first block.

    What is ranked and counted is then patches, by the mean of the map over each; see `fei.core.dropping`.

    Examples:
        >>> isinstance(fei.protocols.get("token-drop").replacement, fei.protocols.LeftOut)
        True
    """


# How a curve becomes a number


def plain_mean(scores: Tensor, fractions: Tensor) -> Tensor:
    """The mean over the points (paper, equations 1 and 2).

    Examples:
        >>> fei.protocols.plain_mean(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])).item()
        0.5
    """
    return scores.mean(-1)


def trapezoid(scores: Tensor, fractions: Tensor) -> Tensor:
    """The area under the curve over the replaced fractions; these span 1 where the end points are included.

    Examples:
        >>> fei.protocols.trapezoid(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([0.0, 0.5, 1.0])).item()
        0.75
    """
    return torch.trapezoid(scores, fractions.to(scores))


def unit_steps(scores: Tensor, fractions: Tensor) -> Tensor:
    """The trapezoid with steps of length 1: it grows with their number.

    Examples:
        >>> fei.protocols.unit_steps(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([0.0, 0.5, 1.0])).item()
        1.5
    """
    return torch.trapezoid(scores, dx=1.0)


Area = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Protocol:
    """All that decides an insertion or deletion score, apart from the network, the image and the map.

    Attributes:
        name: With the version, its id.
        version: Raised when any other field of a published protocol changes.
        levels: How many values are replaced at each point.
        replacement: What replaces them: ``"reference"`` for the R of the call (the same for both curves and all
            methods), a fixed `ReferenceSpec`, a pair of callables for insertion and deletion, `Averaged`, or
            `LeftOut`.
        score: What is read from the output, see `fei.FEI`.
        area: From a curve to a number.
        order: Which pixel comes first, equal values included.
        top_class_only: Whether only the model's top class may be scored.
        per_value: Whether single values of C·H·W are replaced instead of pixels.
        caution: What a reader of its scores has to know; empty where there is nothing.

    Examples:
        >>> protocol = fei.protocols.get("rise")
        >>> protocol.id, protocol.top_class_only, protocol.drops_tokens
        ('rise/1', True, False)
    """

    name: str
    version: int
    levels: Levels
    replacement: ReferenceSpec | tuple[Replacement, Replacement] | Averaged | LeftOut
    score: Score
    area: Area
    order: Order
    top_class_only: bool = False
    per_value: bool = False
    caution: str = ""

    def __post_init__(self) -> None:
        """Refuse an unknown score."""
        check_score(self.score)

    @property
    def id(self) -> str:
        """`name/version`, stored with each score."""
        return f"{self.name}/{self.version}"

    @property
    def drops_tokens(self) -> bool:
        """Whether it leaves patches out of a transformer's sequence, so that no other network will do."""
        return isinstance(self.replacement, LeftOut)


_FINE = tuple(i / 20 for i in range(21))
_QUANTUS = Protocol(
    "quantus-pixelflipping",
    1,
    WithoutStart(rows),
    (input_minimum, input_minimum),
    "softmax",
    unit_steps,
    numpy_per_value,
    per_value=True,
    caution="the order of equal values depends on the processor, and with it the score; version 2 has none of that",
)
_PUBLISHED = (
    Protocol("fei-paper", 1, Quantiles(PAPER_QUANTILES), "reference", "softmax", plain_mean, jittered),
    Protocol(
        "held-out",
        1,
        Quantiles(PAPER_QUANTILES),
        Averaged((normalised_zero, another_photograph)),
        "softmax",
        plain_mean,
        jittered,
    ),
    Protocol("fei-fine", 1, Quantiles(_FINE), "reference", "softmax", trapezoid, jittered),
    Protocol("held-out-fine", 1, Quantiles(_FINE), (normalised_zero, normalised_zero), "softmax", trapezoid, jittered),
    Protocol(
        "rise", 1, rows, (rise_blur, normalised_zero), "softmax", trapezoid, reversed_argsort, top_class_only=True
    ),
    Protocol("torchcam", 1, Intervals(20), (zeros, zeros), "logit", trapezoid, raster),
    _QUANTUS,
    replace(_QUANTUS, version=2, order=raster_per_value, caution=""),
    Protocol("token-drop", 1, Quantiles(PAPER_QUANTILES), LeftOut(), "softmax", plain_mean, raster),
)
_BY_ID = {protocol.id: protocol for protocol in _PUBLISHED}


def available() -> list[str]:
    """The ids of the published protocols.

    Examples:
        >>> fei.protocols.available()[:2]
        ['fei-paper/1', 'held-out/1']
    """
    return list(_BY_ID)


def get(protocol: str | Protocol) -> Protocol:
    """A protocol by id, or by name alone for its newest version; a protocol is handed back.

    Examples:
        >>> fei.protocols.get("quantus-pixelflipping").id  # the newest version
        'quantus-pixelflipping/2'
    """
    if isinstance(protocol, Protocol):
        return protocol
    versions = [p for p in _PUBLISHED if protocol in (p.id, p.name)]
    if versions:
        return max(versions, key=lambda p: p.version)
    names = [*(p.name for p in _PUBLISHED), *_BY_ID]
    hint = suggestion(str(protocol), names, f"choose one of {', '.join(_BY_ID)}.", most=2)
    raise InputError(f"Unknown protocol {protocol!r}; {hint}")


def default_protocol(reference: ReferenceSpec) -> str:
    """What maps are measured under where nobody says: with references they were not optimised with, unless told R.

    Examples:
        >>> fei.protocols.default_protocol(None), fei.protocols.default_protocol("black")
        ('held-out', 'fei-paper')
    """
    return "held-out" if reference is None else "fei-paper"


def describe(protocol: str | Protocol) -> dict[str, Any]:
    """The fields of a protocol as plain words, for tables and records.

    Examples:
        >>> told = fei.protocols.describe("torchcam")
        >>> told["levels"], told["area"]
        ('Intervals(steps=20)', 'trapezoid')
    """

    def word(value: Any) -> Any:
        if isinstance(value, tuple):
            return [word(v) for v in value]
        if isinstance(value, Averaged):
            return {"mean over": word(value.makers)}
        if isinstance(value, LeftOut):
            return "left out of the sequence"
        return value.__name__ if hasattr(value, "__name__") else repr(value) if callable(value) else value

    chosen = get(protocol)
    return {"id": chosen.id} | {name: word(value) for name, value in vars(chosen).items()}
