"""Running methods and metrics for the explorer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from fei import methods as registry
from fei.core.checks import check_inputs
from fei.core.explanation import Explanation
from fei.core.scoring import Score, check_score, check_target, logits_of, top_classes
from fei.core.scoring import evaluate as score_of
from fei.data.images import read_image
from fei.errors import InputError
from fei.methods import Method
from fei.metrics import BlackImage, Cost, Evaluation, evaluate
from fei.metrics import black_image as test_black_image
from fei.metrics.cost import measure_cost
from fei.metrics.perturbation import Perturbations, check_maps
from fei.progress import Progress
from fei.protocols import Protocol, get
from fei.references import ReferenceSpec
from fei.report.explorer.notebook import Comparison
from fei.report.explorer.shown import Guess, Panel, Shown, single
from fei.service.provenance import Making, code, command, facts

_BEST = 5
Found = Method | Explanation | Tensor
ImageSource = str | os.PathLike[str] | Image.Image


def collect(
    classifier: nn.Module,
    images: Tensor | Sequence[ImageSource],
    methods: Sequence[str] | Mapping[str, Found],
    *,
    target: int | Sequence[int] | Tensor | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
    protocol: str | Protocol = "fei-fine",
    reference: ReferenceSpec = None,
    layers: Sequence[str] | None = None,
    black_image: int | Mapping[str, BlackImage] = 0,
    batch_size: int | None = None,
    progress: bool | Progress = False,
    tell: Callable[[str], None] | None = None,
) -> Comparison:
    """Run methods on images and measure what they found.

    Args:
        classifier: The network, in evaluation mode.
        images: The network's inputs (N, C, H, W); or files or PIL images, if the network is a `fei.models.Classifier`.
        methods: Names; or by name a method, an explanation of these images, or their maps (N, 1, H, W).
        target: The class to explain, or one an image; the predicted one if not given.
        names: What the images are called; by default as their files.
        seed: Of whatever is random.
        protocol: How insertion and deletion are measured.
        reference: R, for methods and for the protocol where it leaves it open; by default a random colour an image.
        layers: Layers to look into, as in `fei.metrics.internal`; an empty list for none.
        black_image: Trials of the black-image test for each method that can be tested, or results by name.
        batch_size: Rows in one forward pass.
        progress: ``True`` for a progress bar a method, or a callable on (done, total) of the method that runs.
        tell: Is told in a few words what happens next.

    Returns:
        One `Shown` an image.
    """
    x, sources = _inputs(classifier, images)
    found: dict[str, Found] = dict(methods) if isinstance(methods, Mapping) else {
        registry.describe(name).name: registry.create(name) for name in methods
    }  # fmt: skip
    if not found:
        raise InputError("No method was given; name at least one, see fei.methods.available().")
    called = _names(names, sources, len(x))
    given = check_target(target, len(x))
    making = Making(classifier, sources, found, given is not None, seed, get(protocol), reference)
    run = _Run(classifier, making, layers, batch_size, progress, tell or (lambda text: None))
    if isinstance(black_image, int):
        black_image = black_images(classifier, found, black_image, seed=seed, batch_size=batch_size, tell=tell)
    return Comparison(
        run.image(i, x[i : i + 1], None if given is None else int(given[i]), name, black_image)
        for i, name in enumerate(called)
    )


def black_images(
    classifier: nn.Module,
    methods: Mapping[str, Found],
    trials: int,
    *,
    seed: int,
    batch_size: int | None = None,
    tell: Callable[[str], None] | None = None,
) -> dict[str, BlackImage]:
    """The black-image test of those methods that it can test; arguments as for `collect`."""
    results = {}
    optimising: dict[str, Any] = {name: method for name, method in methods.items() if hasattr(method, "explain")}
    for name, method in optimising.items() if trials else ():
        if tell is not None:
            tell(f"black image: {name}")
        generator = torch.Generator().manual_seed(seed)
        results[name] = test_black_image(classifier, method, trials=trials, generator=generator, batch_size=batch_size)
    return results


class _Run:
    """One call of `collect`."""

    def __init__(
        self,
        model: nn.Module,
        making: Making,
        layers: Sequence[str] | None,
        batch_size: int | None,
        progress: bool | Progress,
        tell: Callable[[str], None],
    ) -> None:
        self._model, self._making, self._layers, self._batch_size = model, making, layers, batch_size
        self._progress, self._tell = progress, tell

    def image(self, number: int, x: Tensor, target: int | None, name: str, tests: Mapping[str, BlackImage]) -> Shown:
        """What is shown of one image."""
        with torch.no_grad():
            probabilities = logits_of(self._model(x.clone()), 1).softmax(1)[0]
        chosen = int(probabilities.argmax()) if target is None else target
        panels = []
        for method, how in self._making.methods.items():
            self._tell(f"{name}: {method}")
            panels.append(replace(self._panel(method, how, number, x, chosen), black_image=tests.get(method)))
        used = self._perturbations(x, panels[0].map[None]).reference
        return Shown(
            name=name,
            image=x[0].cpu(),
            target=chosen,
            label=self._label(chosen),
            panels=panels,
            reference=(used["insertion"][0].cpu(), used["deletion"][0].cpu()),
            protocol=self._making.protocol,
            seed=self._making.seed,
            prediction=self._guesses(probabilities[None])[0],
            probability=float(probabilities[chosen]),
            provenance=facts(self._making, number, x, chosen),
            code=code(self._making, number, chosen),
            command=command(self._making, number, chosen),
        )

    def _panel(self, name: str, how: Found, number: int, x: Tensor, target: int) -> Panel:
        explanation, maps, cost = self._find(name, how, number, x, target)
        evaluation, top = self._evaluate(x, maps, target)
        return Panel(
            name,
            maps[0, 0].cpu(),
            evaluation,
            top,
            explanation,
            cost=cost,
            config=_settings(how),
        )

    def _find(
        self, name: str, how: Found, number: int, x: Tensor, target: int
    ) -> tuple[Explanation | None, Tensor, Cost | None]:
        """The explanation, if there is one, the map (1, 1, H, W) and what it cost."""
        if isinstance(how, Explanation):
            one = single(how, number)
            return one, one.maps, None
        if isinstance(how, Tensor):
            if len(how) <= number:
                raise InputError(f"There are {len(how)} maps of {name} and more images; give one map an image.")
            return None, how[number : number + 1].detach().reshape(1, 1, *how.shape[-2:]), None
        result, cost = measure_cost(
            self._model,
            partial(
                getattr(how, "explain", how),
                self._model,
                x,
                target,
                reference=self._making.reference,
                generator=self._generator(),
                batch_size=self._batch_size,
                progress=self._progress,
            ),
        )
        if isinstance(result, Tensor):
            return None, result, cost
        return result if isinstance(result, Explanation) else None, result.maps, cost

    def _evaluate(self, x: Tensor, maps: Tensor, target: int) -> tuple[Evaluation, dict[str, list[list[Guess]]]]:
        """The metrics, and the best classes at each point of the curves, from the same forwards."""
        witness = _Witness(self._making.protocol.score)
        evaluation = evaluate(
            self._model,
            x,
            maps.to(x.device),
            target,
            layers=self._layers,
            protocol=replace(self._making.protocol, score=witness),
            reference=self._making.protocol_reference,
            generator=self._generator(),
            batch_size=self._batch_size,
        )
        guesses = self._guesses(torch.cat(witness.probabilities))
        perturbations = self._perturbations(x, check_maps(maps, x))
        counts = perturbations.counts
        top = {curve: [guesses[0]] * len(counts[curve]) for curve in counts}  # the original, where nothing is replaced
        for job, guess in zip(perturbations.rows(0), guesses[1:], strict=True):
            top[job.curve][job.point] = guess
        if perturbations.shares_end:  # the image in which all is replaced passed the network once, for insertion
            ends = {curve: counts[curve].index(perturbations.total) for curve in counts}
            top["deletion"][ends["deletion"]] = top["insertion"][ends["insertion"]]
        return evaluation, top

    def _perturbations(self, x: Tensor, maps: Tensor) -> Perturbations:
        making = self._making
        curves = ("insertion", "deletion")
        return Perturbations(
            making.protocol, self._model, x, maps.to(x.device), making.protocol_reference, making.seed, curves
        )

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self._making.seed)

    def _label(self, index: int) -> str:
        name = getattr(self._model, "label", None)
        return str(name(index)) if callable(name) else f"class {index}"

    def _guesses(self, probabilities: Tensor) -> list[list[Guess]]:
        best, classes = top_classes(probabilities, _BEST)
        return [
            [Guess(index, self._label(index), value) for index, value in zip(indices, values, strict=True)]
            for indices, values in zip(classes.tolist(), best.tolist(), strict=True)
        ]


class _Witness:
    """A protocol's score that remembers what the network said of each image it scored."""

    def __init__(self, score: Score) -> None:
        self._score, self.probabilities = score, list[Tensor]()

    def __call__(self, logits: Tensor, chosen: Tensor) -> Tensor:
        check_score(self._score, logits.shape[1])
        self.probabilities.append(logits.softmax(1).cpu())
        return score_of(logits, None, chosen, self._score)


def _settings(how: Found) -> dict[str, Any]:
    config = dict(getattr(how, "config", {}))
    return dict(config.get("settings", config))


def _inputs(classifier: nn.Module, images: Tensor | Sequence[ImageSource]) -> tuple[Tensor, list[str | None]]:
    """The network's inputs, and where each comes from: a file, or ``None``."""
    if isinstance(images, Tensor):
        x = check_inputs(images)
        return x, [None] * len(x)
    if isinstance(images, str | os.PathLike):
        raise InputError("The images are one path; give a list of files, PIL images, or a tensor (N, C, H, W).")
    preprocess = getattr(classifier, "preprocess", None)
    if preprocess is None:
        raise InputError("This network does not say how it takes files; give its inputs as a tensor (N, C, H, W).")
    if not len(images):
        raise InputError("There is no image; give at least one.")
    device = next((tensor.device for tensor in classifier.parameters()), torch.device("cpu"))
    read: list[Any] = [image if isinstance(image, Image.Image) else read_image(image) for image in images]
    sources = [None if isinstance(image, Image.Image) else os.fspath(image) for image in images]
    return torch.stack([preprocess(image) for image in read]).to(device), sources


def _names(names: Sequence[str] | None, sources: Sequence[str | None], count: int) -> list[str]:
    if names is None:
        return [f"image {i + 1}" if source is None else Path(source).name for i, source in enumerate(sources)]
    if len(names) != count:
        raise InputError(f"There are {len(names)} names for {count} images; give one for each.")
    return list(names)
