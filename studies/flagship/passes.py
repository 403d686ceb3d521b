"""The flagship in fewer passes: as it is, with masks that share a field, and the preview, on photographs of neither.

    python studies/flagship/passes.py NETWORK PHOTOGRAPHS --name NAME --count 20 --scores FILE

Photographs are drawn from a folder with seed 1; the first eight chose the settings and are left out. A line of JSON per
photograph and setting; what a file holds is not computed again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import asked, begun, seeded, trust
from torch import Tensor

import fei
from fei import metrics
from fei.models import Classifier

CHOSE = 8  # photographs that settings were chosen on
_COMMON: dict[str, Any] = {"preset": "fei", "smooth": 3.0}
_TURNS = {"nesting": "shared", "tries": 3}
SETTINGS: dict[str, dict[str, Any]] = {
    "fei": _COMMON | {"nesting": "independent", "steps": 20, "coarse": 3.0},
    "shared": _COMMON | _TURNS | {"steps": 11, "coarse": 24.0},
    "preview": _COMMON | _TURNS | {"steps": 3, "coarse": 24.0},
}


def drawn(folder: Path, count: int) -> list[Path]:
    """Photographs that chose nothing."""
    photographs = sorted(folder.glob("*/*.JPEG"))
    random.Random(1).shuffle(photographs)
    return photographs[CHOSE : CHOSE + count]


def on_photograph(model: Classifier, x: Tensor, setting: str) -> Callable[[], dict[str, float]]:
    """The numbers of one setting on one photograph."""
    method = fei.methods.create("fei", **SETTINGS[setting])

    def compute() -> dict[str, float]:
        maps = method(model, x, generator=seeded())
        last = model.feature_layers[-1]
        measured = metrics.evaluate(model, x, maps, layers=[last], protocol="held-out", relevance=True)
        inside = {name: values.item() for name, values in measured.internal[last].numbers.items()}
        outside = {"insertion": measured.insertion.auc.item(), "deletion": measured.deletion.auc.item()}
        trusted: dict[str, float] = trust(model, method, x, maps)
        return outside | inside | trusted

    return compute


def main() -> None:
    """Run from the command line."""
    parser = asked("Measure the flagship in fewer passes.", 20)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    options = parser.parse_args()
    model, scores = begun(options)
    for number, file in enumerate(drawn(options.photographs, options.count)):
        x = model.preprocess(file)[None]
        for setting in options.settings.split(","):
            row = {"network": options.name, "photograph": file.stem, "method": setting, "kind": "passes"}
            scores.add(row, on_photograph(model, x, setting))
        print(f"{options.name}: {number + 1} of {options.count} photographs", flush=True)


if __name__ == "__main__":
    main()
