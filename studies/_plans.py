"""The plans of the study, in the order in which they are computed, and the changes that a run may make to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from studies.photographs import ASSETS, PREFIX, ROOT

from fei.bench.plan import Plan, load_plan

FOLDER = Path(__file__).resolve().parent
SCORES = FOLDER / "scores"
# The most important first: whoever has to stop early has these.
ORDER = (
    "steps", "main", "black-image", "paper", "ablation", "sanity", "residual", "resnet50", "cub", "protocols", "seeds",
    "googlenet", "black-image-more", "black-image-penalty", "twenty", "ablation-chain",
)  # fmt: skip
# The second edition: its photographs are those that nothing was chosen on, and are read by these runs alone. First come
# the plans without `fei`, whose maps may still change.
SECOND = (
    "second-paper", "second-black-paper", "second-black-vgg16", "second-scope-vgg16", "second-sanity",
    "second-ablation", "second-cheap", "second-black", "second-cub", "second-cub-vgg16", "second-resnet50",
    "second-black-resnet50", "second-deit", "second-expensive", "second-protocols", "second-extremal", "second-seeds",
    "second-trust",
)  # fmt: skip
# What a trial changes in a method's options: as little work as it takes to go through all of its code.
_LEAST: Mapping[str, Any] = {
    "steps": 2, "samples": 4, "permutations": 2, "outer": 1, "inner_steps": 1, "channels": 2, "quantiles": (0.3, 0.7),
}  # fmt: skip
# A trial reads no photograph of the second edition.
_HELD_OUT, _OPEN = "/imagenet_test", "/imagenet"
_LEAST_OF: Mapping[str, dict[str, Any]] = {
    "kernel-shap": {"samples": 40, "segments": 6},
    "occlusion": {"window": 112, "stride": 112},
    "studies.l2_penalty:L2Penalty": {"steps": 2},
    "studies.own_methods:OtherReference": {"steps": 2},
}


def path_of(name: str) -> Path:
    """The file of a plan."""
    return FOLDER / f"{name}.toml"


def plan_of(name: str) -> Plan:
    """A plan as it is committed."""
    return load_plan(path_of(name))


def changed(
    plan: Plan,
    *,
    trial: bool = False,
    keep_maps: bool = False,
    at_most: int | None = None,
    there: Mapping[str, int] | None = None,
) -> Plan:
    """A plan with the folder of the assets in place; smaller, as a trial, or with its maps kept, where asked for.

    Args:
        plan: The plan as it is committed.
        trial: One photograph, one seed, the fewest steps: to see that everything works. Photographs that are kept for
            the second edition are not read.
        keep_maps: Keep the maps of photographs, for the gallery.
        at_most: No more photographs of a pair, and no more trials, than this. A run goes on from there with more, since
            a larger sample has the smaller one in it.
        there: How many each pair has scores of already, by its name: a limit below takes none of these away.
    """
    content = plan.model_dump(exclude_none=True)
    if at_most is not None:
        there = there or {}
        for pair in content["pairs"]:
            if "sample" in pair:
                pair["sample"] = min(pair["sample"], max(at_most, there.get(pair["name"], 0)))
        for part, count in (("black_image", "trials"), ("sanity", "images")):
            if part in content:
                content[part][count] = min(content[part][count], max(at_most, *there.values(), 0))
    for pair in content["pairs"]:
        pair |= {key: placed(pair[key]) for key in ("model", "data") if key in pair}
        if trial and "data" in pair:
            pair |= {"sample": 1, "data": pair["data"].replace(_HELD_OUT, _OPEN)}
    if trial:
        content["seeds"] = content["seeds"][:1]
        if len(plan.metrics.protocols) > 1:  # RISE's alone takes 450 passes a map
            content["methods"] = content["methods"][:3]
        for row in content["methods"]:
            row["options"] |= least_options(row["name"], row["options"])
        for part, least in (("black_image", {"trials": 1}), ("sanity", {"images": 1, "layers": 1})):
            if part in content:
                content[part] |= least
    content["keep_maps"] = content["keep_maps"] or keep_maps
    return Plan.model_validate(content)


def least_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with which a method does as little as possible."""
    from fei.methods import describe

    known = {option.name for option in describe(name).options} | options.keys()
    least = {key: value for key, value in _LEAST.items() if key in known}
    return least | _LEAST_OF.get(name, {})


def placed(spec: str) -> str:
    """A network's or data set's specification with the folder of the assets of this machine."""
    return spec if ASSETS == ROOT / PREFIX else spec.replace(PREFIX, str(ASSETS.resolve()))


def portable(spec: str) -> str:
    """The same as the plans write it, whatever the machine."""
    return spec.replace(str(ASSETS.resolve()), PREFIX)
