"""The figures of the study's pages, drawn from the committed scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from studies._editions import Study, measured
from studies._scores import committed, opened
from studies._steps import steps_figure
from studies.flagship.page import lines_of, mean

from fei.bench.report import figures
from fei.bench.report.numbers import Numbers
from fei.bench.report.style import dress, new_figure

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
    "tradeoff": "What options of the preset fei buy and cost: insertion against cosine inside, means.",
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
        yield "tradeoff", tradeoff_figure(lines_of("tradeoff"))


def tradeoff_figure(rows: list[dict[str, Any]]) -> Figure:
    """Insertion against cosine inside: a line through the settings of each option, a panel for each network."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    figure = new_figure(3.2, width=4.2 * len(networks))
    panels: Any = figure.subplots(1, len(networks), squeeze=False)
    for axes, network in zip(panels.flat, networks, strict=True):
        for option, points in curves_of(rows, network).items():
            across, up = ([point[axis] for point in points] for axis in (0, 1))
            axes.plot(across, up, marker="o", markersize=4, linewidth=1.2, label=option)
            for right, high, value in points:
                axes.annotate(value, (right, high), fontsize=6, xytext=(3, 3), textcoords="offset points")
        photographs = {row["photograph"] for row in rows if row["network"] == network and row["kind"] == "photograph"}
        dress(axes, f"{network} (n = {len(photographs)})", "insertion, held-out ↑", "cosine inside ↑")
        axes.legend(fontsize=6, frameon=False)
    return figure


def curves_of(rows: list[dict[str, Any]], network: str) -> dict[str, list[tuple[float, float, str]]]:
    """By option: mean insertion, mean cosine and the option's value, in the order of the values."""
    found: dict[str, list[tuple[float, float, str]]] = {}
    known = [row for row in rows if row["network"] == network and row["kind"] == "photograph"]
    for setting in dict.fromkeys(row["method"] for row in known):
        option, _, value = setting.rpartition(" ")
        each = [row for row in known if row["method"] == setting]
        point = (mean([row["insertion"] for row in each]), mean([row["cosine"] for row in each]), value)
        found.setdefault(option, []).append(point)
    return found
