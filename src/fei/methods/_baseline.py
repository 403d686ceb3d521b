"""What the baselines share: inputs checked at the door, targets resolved, images in chunks of one shape."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fei.common.layout import Layout
from fei.common.threads import alone_with
from fei.core.checks import all_finite, check_call, check_finite, default_rows, explained_failure
from fei.core.dataflow import Flow, trace
from fei.core.focus import find_focus
from fei.core.randomness import generator_for, image_digest, seed_of
from fei.core.scoring import Score, Target, check_range, check_score, check_target, evaluate, logits_of
from fei.core.stream import Stream, find_stream
from fei.errors import ModelError
from fei.methods._call import MethodCall, called_with
from fei.models.layers import feature_layers
from fei.progress import reporter
from fei.references import References, ReferenceSpec

_NO_LAYER = "The network has no spatial feature layer; name a layer, or use another method."


class Survey:
    """What a call finds out about a network: each fact once, and only if it is asked for.

    Attributes:
        model: The network.
        layout: How its rows are laid out.
    """

    def __init__(self, model: nn.Module, x: Tensor) -> None:
        self.model, self.layout, self._image = model, Layout(), x[:1]

    @cached_property
    def flow(self) -> Flow:
        """Its data flow."""
        with explained_failure(self._image):
            flow, _ = trace(self.model, self._image)
        return flow

    @cached_property
    def classes(self) -> int:
        """How many classes it has."""
        with torch.no_grad(), explained_failure(self._image):
            return int(check_finite(logits_of(self.model(self._image.clone()), 1)).shape[1])

    @cached_property
    def feature_layers(self) -> Sequence[str]:
        """Names of its feature layers, from shallow to deep."""
        return feature_layers(self.model, self._image)

    @property
    def last_feature_layer(self) -> str:
        """The name of the deepest of them."""
        if not self.feature_layers:
            raise ModelError(_NO_LAYER)
        return self.feature_layers[-1]

    @cached_property
    def feature_layer(self) -> str:
        """Where features are taken from by default: the deepest feature layer, of a transformer its `token_layer`."""
        return self.feature_layers[-1] if self.feature_layers else self.token_layer

    @cached_property
    def token_layer(self) -> str:
        """The deepest layer of tokens, or of maps with channels last, whose patches have a say in the logits."""

        def score(output: Any) -> Tensor:
            return logits_of(output, 1).amax(1)

        found = find_focus(self.model, self.flow, self._image, None, score)
        if found is None or found.grid.layout == "map" or ":" in found.site.name:  # no module's output
            raise ModelError(_NO_LAYER)
        return found.site.name

    @property
    def places(self) -> Sequence[str]:
        """Layers from which a CAM can be made, the default among them."""
        try:
            return [self.token_layer]
        except ModelError:
            return self.feature_layers[-1:]

    @cached_property
    def stream(self) -> Stream:
        """Its tokens and where it attends to them, if it is a plain transformer."""
        return find_stream(self.model, self.flow)


class Batch:
    """The images of a call, and what is random about them: found once, and only if it is asked for.

    Args:
        images: All of them, (N, C, H, W).
        reference: What the caller says of R.
        model: The network.
        seed: Of whatever is random.
    """

    def __init__(self, images: Tensor, reference: ReferenceSpec, model: nn.Module, seed: int) -> None:
        self.images, self.seed = images, seed
        self._reference, self._model = reference, model
        if reference is not None:
            self.references  # noqa: B018  # what is wrong with it shows now

    @cached_property
    def digests(self) -> list[str]:
        """Content of each image, to derive sub-seeds from."""
        return [image_digest(image) for image in self.images]

    @cached_property
    def references(self) -> Tensor:
        """R of each image, broadcastable to it."""
        return References(self._reference, self.images, self.digests, self._model, self.seed).values


@dataclass(frozen=True)
class Task:
    """Images to explain, with everything a method may need.

    Attributes:
        survey: The network, and what is known of it.
        batch: All images of the call.
        index: Which of them these are, n, the same number in every chunk of a call.
        given: Class of each image, if the caller named one.
        target: As the caller gave it; a callable scores the output itself.
        score: What is explained of the output.
        rows: Rows in one forward pass, for methods that make many from an image.
        advance: To be told what share of the work on these images is done.

    Examples:
        >>> class Score(fei.methods.Baseline):
        ...     def maps(self, task):  # the score of each image, the same for each of its pixels
        ...         return task.phi(task.run(task.images))[:, None, None].expand(-1, *task.images.shape[2:])
        >>> torch.allclose(Score()(model, images, target=1)[:, 0, 0, 0], model(images)[:, 1], atol=1e-5)
        True
    """

    survey: Survey
    batch: Batch
    index: Tensor
    given: Tensor | None
    target: Target
    score: Score
    rows: int
    advance: Callable[[float], None]

    @cached_property
    def images(self) -> Tensor:
        """The images, (n, C, H, W)."""
        return self.batch.images[self.index]

    @cached_property
    def reference(self) -> Tensor:
        """R of each image, broadcastable to it."""
        return self.batch.references[self.index]

    @property
    def digests(self) -> list[str]:
        """Content of each image, to derive sub-seeds from."""
        return [self.batch.digests[place] for place in self.index.tolist()]

    @property
    def seed(self) -> int:
        """Of whatever is random."""
        return self.batch.seed

    @property
    def model(self) -> nn.Module:
        """The network."""
        return self.survey.model

    @cached_property
    def chosen(self) -> Tensor:
        """Explained class of each image; −1 where a callable scores the output."""
        if callable(self.target):
            return torch.full((len(self.images),), -1, device=self.images.device)
        if self.given is not None:
            check_range(self.given, self.survey.classes)
            check_score(self.score, self.survey.classes)
            return self.given
        with torch.no_grad():
            return self._top_classes(self.observe(lambda: self.model(self.images.clone())))

    def observe(self, run: Callable[[], Any]) -> Any:
        """The output of a pass on the images themselves, which says how many classes there are, and the top ones."""
        with explained_failure(self.images):
            output = run()
        if not callable(self.target):
            logits = check_finite(logits_of(output, len(self.images)))
            self.survey.__dict__["classes"] = logits.shape[1]  # spares a pass to count
            check_score(self.score, self.survey.classes)
            if self.given is None:
                self.__dict__["chosen"] = self._top_classes(output)  # spares a pass to choose
        return output

    def run(self, rows: Tensor) -> Any:
        """The network's output for rows (b, C, H, W) made from the images, in the layout it is fastest in."""
        return self.survey.layout.run(self.model, rows)

    def phi(self, output: Any, copies: int = 1) -> Tensor:
        """The explained score of each row of an output in which every image stands `copies` times in a row."""
        return evaluate(output, self.target, self.chosen.repeat_interleave(copies), self.score)

    def _top_classes(self, output: Any) -> Tensor:
        return logits_of(output, len(self.images)).detach().argmax(1)

    def scored(self, expected: int | None = None) -> Callable[[Tensor], Tensor]:
        """The network as captum wants it: one number per row, the rows being versions of the images, also repeated.

        Args:
            expected: How many rows there will be in all, for progress.
        """
        done = 0

        def forward(rows: Tensor) -> Tensor:
            nonlocal done
            done += len(rows)
            chosen = self.chosen.repeat(-(-len(rows) // len(self.chosen)))[: len(rows)]
            scores = evaluate(self.run(rows), self.target, chosen, self.score)
            if expected is not None:
                self.advance(min(1.0, done / expected))
            return scores

        return forward

    def generator(self, purpose: str) -> torch.Generator:
        """A generator for one purpose on the one image of this task."""
        (digest,) = self.digests
        return generator_for(self.seed, digest, purpose)


def checked(default: Any, check: Callable[[str, Any], object]) -> Any:
    """The field of an option whose value is looked at by `check`, which is called with the name and the value.

    Examples:
        >>> from dataclasses import dataclass
        >>> def small(name, value):
        ...     if value > 9:
        ...         raise ValueError(f"{name} is too large")
        >>> @dataclass
        ... class Constant(fei.methods.Baseline):
        ...     value: int = fei.methods.checked(1, small)
        ...     def maps(self, task):
        ...         return torch.full_like(task.images[:, 0], self.value)
        >>> Constant(value=10)
        Traceback (most recent call last):
        ValueError: value is too large
    """
    return field(default=default, metadata={"check": check})


class Baseline(abc.ABC):
    """A method that makes maps from images chunk by chunk.

    Its options are the fields of a dataclass; those that not every value suits are `checked`.

    Attributes:
        score: What it explains: "logit" unless its authors took the probability.
        one_by_one: Whether it takes one image at a time, because it makes many rows, or draws at random, for each; the
            batch size then bounds the rows of its own forward passes (`Task.rows`).
        observes: Whether its first pass is on the images themselves, through `Task.observe`, so that none needs to be
            made for it to find out the classes.
        rows_per_image: How many rows each image of a chunk takes in a forward pass.
        parts: Into how many parts progress divides the work on an image.
        version: Raised when the same options give another map than before: it is part of the configuration, and so of
            the keys of a benchmark's units, and no stale score is taken over.
        package: The package that brings it as a plug-in, with its version; part of the configuration, too.

    Examples:
        >>> class Contrast(fei.methods.Baseline):
        ...     def maps(self, task):
        ...         grey = task.images.mean(1)
        ...         return (grey - grey.mean((1, 2), keepdim=True)).abs()
        >>> tuple(Contrast()(model, images).shape)
        (2, 1, 16, 16)
    """

    score: Score = "logit"
    one_by_one: ClassVar[bool] = False
    observes: ClassVar[bool] = False
    rows_per_image: int = 1
    parts: ClassVar[int] = 1
    version: ClassVar[int] = 1
    package = ""  # no field of those that are dataclasses

    def __post_init__(self) -> None:
        """Refuse bad options."""
        for known in fields(self):  # type: ignore[arg-type]  # those that are no dataclass do not come here
            if "check" in known.metadata:
                known.metadata["check"](known.name, getattr(self, known.name))
        check_score(self.score)

    @property
    def config(self) -> dict[str, Any]:
        """Its options as plain data, what is explained (logit or probability) among them, and where it comes from.

        That is its version if that is not 1, and the package of a plug-in.
        """
        config = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        plain = {name: value if _is_plain(value) else repr(value) for name, value in config.items()}
        return plain | ({"version": self.version} if self.version > 1 else {}) | self._origin

    @property
    def _origin(self) -> dict[str, Any]:
        return {"package": self.package} if self.package else {}

    @abc.abstractmethod
    def maps(self, task: Task) -> Tensor:
        """Maps (n, H, W) of a chunk of images."""

    @called_with(MethodCall)
    def __call__(self, call: MethodCall) -> Tensor:
        """Attribution maps (N, 1, H, W); see `fei.methods.Method`."""
        with alone_with(call.model), torch.inference_mode(False), torch.enable_grad():
            x, given_rows = check_call(call.model, call.inputs, call.batch_size)
            rows = given_rows or (default_rows(x) if self.one_by_one else 1)
            size = 1 if self.one_by_one else max(1, rows // self.rows_per_image)
            survey = Survey(call.model, x)
            given = check_target(call.target, len(x))
            batch = Batch(x, call.reference, call.model, seed_of(call.generator))
            maps = []
            with reporter(call.progress, len(x) * self.parts) as tick:
                counter = _Counter(tick)
                for first in range(0, len(x), size):
                    # a short chunk is filled up with its last image: kernels differ by batch size
                    index = torch.arange(first, first + size, device=x.device).clamp(max=len(x) - 1)
                    real = min(size, len(x) - first)
                    task = Task(
                        survey,
                        batch=batch,
                        index=index,
                        given=None if given is None else given.to(x.device)[index],
                        target=call.target,
                        score=self.score,
                        rows=rows,
                        advance=counter.from_here(real * self.parts),
                    )
                    if not self.observes:
                        task.chosen  # noqa: B018  # what is wrong with the target or the network shows now
                    maps.append(self.maps(task).detach()[:real])
                    task.advance(1)
        found = torch.cat(maps)[:, None].to(torch.promote_types(x.dtype, torch.float32))
        if not all_finite(found):
            raise ModelError("The map holds NaN or infinite values; check the network's weights and its input range.")
        return found


class _Counter:
    """Turns shares of a chunk's work into ticks."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick, self._done = tick, 0

    def from_here(self, ticks: int) -> Callable[[float], None]:
        """What to call with the share that is done of work that takes that many ticks, starting now."""
        start = self._done

        def advance(share: float) -> None:
            while self._done < start + int(share * ticks):
                self._done += 1
                self._tick()

        return advance


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
