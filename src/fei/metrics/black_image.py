"""The black-image test (paper, section 4.2): does a method find evidence where there is none?

x is black, R a plain colour and the target a class that the network sees in neither. A method that still finds masks α
for which x̃ = α⊙x + (1−α)⊙R is seen as the target has driven the network along a pathway that x never took. A trial
counts as a success of the method, which is to its discredit, where the target is the argmax of f(x̃) for some quantile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from fei.common.packages import need
from fei.core.checks import check_batch_size, check_count, check_mode
from fei.core.explanation import Explanation
from fei.core.randomness import seed_of
from fei.core.scoring import logits_of
from fei.errors import InputError
from fei.methods import available, create, describe
from fei.metrics.declaration import Metric
from fei.metrics.trials import Trial, Trials, finite
from fei.progress import Progress, part, reporter

THRESHOLDS = (0.1, 0.5, 0.9)
_CHUNK = 32  # trials in one call of the method; bounds the memory that its masks and images take


class Perturbed(Protocol):
    """What the test reads of an explanation."""

    def perturbed(self) -> Tensor:
        """The images the optimisation ended with, (N, masks, C, H, W)."""
        ...


class OptimisationMethod(Protocol):
    """A method that can be tested: one that shows the perturbed images it ended with."""

    @property
    def explain(self) -> Callable[..., Perturbed]:
        """Takes what a method takes; the `config` of what it returns, if there is one, is kept with the result."""
        ...


@dataclass(frozen=True)
class BlackImage:
    """How often a method found evidence in a black image; lower is better.

    Attributes:
        method: Name of the method.
        config: Its settings, where its explanation has them.
        trials: How many trials were counted.
        rate: Share of them in which the target was the argmax of f(x̃) for some quantile.
        interval: Wilson's 95 % interval of the rate.
        thresholds: For each of .1, .5 and .9, the share of trials in which φ(x̃) reached it for some quantile.
        gain: Mean over trials of the highest φ(x̃) minus φ(x).
        number: Number of each trial, from 0, (trials,); numbers are missing where trials were dropped.
        target: Target class of each trial.
        reference: R of each trial, broadcastable to the image.
        success: Whether the target was the argmax.
        phi: The highest φ(x̃).
        gains: The highest φ(x̃) minus φ(x).
        redrawn: Draws that were thrown away, since the network saw the target in x or R, or R was black.
        dropped: Trials left out, since what the caller gave, or the network, left nothing to redraw.

    Examples:
        >>> method = fei.methods.create("fei-none", steps=2)
        >>> found = fei.metrics.black_image(model, method, trials=2, black=torch.zeros(3, 16, 16))
        >>> found.method, tuple(found.success.shape)
        ('fei-none', (2,))
    """

    method: str
    config: Mapping[str, Any]
    trials: int
    rate: float
    interval: tuple[float, float]
    thresholds: dict[float, float]
    gain: float
    number: Tensor
    target: Tensor
    reference: Tensor
    success: Tensor
    phi: Tensor
    gains: Tensor
    redrawn: int
    dropped: int


def black_image(
    model: nn.Module,
    method: str | OptimisationMethod,
    *,
    trials: int,
    targets: int | Sequence[int] | Tensor | None = None,
    black: Tensor | None = None,
    references: Tensor | None = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
    progress: bool | Progress = False,
) -> BlackImage:
    """Ask a method for the evidence of random classes in a black image.

    A method that draws references itself, as the flagship does, optimises with its own; the trial's colour is then what
    its masks are tried on.

    A trial's class and colour depend on the seed and the trial's number alone, so that all methods, and any number of
    trials, meet the same ones.

    Args:
        model: The classifier, in evaluation mode; only ever called.
        method: A name, or an object with ``explain``, see `OptimisationMethod`.
        trials: How many trials.
        targets: A class, or one per trial; drawn if not given.
        black: x, (C, H, W); needed where the model's input space is not known.
        references: R, (1 or trials, C, 1 or H, 1 or W), not black; random colours if not given. Needed likewise.
        generator: Supplies the seed (its initial seed); 0 without.
        batch_size: Rows in one forward pass.
        progress: ``True`` for a progress bar, or a callable on (trials done, in all).

    Examples:
        >>> method = fei.methods.create("fei-vm", steps=2)
        >>> found = fei.metrics.black_image(model, method, trials=2, black=torch.zeros(3, 16, 16))
        >>> found.trials, 0 <= found.rate <= 1
        (2, True)
    """
    name, optimiser = optimisation_method(method)
    check_count("trials", trials)
    check_mode(model)
    rows = check_batch_size(batch_size)
    setup = Trials(model, black, targets, references, trials, seed_of(generator))
    x, drawn = setup.x, setup.draw()
    own = str(getattr(optimiser, "config", {}).get("reference", "")).endswith(":resample")
    outcomes: list[tuple[bool, float]] = []
    config: Mapping[str, Any] = {}
    with reporter(progress, len(drawn)) as tick:
        for first in range(0, len(drawn), _CHUNK):
            chunk = drawn[first : first + _CHUNK]
            colours = torch.stack([trial.reference for trial in chunk])
            with part(tick, len(chunk)) as report:
                explanation = optimiser.explain(
                    model,
                    x.repeat(len(chunk), 1, 1, 1),
                    torch.tensor([trial.target for trial in chunk], device=x.device),
                    reference=None if own else colours,
                    # a fresh one each time: what a method draws must not depend on the chunks before
                    generator=None if generator is None else torch.Generator().manual_seed(generator.initial_seed()),
                    batch_size=rows,
                    progress=report,
                )
            config = getattr(explanation, "config", {}).get("settings", {})
            if own:
                explanation = replace(cast(Explanation, explanation), reference=colours)
            images = _perturbed(explanation, name, chunk, x)
            # one trial at a time, so that the shape of a batch does not depend on the chunk
            outcomes += [_outcome(model, i, t.target, rows) for i, t in zip(images, chunk, strict=True)]
    target = torch.tensor([trial.target for trial in drawn])
    success = torch.tensor([fired for fired, _ in outcomes])
    phi = torch.tensor([highest for _, highest in outcomes], dtype=torch.float64)
    gains = phi - setup.in_black.cpu().double()[target]
    return BlackImage(
        method=name,
        config=config,
        trials=len(drawn),
        rate=int(success.sum()) / len(drawn),
        interval=wilson_interval(int(success.sum()), len(drawn)),
        thresholds={level: float((phi >= level).double().mean()) for level in THRESHOLDS},
        gain=float(gains.mean()),
        number=torch.tensor([trial.number for trial in drawn]),
        target=target,
        reference=torch.stack([trial.reference for trial in drawn]).cpu(),
        success=success,
        phi=phi,
        gains=gains,
        redrawn=sum(trial.redrawn for trial in drawn),
        dropped=trials - len(drawn),
    )


def optimisation_method(method: str | OptimisationMethod) -> tuple[str, OptimisationMethod]:
    """A method's name, and the method; refused if it does not optimise a perturbed image."""
    made: Any = create(method) if isinstance(method, str) else method
    known = method if isinstance(method, str) else getattr(made, "name", None)
    name = known.lower() if isinstance(known, str) else type(made).__name__
    if not callable(getattr(made, "explain", None)):
        fitting = [entry for entry in available() if describe(entry).family == "optimisation"]
        raise InputError(
            f"The black-image test needs a method that optimises a perturbed image and shows it through `explain`, "
            f"which {name} does not; choose one of {', '.join(fitting)}."
        )
    return name, made


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    r"""Wilson's score interval of a proportion p = successes / n.

        (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n),

    z being the normal quantile of (1 + confidence) / 2. Unlike p ± z·√(p(1−p)/n) it has a width at p = 0 and p = 1.

    Examples:
        >>> [round(end, 2) for end in fei.metrics.wilson_interval(0, 20)]
        [0.0, 0.16]
    """
    check_count("trials", trials)
    if not isinstance(successes, int) or not 0 <= successes <= trials:
        raise InputError(f"`successes` must be a whole number from 0 to the {trials} trials; got {successes!r}.")
    if not isinstance(confidence, (int, float)) or not 0 < confidence < 1:
        raise InputError(f"`confidence` must lie between 0 and 1; got {confidence!r}.")
    need("An interval of a proportion", "bench", "scipy")
    from scipy.stats import binomtest  # slower to import than torch

    found = binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    return float(found.low), float(found.high)


def _perturbed(explanation: Perturbed, name: str, chunk: Sequence[Trial], x: Tensor) -> Tensor:
    images = explanation.perturbed()
    if images.ndim != 5 or (len(images), *images.shape[2:]) != (len(chunk), *x.shape):
        raise InputError(
            f"The explanation of {name} has perturbed images of shape {tuple(images.shape)}; expected "
            f"({len(chunk)}, masks, {', '.join(map(str, x.shape))})."
        )
    return images.detach()


@torch.no_grad()
def _outcome(model: nn.Module, images: Tensor, target: int, rows: int | None) -> tuple[bool, float]:
    """Whether one of the images is seen as the target, and the highest φ among them."""
    parts = [logits_of(model(some), len(some)) for some in images.split(rows or len(images))]
    logits = finite(torch.cat(parts))
    return bool((logits.argmax(1) == target).any()), float(logits.softmax(1)[:, target].max())


METRICS = (
    Metric("fired", "fires", False, "black-image", format=".1%"),
    Metric("phi", "φ", False, "black-image"),
    Metric("gain", "φ gain", False, "black-image"),
)
