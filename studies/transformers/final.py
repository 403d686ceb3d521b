"""Measure the flagship on a transformer against its baselines and controls, on photographs that chose no setting.

    python studies/transformers/final.py NETWORK PHOTOGRAPHS --name NAME --count 40 --scores FILE

Photographs are drawn from a folder with seed 0; the first 20 chose the settings and are left out. Scores are taken over
held-out references and with patches dropped, the inside block by block. Each number is a line of JSON, written as it
comes; what a file holds already is not computed again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import fei
from fei import metrics
from fei.models import Classifier

sys.path.insert(0, str(Path(__file__).parents[1] / "flagship"))
from measure import CONTROLS, asked, begun, drawn, seeded, trust, whole

CHOSE = 20  # photographs that settings were chosen on
OWN = ["fei", "fei-none"]
CHEAP = ["libra-fullgrad", "generic-attention", "legrad", "attention-rollout", "vit-cx", "gradcam", "gradcam++"]
CHEAP += ["layercam", "xgradcam", "liftcam", "saliency"]
SLOW = ["smoothgrad", "integrated-gradients", "gradient-shap", "iia", "occlusion"]
EVERY_BLOCK = [*OWN, "libra-fullgrad", "generic-attention", "random"]
SEVERAL_MAPS = ["fei", "libra-fullgrad", "generic-attention", "gradcam"]


def on_photograph(
    model: Classifier, x: Tensor, method: str, *, trusts: bool
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The measurements of one method on one photograph, by kind."""
    made = fei.methods.create(method)
    kept: dict[str, Tensor] = {}
    blocks = [name for name, _ in model.named_modules() if name.rpartition(".")[0].endswith(".blocks")]
    looked_at = blocks if method in EVERY_BLOCK else blocks[-1:]

    def maps() -> Tensor:
        if "map" not in kept:
            kept["map"] = made(model, x, generator=seeded())
        return kept["map"]

    def curves(protocol: str, **options: Any) -> dict[str, float]:
        found = metrics.evaluate(model, x, maps(), protocol=protocol, **options)
        inside = {
            f"{block.rpartition('.')[2]} {name}": values.item()
            for block, similarity in found.internal.items()
            for name, values in similarity.numbers.items()
        }
        return {"insertion": found.insertion.auc.item(), "deletion": found.deletion.auc.item()} | inside

    yield "held-out", lambda: curves("held-out", layers=looked_at, relevance=True)
    yield "token-drop", lambda: curves("token-drop", layers=[])
    if trusts and method in SEVERAL_MAPS:
        yield "trust", lambda: trust(model, made, x, maps())


def main() -> None:
    """Run from the command line."""
    parser = asked("Measure the flagship on a transformer.", 40)
    parser.add_argument("--trials", type=int, default=30, help="of the black-image test")
    parser.add_argument("--trust", type=int, default=16, help="photographs with several maps each")
    parser.add_argument("--slow", type=int, default=10, help="photographs with the baselines of fifty passes and more")
    options = parser.parse_args()
    model, scores = begun(options)
    photographs = drawn(options.photographs, CHOSE + options.count)[CHOSE:]
    for number, file in enumerate(photographs):
        x = model.preprocess(file)[None]
        for method in [*OWN, *CHEAP, *CONTROLS, *(SLOW if number < options.slow else ())]:
            for kind, compute in on_photograph(model, x, method, trusts=number < options.trust):
                row = {"network": options.name, "photograph": file.stem, "method": method, "kind": kind}
                scores.add(row, compute)
        print(f"{options.name}: {number + 1} of {len(photographs)} photographs", flush=True)
    for kind, compute in whole(model, torch.zeros(0), "fei", options.trials):
        if kind == "black image":
            row = {"network": options.name, "photograph": "all", "method": "fei", "kind": kind}
            scores.add(row, compute)


if __name__ == "__main__":
    main()
