"""Explaining images one after the other: all that can be checked beforehand is checked beforehand."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fei import methods, models, protocols
from fei.common.device import choose_device as choose_device
from fei.common.words import in_brief
from fei.core.explanation import Explanation
from fei.core.scoring import top_classes
from fei.data import read_image
from fei.errors import InputError, ModelError
from fei.references import Reference
from fei.report import panel, photo
from fei.report.explorer import Shown
from fei.report.overlay import figure_bytes
from fei.service import collect
from fei.service import outputs as _outputs
from fei.service.options import read_options
from fei.service.provenance import Making, code
from fei.service.record import Finding, Prediction, array_bytes, make_record, record_text
from fei.service.request import Request

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

_SEEDS = 2**63
_MOST_OF_SPEC = 40  # a path may be longer than the picture is wide


class Job:
    """A network and a method, ready for images.

    Args:
        request: What to do.

    Raises:
        InputError: If something was asked for that there is not.
        ModelError: If the network cannot be loaded or does not work.
    """

    def __init__(self, request: Request) -> None:
        if not 0 <= request.seed < _SEEDS:
            raise InputError(f"The seed is {request.seed}; give a whole number from 0 to {_SEEDS - 1}.")
        given = {"steps": request.steps, "preset": request.preset}
        options = {name: value for name, value in given.items() if value is not None}
        self.request = request
        entry = methods.describe(request.method)
        self.method_name = entry.name
        self.method = methods.create(entry.name, **options | read_options(request.options, [entry])[entry.name])
        if request.reference is not None:
            Reference(request.reference)  # refuses what does not exist
        self.device = choose_device(request.device)
        with contextlib.redirect_stdout(sys.stderr):  # what a user's own network prints is not our result
            self.classifier = models.load(request.model).to(self.device)
            classes = self._try_out()
        self.target = None if request.target is None else self.classifier.index(request.target)
        if self.target is not None and self.target >= classes:
            raise InputError(f"There is no class {self.target}; the classes are numbered 0 to {classes - 1}.")

    def explain(self, image: Path, folder: Path, name: str, *, progress: bool) -> dict[str, Any]:
        """Explain one image and write the results.

        Args:
            image: The image file.
            folder: Where results go.
            name: What they are called there, without their endings.
            progress: Whether to show a bar.

        Returns:
            The record, as it was written, with the paths of the files.
        """
        inputs = self.classifier.preprocess(read_image(image))[None].to(self.device)
        with contextlib.redirect_stdout(sys.stderr):
            prediction = self._predict(inputs)
            started = time.perf_counter()
            finding = self._find(inputs, prediction, progress=progress)
        seconds = time.perf_counter() - started
        record = make_record(image, self.request, self.classifier, prediction, finding, seconds)
        contents: dict[str, bytes | str] = {"map": array_bytes(finding.attribution), "record": record_text(record)}
        if finding.explanation is not None:
            contents["explanation"] = finding.explanation.to_bytes()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # a class name in a script that the font lacks
            contents["picture"] = figure_bytes(self._picture(inputs, finding, record))
        _outputs.write_results(folder, name, contents)
        return record | {"files": _outputs.result_files(folder, name)}

    def shown(self, record: dict[str, Any]) -> Shown:
        """What an explorer shows of an image that was explained; the results are read and measured, not made again."""
        files, target = record["files"], record["target"]["index"]
        found = (
            Explanation.load(files["explanation"])
            if "explanation" in files
            else torch.from_numpy(np.load(files["map"]))[None, None]
        )
        request, image = self.request, record["image"]["path"]
        (shown,) = collect(
            self.classifier,
            [image],
            {self.method_name: found},
            target=self.target,
            seed=request.seed,
            reference=request.reference,
            batch_size=request.batch_size,
        )
        making = Making(
            self.classifier,
            [image],
            {self.method_name: self.method},
            self.target is not None,
            request.seed,
            protocols.get(shown.protocol),
            request.reference,
        )
        panels = [replace(panel, config=getattr(self.method, "config", {})) for panel in shown.panels]
        return replace(shown, panels=panels, code=code(making, 0, target), command=f"{record['command']} --html")

    def _try_out(self) -> int:
        """Run the network once on grey, and count its classes: a network that fails should fail before the work."""
        side = self.classifier.input_size
        try:
            with torch.no_grad():
                logits = self.classifier(torch.full((1, 3, side, side), 0.5, device=self.device))
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(
                f"The network '{self.request.model}' fails on an image of {side} × {side} pixels "
                f"({in_brief(error)}); it must take RGB in [0, 1] of shape (N, 3, H, W)."
            ) from error
        if logits.ndim != 2:
            raise ModelError(
                f"The network '{self.request.model}' returns the shape {tuple(logits.shape)} for one image; it must "
                "return logits of shape (1, classes)."
            )
        return int(logits.shape[1])

    @torch.no_grad()
    def _predict(self, inputs: Tensor) -> Prediction:
        probabilities = self.classifier(inputs).float().softmax(1)[0]
        if not probabilities.isfinite().all():
            raise ModelError(
                f"The network '{self.request.model}' returns NaN or infinite values for this image; check its weights "
                "and that it takes RGB in [0, 1]."
            )
        values, classes = top_classes(probabilities, 5)
        return Prediction(classes.tolist(), values.tolist(), probabilities.tolist())

    def _find(self, inputs: Tensor, prediction: Prediction, *, progress: bool) -> Finding:
        arguments: dict[str, Any] = {
            "reference": self.request.reference,
            "generator": torch.Generator().manual_seed(self.request.seed),
            "batch_size": self.request.batch_size,
            "progress": progress,
        }
        chosen_by = "prediction" if self.target is None else "option"
        explain = getattr(self.method, "explain", None)
        if explain is None:  # a method that gives a map and no more
            maps = self.method(self.classifier, inputs, self.target, **arguments)
            target = prediction.classes[0] if self.target is None else self.target
            return Finding(self.method_name, _plane(maps), target, chosen_by, None, self._config())
        explanation = explain(self.classifier, inputs, self.target, **arguments)
        target = int(explanation.target[0])
        return Finding(
            self.method_name, _plane(explanation.maps), target, chosen_by, explanation, dict(explanation.config)
        )

    def _config(self) -> dict[str, Any]:
        return {"settings": getattr(self.method, "config", {}), "threads": torch.get_num_threads()}

    def _picture(self, inputs: Tensor, finding: Finding, record: dict[str, Any]) -> Figure:
        best, target = record["prediction"], record["target"]
        explained = "the prediction" if target["index"] == best["index"] else f"{target['probability']:.1%}"
        facts = [
            f"explained: {target['label']} ({explained})",
            finding.method,
            self.request.model
            if len(self.request.model) <= _MOST_OF_SPEC
            else f"…{self.request.model[-_MOST_OF_SPEC:]}",
        ]
        if finding.explanation is not None:
            facts.append(f"steps {finding.explanation.config['settings']['steps']}")
        facts.append(f"seed {self.request.seed}")
        headline = f"Predicted: {best['label']}, {best['probability']:.1%}"
        return panel(photo(inputs[0]), finding.attribution, headline=headline, details="  ·  ".join(facts))


def _plane(maps: Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    plane: np.ndarray[Any, np.dtype[np.float32]] = maps[0, 0].detach().cpu().float().numpy()
    return plane
