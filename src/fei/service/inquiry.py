"""Methods on one image through one network: what each finds, what it costs, and what its map is worth."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from fei import methods, models, protocols
from fei.common.device import choose_device
from fei.core.explanation import Explanation
from fei.core.scoring import logits_of
from fei.core.settings import PREVIEW
from fei.core.stream import stream_of
from fei.errors import InputError
from fei.methods import Method
from fei.metrics import BlackImage, Cost, attention_divergence, evaluate, rank_correlation
from fei.metrics import black_image as test_black_image
from fei.metrics.cost import measure_cost
from fei.metrics.perturbation import Perturbations, check_maps
from fei.models import Classifier
from fei.models.feeding import doubt
from fei.models.identity import source_digests, weights_digest
from fei.progress import Progress, doing, span
from fei.protocols import Protocol
from fei.references import Reference, ReferenceSpec
from fei.report.explorer import Guess, Panel, Shown
from fei.report.explorer.shown import Repeated, single
from fei.service.looking import Look, count_classes, guesses, label
from fei.service.provenance import code, command, facts
from fei.service.request import Request

_SEEDS = 2**63
_LONG = 10  # seconds that somebody would want to know of beforehand
_PREVIEW = "The map of {} is a preview, made in few steps to look at while waiting; leave that preset out for the map."
Found = Method | Explanation | Tensor


@dataclass(frozen=True)
class Inquiry:
    """A network and methods, and how their maps are measured: what is asked of each image.

    Attributes:
        model: The network, in evaluation mode.
        methods: By name a method, an explanation of the images, or their maps (N, 1, H, W).
        seed: Of whatever is random.
        protocol: How insertion and deletion are measured.
        reference: R, for methods and for the protocol where it leaves it open; by default a random colour per image.
        layers: Layers to look into, as for `fei.metrics.internal`; an empty list for none.
        batch_size: Rows in one forward pass.
        target: The class to explain; the predicted one if ``None``.
        progress: ``True`` for a progress bar per method, or a callable on (done, total) of the method that runs.
        tell: Is told in a few words what happens next.
        told: What a reader should know besides, such as who chose the method.

    Examples:
        >>> inquiry = fei.service.Inquiry.of(fei.service.Request.of("net.py:net?mean=none", ["gradcam"]))
        >>> seen = fei.service.look(inquiry.model, "photos/a.png")
        >>> inquiry.find("gradcam", seen)
        Panel('gradcam', 16 × 16)
    """

    model: nn.Module
    methods: Mapping[str, Found]
    seed: int = 0
    protocol: Protocol = field(default_factory=lambda: protocols.get("held-out-fine"))
    reference: ReferenceSpec = None
    layers: Sequence[str] | None = None
    batch_size: int | None = None
    target: int | None = None
    progress: bool | Progress = False
    tell: Callable[[str], None] = lambda text: None
    told: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, request: Request, *, progress: bool | Progress = False, tell: Callable[[str], None] | None = None
    ) -> Inquiry:
        """What a request asks, with all that can be checked before the first image checked.

        Raises:
            InputError: If something was asked for that there is not.
            ModelError: If the network cannot be loaded or does not work.
        """
        return cls.each([request], progress=progress, tell=tell)[0]

    @classmethod
    def each(
        cls,
        requests: Sequence[Request],
        *,
        progress: bool | Progress = False,
        tell: Callable[[str], None] | None = None,
    ) -> list[Inquiry]:
        """What requests ask that differ in their class alone, checked as in `of`: they share one network.

        Raises:
            InputError: If something was asked for that there is not, or a class twice.
            ModelError: If the network cannot be loaded or does not work.
        """
        request = requests[0]
        if not 0 <= request.seed < _SEEDS:
            raise InputError(f"The seed is {request.seed}; give a whole number from 0 to {_SEEDS - 1}.")
        made = {name: methods.create(name, **options) for name, options in request.methods.items()}
        if request.reference is not None:
            Reference.of(request.reference)  # refuses what does not exist
        protocol = protocols.get(request.protocol)
        device = choose_device(request.device)
        classifier = models.load(request.model).to(device)
        classes = count_classes(classifier, device)
        targets = _class_indices(classifier, classes, [one.target for one in requests])
        inquiry = cls(
            classifier,
            made,
            request.seed,
            protocol,
            request.reference,
            request.layers,
            request.batch_size,
            None,
            progress,
            tell or (lambda text: None),
        )
        return [replace(inquiry, target=target) for target in targets]

    @property
    def protocol_reference(self) -> ReferenceSpec:
        """R for the protocol: nothing where it fixes what replaces pixels."""
        return self.reference if self.protocol.replacement == "reference" else None

    @property
    def spec(self) -> str:
        """What `fei.models.load` loads this network from; empty where it was made otherwise."""
        return str(getattr(self.model, "spec", ""))

    @property
    def notes(self) -> list[str]:
        """What a reader should know of method and network before believing any map of it."""
        why = doubt(self.model) if isinstance(self.model, Classifier) else None
        previews = [
            _PREVIEW.format(name) for name, how in self.methods.items() if _settings(how).get("preset") == PREVIEW
        ]
        return [*self.told, *previews, *getattr(self.model, "remarks", ()), *([] if why is None else [why])]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Which network it is: the digests of its weights and of its source."""
        files = getattr(self.model, "files", ())
        network = self.model.network if isinstance(self.model, Classifier) else self.model
        return {"weights": weights_digest(network), "source": source_digests(network, *files)}

    @property
    def generator(self) -> torch.Generator:
        """A fresh generator: methods and measurements all draw the same R."""
        return torch.Generator().manual_seed(self.seed)

    def explained(self, seen: Look) -> int:
        """The class that is explained in an image."""
        return int(seen.probabilities.argmax()) if self.target is None else self.target

    def find(self, name: str, seen: Look, number: int = 0) -> Panel:
        """What one method finds on one image, and what that costs.

        Args:
            name: Which of the methods.
            seen: The image.
            number: Which of several images it is, where explanations or maps of all of them were given.
        """
        how = self.methods[name]
        if isinstance(how, Explanation):
            how = single(how, number)
            return Panel(name, _plane(how.maps), explanation=how, config=_settings(how))
        if isinstance(how, Tensor):
            if len(how) <= number:
                raise InputError(f"There are {len(how)} maps of {name} and more images; give one map per image.")
            return Panel(name, _plane(how[number].reshape(1, 1, *how.shape[-2:])))
        (panel,) = self.find_classes(name, seen, [self.target])
        return panel

    def find_classes(self, name: str, seen: Look, targets: Sequence[int | None]) -> list[Panel]:
        """What one method finds for several classes of one image, in one call: what they share is computed once.

        Args:
            name: Which of the methods.
            seen: The image.
            targets: The classes; ``None`` for the predicted one.

        Returns:
            One panel per class. Each has its evidence, where the method can weigh it, and an even share of the cost, to
            which weighing does not belong.
        """
        how: Any = self.methods[name]
        result, cost = self.ask(name, seen, targets)
        config = _settings(how)
        rows = {name: round(getattr(cost, name) / len(targets)) for name in ("forwards", "backwards")}
        cost = replace(cost, **rows, seconds=cost.seconds / len(targets))
        if not isinstance(result, Explanation):
            maps = result if isinstance(result, Tensor) else result.maps
            return [Panel(name, _plane(one), cost=cost, config=config) for one in maps.split(1)]
        if result.evidence is None and hasattr(how, "weigh"):
            weighed = how.weigh(self.model, result)
            # a network may have no number for pictures that it was not asked about
            known = all(values.isfinite().all() for values in vars(weighed).values())
            result = replace(result, evidence=weighed if known else None)
        panels = []
        for number, target in enumerate(targets):
            one = single(result, number)
            about = {"target": "predicted"} if target is None else {}
            about |= {"images": one.config["images"][:1]} if len(targets) > 1 else {}
            one = replace(one, config=dict(one.config) | about)
            panels.append(Panel(name, _plane(one.maps), explanation=one, cost=cost, config=config))
        return panels

    def ask(
        self, name: str, seen: Look, targets: Sequence[int | None], *, maps_alone: bool = False
    ) -> tuple[Any, Cost]:
        """What one method answers for classes of one image, a row for each, and its cost; see `find_classes`.

        Where the maps alone are asked for, nothing is computed that only traces tell.
        """
        how: Any = self.methods[name]
        self.tell(f"{seen.name}: {name}{expected(name, how, seen.seconds, len(targets))}")
        classes = [replace(self, target=target).explained(seen) for target in targets]
        inputs = seen.inputs if len(classes) == 1 else seen.inputs.repeat(len(classes), 1, 1, 1)
        options = {"reference": self.reference, "batch_size": self.batch_size, "progress": self.progress}
        target = classes[0] if len(classes) == 1 else classes
        answer = how if maps_alone else getattr(how, "explain", how)
        call = partial(answer, self.model, inputs, target, generator=self.generator, **options)
        with doing(f"{seen.name}, {name}"):
            return measure_cost(self.model, call)

    def repeat(self, seen: Look, panels: Sequence[Panel], targets: Sequence[int | None]) -> list[Panel]:
        """Panels of one method, as `find_classes` gave them, with the maps that the next seed gives."""
        seed = (self.seed + 1) % _SEEDS
        result, _ = replace(self, seed=seed).ask(panels[0].method, seen, targets)
        maps = (result if isinstance(result, Tensor) else result.maps).detach().cpu()
        first = torch.stack([panel.map for panel in panels])[:, None]
        correlations = rank_correlation(first, maps).tolist()
        return [
            replace(panel, repeated=Repeated(seed, plane[0], correlation))
            for panel, plane, correlation in zip(panels, maps, correlations, strict=True)
        ]

    def measure(self, seen: Look, panel: Panel) -> Panel:
        """A panel with its metrics, and with the best classes at each point of the curves, from the same forwards.

        Of a transformer all blocks are looked into, where no layers were given, and the attention of each, which takes
        as many forwards again as the insertion curve has.
        """
        maps, x = panel.map[None, None].to(seen.inputs.device), seen.inputs
        looked_into = (self.layers is None or len(self.layers) > 0) and not self.protocol.drops_tokens
        stream = stream_of(self.model, x) if looked_into else None
        how: dict[str, Any] = {"reference": self.protocol_reference, "batch_size": self.batch_size}
        how["protocol"] = self.protocol
        probabilities: list[Tensor] = []
        evaluation = evaluate(
            self.model,
            x,
            maps,
            self.explained(seen),
            layers=self.layers if self.layers is not None or stream is None else stream.blocks or None,
            generator=self.generator,
            relevance=True,
            on_output=lambda output: probabilities.append(logits_of(output, len(output)).softmax(1).cpu()),
            **how,
        )
        best = guesses(self.model, torch.cat(probabilities))
        perturbations = self._perturbations(x, check_maps(maps, x))
        counts = perturbations.counts
        top: dict[str, list[list[Guess]]]
        top = {curve: [best[0]] * len(counts[curve]) for curve in counts}  # the original, where nothing is replaced
        for row, guess in zip(perturbations.rows(0), best[1:], strict=True):
            if row.fill == 0:  # the one that is shown
                top[row.curve][row.point] = guess
        if perturbations.shares_end:  # the image in which all is replaced passed the network once, for insertion
            ends = {curve: counts[curve].index(perturbations.total) for curve in counts}
            top["deletion"][ends["deletion"]] = top["insertion"][ends["insertion"]]
        if stream is not None:
            attention = attention_divergence(self.model, x, maps, generator=self.generator, **how)
            panel = replace(panel, attention=attention)
        return replace(panel, evaluation=evaluation, top=top)

    def shown(self, seen: Look, panels: Sequence[Panel]) -> Shown:
        """One image with what methods found on it, and how to make that again."""
        used = self._perturbations(seen.inputs, panels[0].map[None]).reference
        target = self.explained(seen)
        return Shown(
            name=seen.name,
            image=seen.inputs[0].cpu(),
            target=target,
            label=label(self.model, target),
            panels=panels,
            reference=(used["insertion"][0].cpu(), used["deletion"][0].cpu()),
            protocol=self.protocol,
            seed=self.seed,
            prediction=seen.guesses,
            probability=float(seen.probabilities[target]),
            provenance=facts(self, seen),
            code=code(self, seen),
            command=command(self, seen),
            whole=seen.whole,
        )

    def compare(self, seen: Look, tests: Mapping[str, BlackImage], number: int = 0) -> Shown:
        """What all methods find on one image, measured; `tests` is what `black_images` said of them."""
        found = [self.measure(seen, self.find(name, seen, number)) for name in self.methods]
        return self.shown(seen, [replace(panel, black_image=tests.get(panel.method)) for panel in found])

    def black_images(self, trials: int) -> dict[str, BlackImage]:
        """The black-image test of the methods that it can test. It needs no image, so once is enough."""
        optimising: dict[str, Any] = {n: how for n, how in self.methods.items() if hasattr(how, "explain")}
        results = {}
        for name, method in optimising.items() if trials else ():
            self.tell(f"black image: {name}")
            results[name] = test_black_image(
                self.model, method, trials=trials, generator=self.generator, batch_size=self.batch_size
            )
        return results

    def _perturbations(self, x: Tensor, maps: Tensor) -> Perturbations:
        curves = ("insertion", "deletion")
        reference = self.protocol_reference
        return Perturbations(self.protocol, self.model, x, maps.to(x.device), reference, self.seed, curves)


def _class_indices(classifier: Classifier, classes: int, words: Sequence[str | None]) -> list[int | None]:
    """The classes that words mean, each once."""
    meant: dict[int, str] = {}
    found: list[int | None] = []
    for word in words:
        target = None if word is None else classifier.index(word)
        if word is not None and target is not None:
            if target >= classes:
                raise InputError(f"There is no class {target}; the classes are numbered 0 to {classes - 1}.")
            if target in meant:
                twice = f"'{meant[target]}' and '{word}'"
                raise InputError(f"The targets {twice} are the same class, {target}; give each class once.")
            meant[target] = word
        found.append(target)
    return found


def expected(name: str, how: Any, seconds: float, times: int = 1) -> str:
    """How long a method will take, in a few words, if one pass takes so long; nothing where that is short or unknown.

    Passes are those of `fei.methods.describe`, or of the options where these say how many; one backwards counts as two
    forwards.
    """
    config = _settings(how)
    try:
        passes = re.fullmatch(r"(\d+) \+ (\d+)", methods.describe(name).cost)
    except InputError:  # a method of somebody's own
        passes = None
    forwards, backwards = map(int, passes.groups()) if passes else (0, 0)
    if "quantiles" in config:
        forwards = backwards = int(config["steps"]) * len(config["quantiles"])
    elif passes and forwards > 1 and "samples" in config:
        forwards, backwards = int(config["samples"]), int(config["samples"]) if backwards else 0
    left = (forwards + 2 * backwards) * seconds * times
    return f", about {span(left)} ({forwards} + {backwards} passes)" if left >= _LONG else ""


def _plane(maps: Tensor) -> Tensor:
    return maps[0, 0].detach().cpu()


def _settings(how: Found) -> dict[str, Any]:
    config = dict(getattr(how, "config", {}))
    return dict(config.get("settings", config))
