"""What the baselines share: inputs checked at the door, targets resolved, images in chunks of one shape."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fei.core.checks import check_batch_size, check_inputs, check_mode, default_rows, first_output
from fei.core.randomness import generator_for, image_digest
from fei.core.scoring import Score, Target, check_score, check_target, evaluate, logits_of
from fei.progress import Progress, reporter
from fei.references import References, ReferenceSpec


@dataclass(frozen=True)
class Task:
    """Images to explain, with everything a method may need.

    Attributes:
        model: The network.
        images: (n, C, H, W), n being the same in every chunk of a call.
        chosen: Explained class of each image.
        target: As the caller gave it; a callable scores the output itself.
        score: What is explained of the output.
        reference: R of each image, broadcastable to it.
        digests: Content of each image, to derive sub-seeds from.
        seed: Of whatever is random.
        rows: Rows in one forward pass, for methods that make many from an image.
    """

    model: nn.Module
    images: Tensor
    chosen: Tensor
    target: Target
    score: Score
    reference: Tensor
    digests: list[str]
    seed: int
    rows: int

    def phi(self, output: Any, copies: int = 1) -> Tensor:
        """The explained score of each row of an output in which every image stands `copies` times in a row."""
        return evaluate(output, self.target, self.chosen.repeat_interleave(copies), self.score)

    def generator(self, purpose: str) -> torch.Generator:
        """A generator for one purpose on the one image of this task."""
        (digest,) = self.digests
        return generator_for(self.seed, digest, purpose)


class Baseline(abc.ABC):
    """A method that makes maps from images chunk by chunk.

    Attributes:
        score: What it explains: "logit" unless its authors took the probability.
        one_by_one: Whether it takes one image at a time, because it makes many rows, or draws at random, for each; the
            batch size then bounds the rows of its own forward passes (`Task.rows`).
    """

    score: Score = "logit"
    one_by_one: bool = False

    @abc.abstractmethod
    def maps(self, task: Task) -> Tensor:
        """Maps (n, H, W) of a chunk of images."""

    def __call__(
        self,
        model: nn.Module,
        inputs: Tensor,
        target: Target = None,
        *,
        reference: ReferenceSpec = None,
        generator: torch.Generator | None = None,
        batch_size: int | None = None,
        progress: bool | Progress = False,
    ) -> Tensor:
        """Attribution maps (N, 1, H, W); see `fei.methods.Method`."""
        with torch.inference_mode(False), torch.enable_grad():
            x = check_inputs(inputs)
            check_mode(model)
            rows = check_batch_size(batch_size) or (default_rows(x) if self.one_by_one else 1)
            size = 1 if self.one_by_one else rows
            seed = 0 if generator is None else generator.initial_seed()
            classes = logits_of(first_output(model, x), 1).shape[1]
            given = check_target(target, len(x), classes)
            if not callable(target):
                check_score(self.score, classes)
            digests = [image_digest(image) for image in x]
            references = References(reference, x, digests, model, seed).values
            maps = []
            with reporter(progress, len(x)) as tick:
                for first in range(0, len(x), size):
                    # a short chunk is filled up with its last image: kernels differ by batch size
                    index = torch.arange(first, first + size, device=x.device).clamp(max=len(x) - 1)
                    images = x[index]
                    chosen = self._chosen(model, images, target) if given is None else given.to(x.device)[index]
                    task = Task(
                        model,
                        images,
                        chosen,
                        target,
                        self.score,
                        references[index],
                        [digests[i] for i in index.tolist()],
                        seed,
                        rows,
                    )
                    real = min(size, len(x) - first)
                    maps.append(self.maps(task).detach()[:real])
                    for _ in range(real):
                        tick()
        return torch.cat(maps)[:, None].to(torch.promote_types(x.dtype, torch.float32))

    @staticmethod
    def _chosen(model: nn.Module, images: Tensor, target: Target) -> Tensor:
        if callable(target):
            return torch.full((len(images),), -1, device=images.device)
        with torch.no_grad():
            return logits_of(model(images), len(images)).argmax(1)
