"""Methods on one image through one network: what each finds, what it costs, and what its map is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fei import methods, models, protocols
from fei.common.device import choose_device
from fei.core.explanation import Explanation
from fei.core.scoring import logits_of
from fei.errors import InputError
from fei.methods import Method
from fei.metrics import BlackImage, evaluate
from fei.metrics import black_image as test_black_image
from fei.metrics.cost import measure_cost
from fei.metrics.perturbation import Perturbations, check_maps
from fei.progress import Progress
from fei.protocols import Protocol
from fei.references import Reference, ReferenceSpec
from fei.report.explorer import Guess, Panel, Shown
from fei.report.explorer.shown import single
from fei.service.looking import Look, count_classes, guesses, label
from fei.service.provenance import code, command, facts
from fei.service.request import Request

_SEEDS = 2**63
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

    @classmethod
    def of(
        cls, request: Request, *, progress: bool | Progress = False, tell: Callable[[str], None] | None = None
    ) -> Inquiry:
        """What a request asks, with all that can be checked before the first image checked.

        Raises:
            InputError: If something was asked for that there is not.
            ModelError: If the network cannot be loaded or does not work.
        """
        if not 0 <= request.seed < _SEEDS:
            raise InputError(f"The seed is {request.seed}; give a whole number from 0 to {_SEEDS - 1}.")
        made = {name: methods.create(name, **options) for name, options in request.methods.items()}
        if request.reference is not None:
            Reference.of(request.reference)  # refuses what does not exist
        protocol = protocols.get(request.protocol)
        device = choose_device(request.device)
        classifier = models.load(request.model).to(device)
        classes = count_classes(classifier, device)
        target = None if request.target is None else classifier.index(request.target)
        if target is not None and target >= classes:
            raise InputError(f"There is no class {target}; the classes are numbered 0 to {classes - 1}.")
        return cls(
            classifier,
            made,
            request.seed,
            protocol,
            request.reference,
            request.layers,
            request.batch_size,
            target,
            progress,
            tell or (lambda text: None),
        )

    @property
    def protocol_reference(self) -> ReferenceSpec:
        """R for the protocol: nothing where it fixes what replaces pixels."""
        return self.reference if self.protocol.replacement == "reference" else None

    @property
    def spec(self) -> str:
        """What `fei.models.load` loads this network from; empty where it was made otherwise."""
        return str(getattr(self.model, "spec", ""))

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
        how, target = self.methods[name], self.explained(seen)
        self.tell(f"{seen.name}: {name}")
        if isinstance(how, Explanation):
            how = single(how, number)
            return Panel(name, _plane(how.maps), explanation=how, config=_settings(how))
        if isinstance(how, Tensor):
            if len(how) <= number:
                raise InputError(f"There are {len(how)} maps of {name} and more images; give one map per image.")
            return Panel(name, _plane(how[number].reshape(1, 1, *how.shape[-2:])))
        options = {"reference": self.reference, "batch_size": self.batch_size, "progress": self.progress}
        call = partial(
            getattr(how, "explain", how), self.model, seen.inputs, target, generator=self.generator, **options
        )
        result, cost = measure_cost(self.model, call)
        maps = result if isinstance(result, Tensor) else result.maps
        explanation = result if isinstance(result, Explanation) else None
        if explanation is not None and self.target is None:
            explanation = replace(explanation, config=dict(explanation.config) | {"target": "predicted"})
        return Panel(name, _plane(maps), explanation=explanation, cost=cost, config=_settings(how))

    def measure(self, seen: Look, panel: Panel) -> Panel:
        """A panel with its metrics, and with the best classes at each point of the curves, from the same forwards."""
        maps, x = panel.map[None, None].to(seen.inputs.device), seen.inputs
        probabilities: list[Tensor] = []
        evaluation = evaluate(
            self.model,
            x,
            maps,
            self.explained(seen),
            layers=self.layers,
            protocol=self.protocol,
            reference=self.protocol_reference,
            generator=self.generator,
            batch_size=self.batch_size,
            relevance=True,
            on_output=lambda output: probabilities.append(logits_of(output, len(output)).softmax(1).cpu()),
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


def _plane(maps: Tensor) -> Tensor:
    return maps[0, 0].detach().cpu()


def _settings(how: Found) -> dict[str, Any]:
    config = dict(getattr(how, "config", {}))
    return dict(config.get("settings", config))
