"""What each of the flagship's options buys and costs: maps about the class against the inside, and black images.

    python studies/flagship/tradeoff.py NETWORK PHOTOGRAPHS --name NAME --count 5 --black 4 --scores FILE

Photographs are drawn from a folder with seed 0. A line of JSON per photograph and setting; what a file holds is not
computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from measure import asked, begun, drawn, seeded
from torch import Tensor

import fei
from fei import metrics
from fei.core import optimization
from fei.models import Classifier

_BARE: dict[str, Any] = {"focus": 0.0, "prior": 0.0}
SETTINGS: dict[str, dict[str, Any]] = {
    **{f"focus {focus:g}": _BARE | {"focus": focus} for focus in (0.0, 0.5, 1.0)},
    **{f"prior {prior:g}": {"prior": prior} for prior in (0.25, 0.5, 1.0)},
    **{f"contrast {strength:g}": _BARE | {"contrast": strength} for strength in (0.3, 0.6, 0.9)},
    **{f"vm, contrast {strength:g}": _BARE | {"variant": "vm", "contrast": strength} for strength in (0.0, 0.5, 0.9)},
    "vm, projected 0.9": _BARE | {"variant": "vm", "contrast": 0.9},
    "projected 0.9": _BARE | {"contrast": 0.9},
    **{f"rule {rule}": _BARE | {"variant": rule} for rule in ("vm", "ivm", "avm", "none")},  # "focus 0" is that of IBM
    **{
        f"vm, first {share}": _BARE | {"variant": "vm", "sites": f"first:{share}"} for share in ("2/13", "4/13", "7/13")
    },
    "vm, last 6/13": _BARE | {"variant": "vm", "sites": "last:6/13"},
}


def projected(towards: Tensor, against: Tensor, strength: float) -> Tensor:
    """g⁺ − λ·c·g⁻ with c = ⟨g⁺, g⁻⟩ / ⟨g⁻, g⁻⟩ of each mask, at least 0, and 0 where g⁻ is."""
    inner = (towards * against).flatten(1).sum(1)
    size = against.flatten(1).square().sum(1)
    factor = torch.where(size > 0, (inner / size.clamp(min=torch.finfo(size.dtype).tiny)).clamp(min=0), 0.0)
    return towards - strength * factor.view(-1, 1, 1, 1) * against


@contextmanager
def form_of(setting: str) -> Iterator[None]:
    """The projected form of the contrast, which the package does not have, for settings named after it."""
    plain = optimization.contrasted
    try:
        optimization.contrasted = projected if "projected" in setting else plain
        yield
    finally:
        optimization.contrasted = plain


def on_photograph(model: Classifier, x: Tensor, setting: str) -> Callable[[], dict[str, float]]:
    """The numbers of one setting on one photograph."""

    def method(model: Any, inputs: Tensor, target: Any = None) -> Tensor:
        options = {"preset": "fei", "variant": "ibm"} | SETTINGS[setting]
        maps = fei.FEI(model, **options).attribute(inputs, target, generator=seeded())
        assert isinstance(maps, Tensor)  # noqa: S101  # as the inputs are
        return maps

    def compute() -> dict[str, float]:
        with form_of(setting):
            maps = method(model, x)
            classes = metrics.class_sensitivity(model, method, x, maps=maps, generator=seeded())
        last = model.feature_layers[-1]
        measured = metrics.evaluate(model, x, maps, layers=[last], protocol="held-out", relevance=True)
        inside = {name: values.item() for name, values in measured.internal[last].numbers.items()}
        outside = {"insertion": measured.insertion.auc.item(), "deletion": measured.deletion.auc.item()}
        likeness = {
            "random_class": classes.random.correlation.item(),
            "runner_up": classes.runner_up.correlation.item(),
        }
        return outside | inside | likeness

    return compute


def on_black(model: Classifier, setting: str, trials: int) -> Callable[[], dict[str, float]]:
    """The largest score that masks of one setting reach on black images."""

    def compute() -> dict[str, float]:
        options = {"preset": "fei", "variant": "ibm"} | SETTINGS[setting]
        with form_of(setting):
            method: Any = fei.methods.create(f"fei-{options.pop('variant')}", **options)
            found = metrics.black_image(model, method, trials=trials, generator=seeded())
        return {"fired": float(found.success.sum()), "trials": trials, "largest": found.phi.max().item()}

    return compute


def main() -> None:
    """Run from the command line."""
    parser = asked("Measure what the flagship's options buy and cost.", 5)
    parser.add_argument("--black", type=int, default=4, help="trials of the black-image test per setting")
    parser.add_argument("--settings", type=int, default=len(SETTINGS), help="how many of the settings, in their order")
    options = parser.parse_args()
    settings = list(SETTINGS)[: options.settings]
    model, scores = begun(options)
    for number, file in enumerate(drawn(options.photographs, options.count)):
        x = model.preprocess(file)[None]
        for setting in settings:
            row = {"network": options.name, "photograph": file.stem, "method": setting, "kind": "photograph"}
            scores.add(row, on_photograph(model, x, setting))
        print(f"{options.name}: {number + 1} of {options.count} photographs", flush=True)
    for setting in settings:
        row = {"network": options.name, "photograph": "all", "method": setting, "kind": "black"}
        scores.add(row, on_black(model, setting, options.black))


if __name__ == "__main__":
    main()
