"""The figures of the study's pages, drawn from the committed scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from studies._editions import Study, measured
from studies._scores import committed, opened
from studies._steps import steps_figure
from studies.flagship.curve import curve
from studies.flagship.page import lines_of

from fei.bench.report import figures
from fei.bench.report.numbers import Numbers

# Layer by layer, and where points carry names, 20 methods are too many to tell apart.
_LINES = (
    "FEI-VM", "FEI-IVM", "FEI-AVM", "FEI-IBM", "FEI-NONE", "Saliency", "SmoothGrad", "Integrated Gradients", "Grad-CAM",
    "Grad-CAM++", "RISE [400 masks]", "Random",
)  # fmt: skip
_POINTS = (
    "FEI", "FEI-VM", "FEI-AVM", "FEI-IBM", "FEI-NONE", "Saliency", "Grad-CAM", "Grad-CAM++", "LayerCAM", "Random",
    "Centre",
)  # fmt: skip
CAPTIONS: Mapping[str, str] = {
    "faithfulness": "Insertion against MSE at the last feature layer: one point per method, with 95 % intervals.",
    "layers": "Activations layer by layer, with 95 % intervals",
    "steps": "Scores against passes: the preset fast (ring), with more and fewer steps, and paper (diamond, line).",
    "cost": "Passes per image, forwards and backwards, against insertion and MSE.",
    "black-image": "How often a class is found in a black image, with Wilson's 95 % intervals.",
    "sanity": "Similarity to the original map as layers are re-initialised from the logits down.",
    "second-faithfulness": "Insertion against MSE at the last feature layer, presets fast and fei; 95 % intervals.",
    "second-cost": "Passes per image, forwards and backwards, against insertion and MSE, presets fast and fei.",
    "second-black": "How often a class is found in a black image, presets fast and fei, with Wilson's 95 % intervals.",
    "second-layers-vgg16": "VGG16 on birds layer by layer, preset fast, with 95 % intervals.",
    "second-layers-resnet50": "ResNet50 on birds layer by layer, preset fast, with 95 % intervals.",
    "second-layers-alexnet": "AlexNet on birds layer by layer, preset fast, with 95 % intervals.",
    "tradeoff": "What a map keeps, against how much it is about its class, along options of the preset fei; means.",
}


class Drawing(NamedTuple):
    """A figure: the plan it is made from, the rows that it has (all without), and what draws it."""

    plan: str
    rows: tuple[str, ...] | None
    draw: Callable[[Numbers], Figure | None]


def _drawings(study: Study) -> Iterator[tuple[str, Drawing]]:
    """All figures that these plans have, by name."""
    simple = {
        "faithfulness": Drawing("twenty", None, figures.faithfulness),
        "second-faithfulness": Drawing("second-cheap", _POINTS, figures.faithfulness),
        "cost": Drawing("main", None, figures.cost),
        "second-cost": Drawing("second-cheap", _POINTS, figures.cost),
        "steps": Drawing("steps", None, steps_figure),
        "black-image": Drawing("black-image", None, figures.black_image),
        "second-black": Drawing("second-black", None, figures.black_image),
        "sanity": Drawing("sanity", None, figures.sanity),
    }
    yield from ((name, drawing) for name, drawing in simple.items() if drawing.plan in study)
    for plan in ("main", "resnet50", "second-cub", "second-cub-vgg16"):
        for pair, each in enumerate(study[plan].plan.pairs if plan in study else ()):
            if measured(study[plan], pair):
                name = each.name.lower() if not plan.startswith("second") else each.name.split(", ")[-1].lower()
                name = f"{'second-' if plan.startswith('second') else ''}layers-{name}"
                yield name, Drawing(plan, _LINES, lambda numbers, pair=pair: figures.layerwise(numbers, pair))  # type: ignore[misc]


def pictures(study: Study) -> set[str]:
    """The names of all figures that these plans have, and of those that need none."""
    return {name for name, _ in _drawings(study)} | ({"tradeoff"} if lines_of("tradeoff") else set())


def drawn(folder: Path, study: Study) -> Iterator[tuple[str, Figure]]:
    """Name and figure of everything that has scores.

    Args:
        folder: Where the scores are.
        study: The numbers of the plans that have some.
    """
    with ExitStack() as stack:
        for name, (plan, rows, draw) in _drawings(study):
            if committed(plan, folder):
                figure = draw(Numbers(stack.enter_context(opened(plan, folder, rows))))
                if figure is not None:
                    yield name, figure
    if lines_of("tradeoff"):
        yield "tradeoff", curve(lines_of("tradeoff"))
