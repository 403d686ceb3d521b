"""The figures of docs/results.md, drawn from the committed scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from matplotlib.figure import Figure
from studies._scores import committed, opened
from studies._steps import steps_figure

from fei.bench.report import figures
from fei.bench.report.numbers import Numbers

# Layer by layer, 26 lines are too many to tell apart.
_LINES = (
    "FEI-VM", "FEI-IVM", "FEI-AVM", "FEI-IBM", "FEI-NONE", "Saliency", "SmoothGrad", "Integrated Gradients", "Grad-CAM",
    "Grad-CAM++", "RISE [400 masks]", "Random",
)  # fmt: skip
CAPTIONS: Mapping[str, str] = {
    "faithfulness": "Insertion against MSE at the last feature layer: one point per method, with 95 % intervals.",
    "layers": "Activations layer by layer, with 95 % intervals",
    "steps": "Scores against passes: the preset fast (ring), with more and fewer steps, and paper (diamond, line).",
    "cost": "Passes per image, forwards and backwards, against insertion and MSE.",
    "black-image": "How often a class is found in a black image, with Wilson's 95 % intervals.",
    "sanity": "Similarity to the original map as layers are re-initialised from the logits down.",
}


def drawn(folder: Path) -> Iterator[tuple[str, str, Figure]]:
    """Name, caption and figure of everything that has scores.

    Args:
        folder: Where the scores are.
    """
    with ExitStack() as stack:

        def numbers(name: str, only: tuple[str, ...] | None = None) -> Numbers | None:
            return Numbers(stack.enter_context(opened(name, folder, only))) if committed(name, folder) else None

        if (twenty := numbers("twenty")) is not None:  # ten methods can be told apart; the 26 of main.toml cannot
            yield from _made("faithfulness", figures.faithfulness(twenty))
        if (main := numbers("main")) is not None:
            yield from _made("cost", figures.cost(main))
        for plan in ("main", "resnet50"):
            if (few := numbers(plan, _LINES)) is not None:
                for pair, each in enumerate(few.plan.pairs):
                    if (figure := figures.layerwise(few, pair)) is not None:
                        yield f"layers-{each.name.lower()}", f"{CAPTIONS['layers']}: {each.name}.", figure
        if (steps := numbers("steps")) is not None:
            yield from _made("steps", steps_figure(steps))
        if (black := numbers("black-image")) is not None:
            yield from _made("black-image", figures.black_image(black))
        if (sanity := numbers("sanity")) is not None:
            yield from _made("sanity", figures.sanity(sanity))


def _made(name: str, figure: Figure | None) -> Iterator[tuple[str, str, Figure]]:
    if figure is not None:
        yield name, CAPTIONS[name], figure
