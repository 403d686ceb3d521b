"""What the flagship's map costs over the default of version 0.1, `fei-vm`, in turns in one process.

    python studies/flagship/cost.py NETWORK PHOTOGRAPHS --name NAME --count 3 --scores FILE

CPU seconds of one thread for the map alone, and with the evidence weighed; one photograph after the other, the first of
them twice, as the first time does not count. A line of JSON per photograph and way; what a file holds is not computed
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from measure import asked, begun, drawn, seeded
from torch import Tensor

import fei
from fei.models import Classifier

WAYS: dict[str, Callable[[Classifier, Tensor], object]] = {
    "fei-vm": lambda model, x: fei.FEI(model, "vm").attribute(x, generator=seeded()),
    "fei": lambda model, x: fei.FEI(model).attribute(x, generator=seeded()),
    "fei, evidence": lambda model, x: fei.FEI(model).explain(x, generator=seeded()),
}


def timed(model: Classifier, x: Tensor, way: str) -> Callable[[], dict[str, float]]:
    """How long one way takes."""

    def compute() -> dict[str, float]:
        started = time.process_time()
        WAYS[way](model, x)
        return {"cpu": time.process_time() - started}

    return compute


def main() -> None:
    """Run from the command line."""
    options = asked("Time the flagship against the default of version 0.1.", 3).parse_args()
    model, scores = begun(options)
    for number, file in enumerate(drawn(options.photographs, options.count)):
        x = model.preprocess(file)[None]
        for way in WAYS:
            if not number:
                WAYS[way](model, x)
            row = {"network": options.name, "photograph": file.stem, "method": way, "kind": "cost"}
            scores.add(row, timed(model, x, way))


if __name__ == "__main__":
    main()
