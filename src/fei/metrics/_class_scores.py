"""φ of each image's class, on the image and on altered copies of it, in batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from fei.common.layout import Layout
from fei.core.checks import check_batch_size, check_inputs, check_mode, default_rows, explained_failure
from fei.core.scoring import Score, Target, check_score, check_target, evaluate, logits_of, named_target
from fei.errors import ModelError


class ClassScores:
    """Reads φ without gradients; the class of an image stays the one its original was given.

    Args:
        model: The classifier, in evaluation mode; only ever called.
        inputs: Images (N, C, H, W).
        target: As in `fei.FEI.explain`; ``None`` for the model's top class.
        score: As in `fei.FEI`.
        batch_size: Rows in one forward pass.

    Attributes:
        inputs: A private copy of the images.
        chosen: The class of each image, −1 where `target` is a callable, (N,).
        original: φ on the images themselves, in double precision on the CPU, (N,).
    """

    def __init__(self, model: nn.Module, inputs: Tensor, target: Target, score: Score, batch_size: int | None) -> None:
        self.inputs = check_inputs(inputs)
        check_mode(model)
        self.rows = check_batch_size(batch_size) or default_rows(self.inputs)
        self._model, self._target, self._score = model, target, score
        self._layout = Layout()
        check_score(score)
        if callable(target):
            self.chosen = torch.full((len(self.inputs),), -1)
            self.original = self.of(zip(range(len(self.inputs)), self.inputs, strict=True))
            return
        with torch.no_grad():
            logits = torch.cat([logits_of(self._run(chunk), len(chunk)) for chunk in self.inputs.split(self.rows)])
        check_score(score, logits.shape[1])
        given = check_target(named_target(model, target), len(self.inputs), logits.shape[1])
        chosen = logits.argmax(1) if given is None else given.to(logits.device)
        self.chosen = chosen.cpu()
        self.original = _finite(evaluate(logits, target, chosen, score))

    def _run(self, rows: Tensor) -> Any:
        with explained_failure(rows):
            return self._layout.run(self._model, rows)

    @torch.no_grad()
    def of(self, altered: Iterable[tuple[int, Tensor]]) -> Tensor:
        """φ of altered images (C, H, W), each given with the number of its original: double precision, on the CPU."""
        found, numbers, images = [], list[int](), list[Tensor]()

        def forward() -> None:
            batch = torch.stack(images).to(self.inputs)
            chosen = self.chosen[numbers].to(batch.device)
            found.append(_finite(evaluate(self._run(batch), self._target, chosen, self._score)))
            numbers.clear()
            images.clear()

        for number, image in altered:
            numbers.append(number)
            images.append(image)
            if len(images) == self.rows:
                forward()
        if images:
            forward()
        return torch.cat(found)


def _finite(scores: Tensor) -> Tensor:
    if not scores.isfinite().all():
        raise ModelError("The score of an image is NaN or infinite; check the network's precision.")
    return scores.detach().cpu().double()
