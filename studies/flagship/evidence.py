"""How often is evidence found where there is none, and missed where there is some?

    python studies/flagship/evidence.py NETWORK PHOTOGRAPHS --name NAME --count 70 --black 30 --scores FILE

Photographs are drawn from a folder with seed 0. Of each, `fei` explains a class that is not there, drawn from those
below a probability of .001, and the predicted class if its probability is at least .5. On black images it explains
classes drawn at random. A line of JSON for each holds what the masks keep; what a file holds is not computed again.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from measure import asked, begun, drawn, seeded
from torch import Tensor

import fei
from fei.models import Classifier

ABSENT, PREDICTED = 0.001, 0.5


def weigh(model: Classifier, x: Tensor, target: int) -> Callable[[], dict[str, float]]:
    """What `fei` finds for a class: whether there is evidence, and the numbers that say so."""

    def compute() -> dict[str, float]:
        found = fei.FEI(model).explain(x, target, generator=seeded()).evidence
        assert found is not None  # noqa: S101  # asked for by default
        kept = {f"kept {number}": value.item() for number, value in enumerate(found.kept[0])}
        chance = {f"chance {number}": value.item() for number, value in enumerate(found.chance[0])}
        return {"found": found.found.item(), "whole": found.whole.item(), "gain": found.gain.item()} | kept | chance

    return compute


def main() -> None:
    """Run from the command line."""
    parser = asked("Count the errors of the evidence.", 70)
    parser.add_argument("--black", type=int, default=30, help="how many black images")
    options = parser.parse_args()
    model, scores = begun(options)
    draw = random.Random(0)

    def add(photograph: str, kind: str, x: Tensor, target: int) -> None:
        row = {"network": options.name, "photograph": photograph, "method": "fei", "kind": kind, "class": target}
        scores.add(row, weigh(model, x, target))

    black = torch.zeros(1, 3, *model.preprocess(drawn(options.photographs, 1)[0]).shape[1:])
    classes = len(model(black)[0])
    for number in range(options.black):
        add(f"black {number}", "black", black, draw.randrange(classes))
    for number, file in enumerate(drawn(options.photographs, options.count)):
        x = model.preprocess(file)[None]
        with torch.no_grad():
            probabilities = model(x).double().softmax(1)[0]
        absent = torch.nonzero(probabilities < ABSENT).flatten().tolist()
        add(file.stem, "absent", x, draw.choice(absent))
        if probabilities.max() >= PREDICTED:
            add(file.stem, "predicted", x, int(probabilities.argmax()))
        print(f"{options.name}: {number + 1} of {options.count} photographs", flush=True)


if __name__ == "__main__":
    main()
