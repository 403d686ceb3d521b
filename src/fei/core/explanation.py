"""What FEI found, and everything needed to judge or repeat it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fei.common.files import write_file
from fei.core.evidence import Evidence
from fei.core.settings import PREVIEW
from fei.errors import DataError, InputError

SCHEMA = 1
_MAX_BYTES = 8 << 30
_REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_WHOLE = (torch.int64, torch.int32)
# The tensors of an explanation and of its trace.
_OWN = ("maps", "alphas", "target", "inputs", "reference")
_COURSE = ("phi", "area", "stopped")


@dataclass(frozen=True)
class Trace:
    """The course of an optimisation.

    Attributes:
        phi: The score on the perturbed image before the first step and after each, (N, masks, steps + 1).
        area: The mean of each mask likewise.
        stopped: The step after which early stopping froze a mask, −1 where it did not act, (N, masks).
        clipped: For each clip site, the share of units with a gradient that lost it in the last step, (N, masks).
    """

    phi: Tensor
    area: Tensor
    stopped: Tensor
    clipped: Mapping[str, Tensor]


@dataclass(frozen=True, repr=False)
class Explanation:
    """The result of `FEI.explain`.

    Attributes:
        maps: Attribution maps M = mean over quantiles of α, (N, 1, H, W), and with a `prior` the evidence of the class.
        alphas: One mask per quantile, (N, masks, 1, H, W), or with the colour channels apart (N, masks, C, H, W).
        target: The explained class of each image, (N,); the model's top class where none was given.
        inputs: The images.
        reference: R of each image, broadcastable to it.
        trace: How φ and the area went.
        config: Settings, clip sites, versions, chunk shape, thread count, image digests.
        evidence: How much of the score the masks keep, against chance; ``None`` where it was not asked for.

    Examples:
        >>> result = fei.FEI(model, "vm", steps=2).explain(images[:1])
        >>> tuple(result.maps.shape), tuple(result.alphas.shape)  # a map, and a mask for each of five quantiles
        ((1, 1, 16, 16), (1, 5, 1, 16, 16))
        >>> result.save("cat.safetensors").name
        'cat.safetensors'
        >>> torch.equal(fei.Explanation.load("cat.safetensors").maps, result.maps)
        True
    """

    maps: Tensor
    alphas: Tensor
    target: Tensor
    inputs: Tensor
    reference: Tensor
    trace: Trace
    config: Mapping[str, Any]
    evidence: Evidence | None = None

    @property
    def preview(self) -> bool:
        """Whether this is a preview, made in few steps to look at while waiting."""
        return bool(self.config["settings"].get("preset") == PREVIEW)

    def __repr__(self) -> str:
        images, masks = self.alphas.shape[:2]
        classes = ", ".join(map(str, self.target.tolist()[:5])) + (", …" if images > 5 else "")
        size = " × ".join(map(str, self.maps.shape[-2:]))
        found = "" if self.evidence is None else f", evidence found in {int(self.evidence.found.sum())}"
        settings = f"{self.config['settings']['variant']}, {self.config['settings']['steps']} steps"
        kind = "a preview, " if self.preview else ""
        return (
            f"Explanation({kind}{images} image(s) of {size}, class {classes}, {masks} mask(s) each, {settings}{found})"
        )

    def perturbed(self) -> Tensor:
        """The images the optimisation ended with, x̃ of each mask, (N, masks, C, H, W)."""
        x, r = self.inputs[:, None], self.reference[:, None].to(self.inputs)
        if self.config["settings"]["objective"] == "deletion":
            x, r = r, x
        return torch.lerp(r.expand_as(x) if r.numel() <= x.numel() else r, x, self.alphas.to(self.inputs))

    def show(self) -> Any:
        """A figure of each image, its map and its masks (matplotlib).

        A notebook shows it as the value of a cell; a script on a desktop opens a window; anywhere ``savefig`` works.
        """
        from fei.report.drawing import figure, opened

        return opened(figure(self))

    def _repr_html_(self) -> str:
        from fei.report.explorer.notebook import explanation_html

        return explanation_html(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write tensors and configuration to one safetensors file, whole or not at all."""
        return write_file(Path(path), self.to_bytes(), what="explanation")

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        from safetensors.torch import save

        tensors = {name: getattr(self, name) for name in _OWN}
        tensors |= {f"trace.{name}": getattr(self.trace, name) for name in _COURSE}
        tensors |= {f"clipped.{site}": share for site, share in self.trace.clipped.items()}
        tensors |= {} if self.evidence is None else {f"evidence.{name}": t for name, t in vars(self.evidence).items()}
        metadata = {"schema": str(SCHEMA), "config": json.dumps(dict(self.config))}
        return save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Explanation:
        """Read what `save` wrote."""
        from safetensors import SafetensorError, safe_open

        path = Path(path)
        if not path.is_file():
            raise InputError(f"There is no explanation file at {path}; give one written by Explanation.save.")
        if path.stat().st_size > _MAX_BYTES:
            raise DataError(f"{path} is larger than {_MAX_BYTES >> 30} GiB; give an explanation file.")
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            schema = int(metadata["schema"])
            if schema > SCHEMA:
                raise DataError(f"{path} has schema {schema}, beyond {SCHEMA}, the last one known here; upgrade fei.")
            clipped = {k.removeprefix("clipped."): t for k, t in tensors.items() if k.startswith("clipped.")}
            trace = Trace(**{name: tensors[f"trace.{name}"] for name in _COURSE}, clipped=clipped)
            config = json.loads(metadata["config"])
            told = {k.removeprefix("evidence."): t for k, t in tensors.items() if k.startswith("evidence.")}
            evidence = Evidence(**told) if told else None
            explanation = cls(**{name: tensors[name] for name in _OWN}, trace=trace, config=config, evidence=evidence)
            _check(explanation)
        except (SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
            reason = f"{type(error).__name__}: {str(error)[:200]}"
            raise DataError(f"{path} is not an explanation file, or is damaged ({reason}); save it anew.") from error
        return explanation


def _check(explanation: Explanation) -> None:
    """See that tensors and settings belong together; a ValueError, KeyError or TypeError if they do not."""
    trace, settings = explanation.trace, explanation.config["settings"]
    images, masks, _, *size = explanation.alphas.shape
    channels = explanation.inputs.shape[1]
    shapes: dict[str, tuple[Tensor, list[tuple[int, ...]], tuple[torch.dtype, ...]]] = {
        "maps": (explanation.maps, [(images, 1, *size)], _REAL),
        "alphas": (explanation.alphas, [(images, masks, 1, *size), (images, masks, channels, *size)], _REAL),
        "inputs": (explanation.inputs, [(images, channels, *size)], _REAL),
        "target": (explanation.target, [(images,)], _WHOLE),
        "trace.area": (trace.area, [trace.phi.shape], _REAL),
        "trace.phi": (trace.phi, [(images, masks, trace.phi.shape[-1] or -1)], _REAL),
        "trace.stopped": (trace.stopped, [(images, masks)], _WHOLE),
    }
    shapes |= {f"clipped.{site}": (share, [(images, masks)], _REAL) for site, share in trace.clipped.items()}
    if (evidence := explanation.evidence) is not None:
        told = {"kept": (images, masks), "chance": (images, masks), "whole": (images,)}
        shapes |= {f"evidence.{name}": (getattr(evidence, name), [shape], _REAL) for name, shape in told.items()}
    for name, (tensor, expected, kinds) in shapes.items():
        if tuple(tensor.shape) not in expected or tensor.dtype not in kinds or not images * masks:
            raise ValueError(f"'{name}' has the shape {tuple(tensor.shape)} and the type {tensor.dtype}")
    reference = explanation.reference
    whole = explanation.inputs.shape
    if len(reference.shape) != len(whole) or any(a not in (1, b) for a, b in zip(reference.shape, whole, strict=True)):
        raise ValueError(f"'reference' has the shape {tuple(reference.shape)}")
    quantiles, one_mask = settings["quantiles"], settings["constraint"] in ("l1", "none")
    fits = isinstance(quantiles, list) and masks == (1 if one_mask else len(quantiles))
    if not fits or not all(isinstance(q, float) for q in quantiles):
        raise ValueError(f"the quantiles are {quantiles!r}"[:200])
    for name in ("constraint", "objective"):
        if not isinstance(settings[name], str):
            raise ValueError(f"the {name} is {settings[name]!r}"[:200])
