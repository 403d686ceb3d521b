"""Damaged plans: the presets and a plan with everything in it, changed token by token."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

from _fuzz_mutate import mutate_bytes, mutate_json, mutate_text
from _fuzz_worker import MEBIBYTE, Case

from fei.bench.plan import load_plan, parse_plan, presets
from fei.bench.plan._text import to_toml

FULL = """
# everything that a plan can say
name = "all of it"
seeds = [0, 1]
target = "label"
keep_maps = true
retries = 2
layout = "external"

[[pairs]]
model = "torchvision:absent"
data = "cub:birds@test"
name = "Lite0, β"
sample = 3
sample_seed = 7
layers = ["features.3", "features.5"]

[[pairs]]
model = "net.py:tiny:weights.pt"
data = "photos/*.jpg"

[[methods]]
name = "saliency"
label = "Saliency"
group = "gradients"

[[methods]]
name = "fei-vm"
group = "ours"
options = { steps = 3, quantiles = [0.5, 0.9], preset = "fast" }

[[methods]]
name = "rise"
options = { samples = 10 }

[metrics]
protocols = ["fei-paper", "rise"]
external = true
internal = false
complexity = true
localization = true
confidence = true
batch_size = 4

[black_image]
trials = 2
methods = ["fei-vm"]

[sanity]
images = 1
layers = 2
methods = ["Saliency"]
"""
_WORDS = (
    *("true", "false", "1", "-1", "0.5", "nan", "[]", "{}", "[[]]", "1979-05-27T07:32:00Z", "07:32:00", "'''", '"""'),
    *(
        "seeds",
        "pairs",
        "methods",
        "options",
        "metrics",
        "[black_image]",
        "[[methods]]",
        "[[pairs]]",
        "[sanity]",
        "trials",
    ),
    *("steps", "lr", "objective", "reference", "masks", "samples", "layer", "gradcam", "occlusion", "fei-none", "lime"),
    *("captum:IntegratedGradients", "quantus", "random", "timm:resnet18", "hf:a/b", "imagenet:x", "csv:", "voc:a@b"),
)


class Plans:
    """Plans in TOML."""

    name = "plans"
    max_bytes = 256 * MEBIBYTE

    def valid(self) -> Sequence[Case]:
        """The whole plans."""
        return [Case({"plan.toml": text.encode()}, "plan.toml") for text in plans()]

    def make(self, rng: Random) -> Case:
        """One of them changed."""
        text, chance = rng.choice(plans()), rng.random()
        if chance < 0.5:  # as a document, which stays TOML
            changed = mutate_json(rng, tomllib.loads(text))
            content = to_toml(changed if isinstance(changed, dict) else {"x": changed}).encode("utf-8", "replace")
        else:
            content = mutate_text(rng, text, _WORDS, 2) if chance < 0.85 else mutate_bytes(rng, text.encode(), 3)
        return Case({"plan.toml": content}, "plan.toml")

    def read(self, folder: Path, ask: tuple[str, ...]) -> None:
        """Read it; one that is taken must be the same when it is written by us and read again."""
        plan = load_plan(folder / "plan.toml")
        again = parse_plan(type(plan).model_validate(plan.model_dump()).text)
        if again.model_dump() != plan.model_dump() and "nan" not in plan.text:
            raise AssertionError("a plan that was written out is another one when it is read")


@cache
def plans() -> tuple[str, ...]:
    """The whole plans; the full one several times, as there is most to change in it. No network of theirs is there."""
    chosen = {"table-external": ["photos"], "table-black-image": []}
    made = (presets.preset(name, models=["absent.py:net"], data=data) for name, data in chosen.items())
    return (*(FULL,) * 4, *made)
