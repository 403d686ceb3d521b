"""What the explorer shows: images, and on each of them what the methods found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fei.core.evidence import Evidence, presence, silence
from fei.core.explanation import Explanation, Trace
from fei.core.settings import PREVIEW
from fei.errors import InputError
from fei.protocols import Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from fei.metrics import BlackImage, Cost, Divergence, Evaluation
    from fei.report.whole import Whole


@dataclass(frozen=True)
class Guess:
    """A class and the probability that the network gives it.

    Examples:
        >>> from fei.report.explorer import Guess
        >>> Guess(1, "bright", 0.75).label
        'bright'
    """

    index: int
    label: str
    probability: float


@dataclass(frozen=True)
class Repeated:
    """The same map, made once more.

    Attributes:
        seed: The other seed.
        map: What it gave, (H, W).
        correlation: Spearman's ρ of the two maps.
    """

    seed: int
    map: Tensor
    correlation: float


@dataclass(frozen=True, repr=False)
class Panel:
    """What one method found on one image. What is left out is not shown.

    Attributes:
        method: Name of the method; no two panels of an image share one.
        map: Its map (H, W).
        evaluation: What `fei.metrics.evaluate` said of it, on this one image: curves and layers.
        top: For "insertion" and "deletion", the best classes at each point of that curve.
        explanation: Masks and traces, of this one image, from a method that has them.
        black_image: What the black-image test said of the method.
        cost: What the map cost.
        config: The method's options as plain data.
        repeated: The map under another seed.
        attention: What `fei.metrics.attention_divergence` said of it, on this one image.

    Examples:
        >>> from fei.report.explorer import Panel
        >>> Panel("mine", maps[0, 0])
        Panel('mine', 16 × 16)
    """

    method: str
    map: Tensor
    evaluation: Evaluation | None = None
    top: Mapping[str, Sequence[Sequence[Guess]]] = field(default_factory=dict)
    explanation: Explanation | None = None
    black_image: BlackImage | None = None
    cost: Cost | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    repeated: Repeated | None = None
    attention: Mapping[str, Divergence] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Panel({self.method!r}, {' × '.join(map(str, self.map.shape))})"

    @property
    def preview(self) -> bool:
        """Whether the map is a preview, made in few steps to look at while waiting."""
        return bool(self.config.get("preset") == PREVIEW)

    @property
    def called(self) -> str:
        """What the method is called where its map is shown."""
        return f"{self.method} (preview)" if self.preview else self.method

    @property
    def silent(self) -> bool:
        """Whether it is known that nothing in the image speaks for the class."""
        evidence = None if self.explanation is None else self.explanation.evidence
        return evidence is not None and not bool(evidence.found)

    def evidence(self, label: str, probability: float | None) -> str | None:
        """What the masks keep of the score of a class, in words; ``None`` where that was not measured."""
        if self.explanation is None or (weighed := self.explanation.evidence) is None:
            return None
        if self.silent:
            return silence(label, probability)
        areas = self.explanation.trace.area[0, :, -1].tolist()
        return presence(weighed.kept[0].tolist(), weighed.chance[0].tolist(), areas, float(weighed.whole))


@dataclass(frozen=True, repr=False)
class Shown:
    """One image and what methods found on it.

    Attributes:
        name: What the image is called.
        image: The network's input (C, H, W): RGB in [0, 1] for a `fei.models.Classifier`.
        target: The explained class, −1 where a callable scored the output.
        label: Its name.
        panels: One per method.
        reference: R, broadcastable to the image; a pair for insertion and deletion where they are painted differently.
        protocol: Whose insertion and deletion pictures are shown.
        seed: Seed of R and of the order of equal map values.
        prediction: The network's best classes on the image.
        probability: The probability that it gives the explained class.
        provenance: What else a reader should know, as words: shown in this order.
        code: Python that makes this page again.
        command: A command that makes this page again.
        whole: All of the photograph, if the network saw only a part.

    Examples:
        >>> from fei.report.explorer import Panel, Shown
        >>> Shown("noise", images[0], 0, "dark", [Panel("mine", maps[0, 0])], reference=torch.zeros(3, 1, 1))
        Shown('noise', 'dark', mine)
    """

    name: str
    image: Tensor
    target: int
    label: str
    panels: Sequence[Panel]
    reference: Tensor | tuple[Tensor, Tensor]
    protocol: str | Protocol = "fei-fine"
    seed: int = 0
    prediction: Sequence[Guess] = ()
    probability: float | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    code: str | None = None
    command: str | None = None
    whole: Whole | None = None

    def __repr__(self) -> str:
        return f"Shown({self.name!r}, {self.label!r}, {', '.join(panel.method for panel in self.panels)})"

    def __post_init__(self) -> None:
        """Refuse what does not belong together."""
        if self.image.ndim != 3:
            raise InputError(f"The image '{self.name}' has the shape {tuple(self.image.shape)}; give (C, H, W).")
        if not self.panels:
            raise InputError(f"Nothing was found on the image '{self.name}'; give at least one panel.")
        names = [panel.method for panel in self.panels]
        if len(set(names)) < len(names):
            raise InputError(f"Two panels of '{self.name}' have the same method name; call them differently.")
        for panel in self.panels:
            if panel.map.shape != self.image.shape[1:]:
                raise InputError(
                    f"The map of {panel.method} has the shape {tuple(panel.map.shape)} and its image "
                    f"{tuple(self.image.shape)}; give a map (H, W) of the image's size."
                )
            if not panel.map.isfinite().all():
                raise InputError(f"The map of {panel.method} holds NaN or infinite values; it must rank every pixel.")


def single(explanation: Explanation, number: int) -> Explanation:
    """The explanation of one image of several."""
    if number >= len(explanation.maps):
        raise InputError(
            f"The explanation is of {len(explanation.maps)} image(s) and more are given; explain them too."
        )
    return some(explanation, slice(number, number + 1))


def some(explanation: Explanation, which: slice) -> Explanation:
    """The explanation of some of its images."""
    trace = explanation.trace
    clipped = {site: share[which] for site, share in trace.clipped.items()}
    fields = {name: getattr(explanation, name)[which] for name in ("maps", "alphas", "target", "inputs", "reference")}
    weighed = explanation.evidence
    return Explanation(
        **fields,
        trace=Trace(trace.phi[which], trace.area[which], trace.stopped[which], clipped),
        config=explanation.config,
        evidence=None if weighed is None else Evidence(*(values[which] for values in vars(weighed).values())),
    )
