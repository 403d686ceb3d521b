"""The work behind ``fei compare``."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fei import __version__, methods, models, protocols
from fei.cli._job import choose_device
from fei.common.files import prepare_folder, write_files
from fei.data import read_image
from fei.errors import InputError
from fei.metrics import BlackImage, Cost, Evaluation
from fei.report.comparison import comparison as draw
from fei.report.explorer import Shown
from fei.report.overlay import figure_bytes, photo
from fei.service import black_images, collect
from fei.service.options import read_options


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

    def black_images(self, trials: int, *, tell: Callable[[str], None] | None) -> dict[str, BlackImage]:
        """The black-image test of the methods that it can test. It needs no image, so once is enough."""
        return black_images(self._model, self._methods, trials, seed=self._seed, batch_size=self._batch_size, tell=tell)

    def shown(
        self,
        image: Path,
        *,
        progress: bool,
        tell: Callable[[str], None] | None,
        tests: Mapping[str, BlackImage] | None = None,
    ) -> Shown:
        """Compare on one image, and write nothing; arguments as for `run`."""
        (shown,) = collect(
            self._model,
            [image],
            self._methods,
            target=self._target,
            seed=self._seed,
            protocol=self._protocol,
            layers=self._layers,
            black_image=tests or {},
            batch_size=self._batch_size,
            progress=progress,
            tell=tell,
        )
        return shown

    def run(
        self,
        image: Path,
        folder: Path,
        name: str,
        *,
        progress: bool,
        tell: Callable[[str], None] | None,
        tests: Mapping[str, BlackImage],
    ) -> tuple[list[Row], dict[str, Any], Shown]:
        """Compare on one image.

        Args:
            image: The image file.
            folder: Where the figure and the numbers go.
            name: What they are called there.
            progress: Whether to show bars.
            tell: Is told what comes next.
            tests: What the black-image test said of methods.

        Returns:
            A row a method, the numbers as they were written, and what an explorer shows.
        """
        read_image(image)  # what cannot be read is told before a folder is made
        prepare_folder(folder)
        shown = self.shown(image, progress=progress, tell=tell, tests=tests)
        evaluations = {panel.method: panel.evaluation for panel in shown.panels if panel.evaluation is not None}
        rows = [_row(panel.method, evaluations[panel.method], panel.cost) for panel in shown.panels]
        headline = f"{shown.label}, {shown.probability:.1%} ({self._spec}, {self._protocol.id})"
        planes = {panel.method: panel.map.numpy() for panel in shown.panels}
        figure = folder / f"{name}.comparison.png"
        picture = draw(photo(shown.image), planes, evaluations, headline)
        document = {
            "schema": 1,
            "image": str(image),
            "model": self._spec,
            "target": {"index": shown.target, "label": shown.label},
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
        text = json.dumps(document, indent=2) + "\n"
        write_files(folder, {figure.name: figure_bytes(picture), f"{name}.comparison.json": text})
        return rows, document, shown


def _row(name: str, evaluation: Evaluation, cost: Cost | None) -> Row:
    last = list(evaluation.internal.values())[-1]
    return Row(
        name,
        evaluation.insertion.auc.item(),
        evaluation.deletion.auc.item(),
        last.mse.item(),
        last.cosine.item(),
        0 if cost is None else cost.forwards,
        0 if cost is None else cost.backwards,
        0 if cost is None else cost.seconds,
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
