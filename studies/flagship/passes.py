"""The flagship in a third of its passes, on photographs that chose nothing.

    python studies/flagship/passes.py NETWORK PHOTOGRAPHS --name NAME --count 20 --trust 5 --scores FILE

Photographs are drawn from a folder with seed 1; the first twelve chose the settings and are left out. Lines of JSON, of
kind "passes" for what is measured of one map and of kind "trust" for what takes several, by photograph and setting;
what a file holds is not computed again.

The rule was written before any score of thirty passes on these photographs was looked at. Measuring had begun minutes
before, and a hundred passes and another cheap setting had been measured on some of them earlier. The default takes
thirty passes if on none of the four networks insertion, insertion − deletion, cosine or relevant cosine falls beyond
chance (the 95 % interval of the paired difference lies below 0), and the targets for seeds, classes and weights are met
where a hundred passes meet them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from measure import asked, begun, seeded, trust
from torch import Tensor

import fei
from fei import metrics
from fei.models import Classifier

CHOSE = 12  # photographs that settings were chosen on
_SHARED: dict[str, Any] = {"nesting": "shared", "smooth": 3.0, "coarse": 24.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "hundred": {"nesting": "independent", "steps": 20, "smooth": 3.0},
    "thirty": _SHARED | {"steps": 6},
    "ten": _SHARED | {"steps": 2},
}


def drawn(folder: Path, count: int) -> list[Path]:
    """Photographs that chose nothing."""
    photographs = sorted(folder.glob("*/*.JPEG"))
    random.Random(1).shuffle(photographs)
    return photographs[CHOSE : CHOSE + count]


def on_photograph(model: Classifier, x: Tensor, setting: str) -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
    """The measurements of one setting on one photograph, by kind."""
    method = fei.methods.create("fei", **SETTINGS[setting])
    maps = cache(lambda: method(model, x, generator=seeded()))

    def scores() -> dict[str, float]:
        last = model.feature_layers[-1]
        measured = metrics.evaluate(model, x, maps(), layers=[last], protocol="held-out", relevance=True)
        inside = {name: values.item() for name, values in measured.internal[last].numbers.items()}
        return {"insertion": measured.insertion.auc.item(), "deletion": measured.deletion.auc.item()} | inside

    yield "passes", scores
    yield "trust", lambda: trust(model, method, x, maps())


def main() -> None:
    """Run from the command line."""
    parser = asked("Measure the flagship in fewer passes.", 20)
    parser.add_argument("--trust", type=int, default=5, help="photographs with several maps each")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    options = parser.parse_args()
    model, scores = begun(options)
    for number, file in enumerate(drawn(options.photographs, options.count)):
        x = model.preprocess(file)[None]
        for setting in options.settings.split(","):
            for kind, compute in on_photograph(model, x, setting):
                row = {"network": options.name, "photograph": file.stem, "method": setting, "kind": kind}
                if kind == "passes" or number < options.trust:
                    scores.add(row, compute)
        print(f"{options.name}: {number + 1} of {options.count} photographs", flush=True)


if __name__ == "__main__":
    main()
