"""The work behind ``fei compare``."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fei import __version__, methods, models, protocols
from fei.cli._job import choose_device
from fei.cli._method_options import read_options
from fei.cli._outputs import prepare_folder
from fei.data import read_image
from fei.errors import InputError
from fei.metrics import Evaluation, evaluate
from fei.metrics.cost import Cost, measure_cost
from fei.report.comparison import comparison as draw
from fei.report.overlay import photo


@dataclass(frozen=True)
class Row:
    """One method's numbers on one image; MSE and cosine are those of the last layer."""

    method: str
    insertion: float
    deletion: float
    mse: float
    cosine: float
    forwards: float
    backwards: float
    seconds: float
    ties: float


class Comparison:
    """A network and several methods, ready for images."""

    def __init__(
        self,
        model: str,
        names: Sequence[str],
        target: str | None,
        protocol: str,
        layers: Sequence[str] | None,
        seed: int,
        steps: int | None,
        preset: str | None,
        device: str,
        batch_size: int | None,
        options: Sequence[str] = (),
    ) -> None:
        entries = [methods.describe(name) for name in _expand(names)]
        given = {name: value for name, value in {"steps": steps, "preset": preset}.items() if value is not None}
        told = read_options(options, entries)
        self._methods = {
            entry.name: methods.create(
                entry.name, **{o.name: given[o.name] for o in entry.options if o.name in given} | told[entry.name]
            )
            for entry in entries
        }
        self._protocol = protocols.get(protocol)
        self._device = choose_device(device)
        with contextlib.redirect_stdout(sys.stderr):
            self._model = models.load(model).to(self._device)
        self._target = None if target is None else self._model.index(target)
        self._layers, self._seed, self._batch_size, self._spec = layers, seed, batch_size, model

    def run(
        self, image: Path, folder: Path, name: str, *, progress: bool, tell: Callable[[str], None] | None
    ) -> tuple[list[Row], dict[str, Any]]:
        """Compare on one image; writes the figure and the numbers under a name, and returns them."""
        x = self._model.preprocess(read_image(image))[None].to(self._device)
        prepare_folder(folder)
        with torch.no_grad():
            probabilities = self._model(x).softmax(1)[0]
        target = int(probabilities.argmax()) if self._target is None else self._target
        maps: dict[str, Tensor] = {}
        evaluations: dict[str, Evaluation] = {}
        rows = []
        for label, method in self._methods.items():
            if tell is not None:
                tell(f"{image.name}: {label}")
            maps[label], cost = measure_cost(
                self._model,
                partial(
                    method,
                    self._model,
                    x,
                    target,
                    generator=torch.Generator().manual_seed(self._seed),
                    batch_size=self._batch_size,
                    progress=progress,
                ),
            )
            evaluations[label] = self._evaluate(x, maps[label], target)
            rows.append(_row(label, evaluations[label], cost))
        headline = f"{self._model.label(target)}, {probabilities[target]:.1%} ({self._spec}, {self._protocol.id})"
        planes = {name: m[0, 0].cpu().numpy() for name, m in maps.items()}
        figure = folder / f"{name}.comparison.png"
        draw(photo(x[0]), planes, evaluations, headline).savefig(figure)
        document = {
            "schema": 1,
            "image": str(image),
            "model": self._spec,
            "target": {"index": target, "label": self._model.label(target)},
            "headline": headline,
            "protocol": protocols.describe(self._protocol),
            "seed": self._seed,
            "figure": str(figure),
            "versions": {"fei": __version__, "torch": str(torch.__version__)},
            "methods": [
                asdict(row)
                | {"config": getattr(self._methods[row.method], "config", {})}
                | _curves(evaluations[row.method])
                for row in rows
            ],
        }
        (folder / f"{name}.comparison.json").write_text(json.dumps(document, indent=2) + "\n")
        return rows, document

    def _evaluate(self, x: Tensor, maps: Tensor, target: int) -> Evaluation:
        return evaluate(
            self._model,
            x,
            maps,
            target,
            layers=self._layers,
            protocol=self._protocol,
            generator=torch.Generator().manual_seed(self._seed),
            batch_size=self._batch_size,
        )


def _row(name: str, evaluation: Evaluation, cost: Cost) -> Row:
    last = list(evaluation.internal.values())[-1]
    return Row(
        name,
        evaluation.insertion.auc.item(),
        evaluation.deletion.auc.item(),
        last.mse.item(),
        last.cosine.item(),
        cost.forwards,
        cost.backwards,
        cost.seconds,
        evaluation.insertion.ties.item(),
    )


def _curves(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "curves": {
            "fractions": evaluation.insertion.fractions.tolist(),
            "insertion": evaluation.insertion.scores[0].tolist(),
            "deletion": evaluation.deletion.scores[0].tolist(),
        },
        "layers": {
            layer: {metric: values[0].item() for metric, values in vars(similar).items()}
            for layer, similar in evaluation.internal.items()
        },
    }


def _expand(names: Sequence[str]) -> list[str]:
    expanded: list[str] = []
    for name in names:
        pattern = "*" if name.strip() == "all" else name.strip()
        found = methods.available(pattern) if "*" in pattern else [methods.describe(pattern).name]
        if not found:
            raise InputError(f"No method matches '{name}'; see 'fei methods'.")
        expanded += [one for one in found if one not in expanded]
    return expanded
