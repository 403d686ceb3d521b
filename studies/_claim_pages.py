"""The pages about the paper's claims."""

from __future__ import annotations

from collections.abc import Iterator

from studies import _beside
from studies._editions import measured
from studies._page_parts import against_probability, claims, numbers, show
from studies._sections import Found, folded, localization_table, plan_section


def photographs(found: Found) -> Iterator[str]:
    """Outside and inside on ordinary photographs."""
    yield "## The claims\n"
    yield from claims(found, "H1", "H2", "H3", "H4")
    yield from numbers(found, "photographs")
    for name, title in (
        ("second-cheap", "Three cheap networks"),
        ("second-resnet50", "ResNet50"),
        ("second-deit", "DeiT-tiny, a transformer"),
        ("second-expensive", "Baselines that cost more, with their authors' settings"),
        ("second-extremal", "Extremal Perturbation with its 800 steps"),
    ):
        yield from plan_section(found, name, title, "external", "internal")
        if name == "second-cheap":
            yield from show(found, "second-faithfulness")
    yield from against_probability(
        found,
        ("second-cheap", "second-resnet50"),
        "On how many photographs insertion is above the probability of the whole one.\n",
        "Rank correlation of the network's probability with the lead in insertion over Grad-CAM.\n",
    )


def birds(found: Found) -> Iterator[str]:
    """The paper's own networks, on birds."""
    yield "## The claims\n"
    yield from claims(found, "H7")
    yield from numbers(found, "birds")
    yield (
        "MSE has the scale of a network's activations, and our weights are not the paper's: compare ratios, not the "
        "numbers beside each other.\n"
    )
    for name, title, layouts in (
        ("second-cub", "AlexNet and ResNet50", ("external", "internal", "layerwise")),
        ("second-cub-vgg16", "VGG16, without Extremal Perturbation and RISE", ("external", "internal", "layerwise")),
        ("second-scope-vgg16", "The paper's ranges of layers on VGG16", ("ablation",)),
    ):
        yield from plan_section(found, name, title, *layouts)
        if name not in found.stores or "scope" in name:
            continue
        measures = found.study[name]
        for pair, network in enumerate(measures.plan.pairs):
            if measured(measures, pair):
                n = f"n = {measured(measures, pair)}, preset `fast`"
                if network.name != "CUB, AlexNet":  # which the paper has on black images alone
                    yield folded(
                        f"{network.name} beside the paper's table 1 and its inside ({n})",
                        _beside.beside_paper(measures, pair),
                    )
                yield folded(f"{network.name}: where maps point ({n})", localization_table(measures, pair))
                yield from show(found, f"second-layers-{network.name.split(', ')[1].lower()}")


def black(found: Found) -> Iterator[str]:
    """Black images."""
    yield "## The claims\n"
    yield from claims(found, "H5", "H6", "Q3")
    if beside := _beside.beside_black(found.study):
        yield "## Beside the paper's table 2\n"
        yield "Trials are the n of this table; [Wilson's intervals](terms.md#interval).\n"
        yield folded("Every network and variant", beside)
    yield from numbers(found, "black_images")
    for name, title in (
        ("second-black", "AlexNet, GoogLeNet, SqueezeNet, MobileNetV1"),
        ("second-black-vgg16", "VGG16"),
        ("second-black-resnet50", "ResNet50"),
        ("second-black-paper", "With the paper's preset"),
    ):
        yield from plan_section(found, name, title, "black-image")
        yield from show(found, name) if name == "second-black" else ()


def presets(found: Found) -> Iterator[str]:
    """Both presets, steps, area and quantiles."""
    yield "## The claims\n"
    yield from claims(found, "H8", "H9", "H10")
    yield from numbers(found, "presets")
    yield from plan_section(found, "second-paper", "The variants with both presets", "external", "internal")
    yield from plan_section(found, "second-ablation", "Area, number of quantiles, 200 and 300 steps", "ablation")
