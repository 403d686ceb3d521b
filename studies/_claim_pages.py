"""The pages about the paper's claims: what the second edition says, and below it the first as it was."""

from __future__ import annotations

from collections.abc import Iterator

from studies import _beside, _steps
from studies._confidence import insertions, lead_table, overshoot_table
from studies._editions import measured
from studies._figures import CAPTIONS
from studies._page_parts import FIRST, claims, second, show
from studies._sections import Found, bench_table, folded, localization_table, plan_section, shape_table, words


def photographs(found: Found) -> Iterator[str]:
    """Outside and inside on ordinary photographs."""
    yield "## The claims\n"
    yield from claims(found, "H1", "H2", "H3", "H4")
    yield from second(found, "photographs")
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
    yield from _against_probability(found, ("second-cheap", "second-resnet50"))
    yield FIRST
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
    yield from _against_probability(found, ("twenty", "resnet50"), first=True)
    if "main" in found.stores:
        yield "### Layer by layer\n"
        yield words(found.prose, "layers")
        for plan in ("main", "resnet50"):
            for pair in found.stores[plan].plan.pairs if plan in found.stores else ():
                yield from show(found, f"layers-{pair.name.lower()}", f"{CAPTIONS['layers']}: {pair.name}.")


def _against_probability(found: Found, plans: tuple[str, ...], *, first: bool = False) -> Iterator[str]:
    """Insertion against the probability of the whole photograph."""
    stores = {name: found.stores[name] for name in plans if name in found.stores}
    numbers = insertions(stores)
    if not numbers:
        return
    sizes = "; ".join(
        f"{pair.name} {measured(found.study[name], place)}"
        for name in stores
        for place, pair in enumerate(found.study[name].plan.pairs)
    )
    noted = f"*n (photographs): {sizes}; preset `fast`.*\n"
    yield f"### More than the network gives the photograph{', first edition' if first else ''}\n"
    yield (
        words(found.prose, "overshoot")
        if first
        else "On how many photographs insertion is above the probability of the whole one.\n"
    )
    yield f"{noted}\n{overshoot_table(numbers)}"
    yield f"### Where the network is unsure{', first edition' if first else ''}\n"
    yield (
        words(found.prose, "unsure")
        if first
        else "Rank correlation of the network's probability with the lead in insertion over Grad-CAM.\n"
    )
    yield f"{noted}\n{lead_table(numbers)}"


def birds(found: Found) -> Iterator[str]:
    """The paper's own networks, on birds."""
    yield "## The claims\n"
    yield from claims(found, "H7")
    yield from second(found, "birds")
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
        numbers = found.study[name]
        for pair, network in enumerate(numbers.plan.pairs):
            if measured(numbers, pair):
                n = f"n = {measured(numbers, pair)}, preset `fast`"
                if network.name != "CUB, AlexNet":  # which the paper has on black images alone
                    yield folded(
                        f"{network.name} beside the paper's table 1 and its inside ({n})",
                        _beside.beside_paper(numbers, pair),
                    )
                yield folded(f"{network.name}: where maps point ({n})", localization_table(numbers, pair))
                yield from show(found, f"second-layers-{network.name.split(', ')[1].lower()}")
    yield FIRST
    yield from plan_section(
        found, "cub", "ResNet50, five photographs", "external", "internal", text=words(found.prose, "cub")
    )
    if "cub" in found.stores:
        yield words(found.prose, "localization")
        yield folded("Where maps point (n = 5, preset `fast`)", localization_table(found.study["cub"]))


def black(found: Found) -> Iterator[str]:
    """Black images."""
    yield "## The claims\n"
    yield from claims(found, "H5", "H6", "Q3")
    if beside := _beside.beside_black(found.study):
        yield "## Beside the paper's table 2\n"
        yield "Trials are the n of this table; [Wilson's intervals](terms.md#interval).\n"
        yield folded("Every network and variant", beside)
    yield from second(found, "black_images")
    for name, title in (
        ("second-black", "AlexNet, GoogLeNet, SqueezeNet, MobileNetV1"),
        ("second-black-vgg16", "VGG16"),
        ("second-black-resnet50", "ResNet50"),
        ("second-black-paper", "With the paper's preset"),
    ):
        yield from plan_section(found, name, title, "black-image")
        yield from show(found, name) if name == "second-black" else ()
    yield FIRST
    yield words(found.prose, "black_image")
    for name, title in (
        ("black-image", "Three networks"), ("black-image-more", "Networks that tell two explanations apart"),
        ("black-image-penalty", "A penalty on activations"),
    ):  # fmt: skip
        yield from plan_section(found, name, title, "black-image")
        yield from show(found, name) if name == "black-image" else ()


def presets(found: Found) -> Iterator[str]:
    """Both presets, steps, area and quantiles."""
    yield "## The claims\n"
    yield from claims(found, "H8", "H9", "H10")
    yield from second(found, "presets")
    yield from plan_section(found, "second-paper", "The variants with both presets", "external", "internal")
    yield from plan_section(found, "second-ablation", "Area, number of quantiles, 200 and 300 steps", "ablation")
    yield FIRST
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
