"""The page of the first edition: its numbers and words, question by question, as they were."""

from __future__ import annotations

from collections.abc import Iterator

from studies import _beside, _steps, other_class
from studies._figures import CAPTIONS
from studies._page_parts import against_probability, plans_run, protocol_tables, show
from studies._plans import ORDER
from studies._sections import (
    Found,
    bench_table,
    folded,
    localization_table,
    plan_section,
    sanity_table,
    shape_table,
    words,
)
from studies._what_was_run import photographs_table


def first_edition(found: Found) -> Iterator[str]:
    """Everything that the first edition measured."""
    yield words(found.prose, "first")
    for title, parts in (
        ("Photographs", _photographs),
        ("Birds", _birds),
        ("Black images", _black),
        ("Presets and options", _options),
        ("Weights, classes and seeds", _depends),
        ("Protocols and cost", _protocols_and_cost),
        ("What was run", _run),
    ):
        yield f"## {title}\n"
        yield from parts(found)


def _photographs(found: Found) -> Iterator[str]:
    yield from plan_section(found, "main", "All methods", text=words(found.prose, "external"))
    if "main" in found.stores:
        yield folded("From outside", bench_table(found.stores["main"], "external"))
        yield words(found.prose, "internal")
        yield folded("Inside, at the last feature layer", bench_table(found.stores["main"], "internal"))
        yield folded("How concentrated and how rough the maps are", shape_table(found.study["main"]))
    for name, title in (
        ("twenty", "Twenty photographs"),
        ("resnet50", "ResNet50, ten photographs"),
        ("googlenet", "GoogLeNet"),
    ):
        yield from plan_section(found, name, title, "external", "internal", text=words(found.prose, name))
        yield from show(found, "faithfulness") if name == "twenty" else ()
    yield from against_probability(
        found, ("twenty", "resnet50"), words(found.prose, "overshoot"), words(found.prose, "unsure")
    )
    if "main" in found.stores:
        yield "### Layer by layer\n"
        yield words(found.prose, "layers")
        for plan in ("main", "resnet50"):
            for pair in found.stores[plan].plan.pairs if plan in found.stores else ():
                yield from show(found, f"layers-{pair.name.lower()}", f"{CAPTIONS['layers']}: {pair.name}.")


def _birds(found: Found) -> Iterator[str]:
    yield from plan_section(
        found, "cub", "ResNet50, five photographs", "external", "internal", text=words(found.prose, "cub")
    )
    if "cub" in found.stores:
        yield words(found.prose, "localization")
        yield folded("Where maps point (n = 5, preset `fast`)", localization_table(found.study["cub"]))


def _black(found: Found) -> Iterator[str]:
    yield words(found.prose, "black_image")
    for name, title in (
        ("black-image", "Three networks"), ("black-image-more", "Networks that tell two explanations apart"),
        ("black-image-penalty", "A penalty on activations"),
    ):  # fmt: skip
        yield from plan_section(found, name, title, "black-image")
        yield from show(found, name) if name == "black-image" else ()


def _options(found: Found) -> Iterator[str]:
    yield from plan_section(found, "steps", "Quality against passes", text=words(found.prose, "steps"))
    if "steps" in found.study:
        yield folded("Scores by setting", _steps.steps_table(found.study["steps"]) + (
            "\n± is the standard deviation over the seeds. ✓ means: not worse than the preset `paper` by more than the "
            "standard deviation of `paper`; ✗ means: worse.\n"
        ))  # fmt: skip
        yield folded(
            "Differences from the preset paper, photograph by photograph",
            f"{_steps.differences_table(found.study['steps'])}\nAbove 0 is better; with 95 % bootstrap intervals.\n",
        )
        yield from show(found, "steps")
    yield from plan_section(
        found, "paper", "The paper's preset", "external", "internal", text=words(found.prose, "paper")
    )
    yield from plan_section(
        found, "ablation", "The choices inside FEI, SqueezeNet", "ablation", text=words(found.prose, "ablation")
    )
    yield from plan_section(found, "ablation-chain", "The choices inside FEI, MobileNetV1", "ablation")
    yield from plan_section(found, "residual", "Residual additions", "ablation", text=words(found.prose, "residual"))


def _depends(found: Found) -> Iterator[str]:
    yield from plan_section(found, "sanity", "Cascading randomisation", text=words(found.prose, "sanity"))
    if "sanity" in found.study:
        yield folded("Similarity to the original map", sanity_table(found.study["sanity"]))
        yield from show(found, "sanity")
        yield "![Maps of one photograph as SqueezeNet loses its weights.](images/results-sanity-strips.jpg)\n"
    if found.extra.asked:
        yield "### Is the map about the class?\n"
        yield words(found.prose, "other_class")
        yield folded(
            "Rank correlation of the maps of two classes (preset `fast`)", other_class.table(found.extra.asked)
        )
    yield from plan_section(
        found, "seeds", "Three seeds, ten photographs", "external", "internal", text=words(found.prose, "seeds")
    )


def _protocols_and_cost(found: Found) -> Iterator[str]:
    yield words(found.prose, "protocols")
    yield from protocol_tables(found, "protocols")
    if "main" in found.study:
        yield folded("The front of insertion, MSE and cost", _beside.pareto_table(found.study["main"]))
    yield from show(found, "cost")


def _run(found: Found) -> Iterator[str]:
    yield from plans_run(found, ORDER)
    if "main" in found.stores:
        yield folded("The photographs of the first edition", photographs_table(found.stores["main"]))
    yield words(found.prose, "selection")
