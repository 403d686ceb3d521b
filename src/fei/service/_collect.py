"""Running methods and metrics for the explorer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor, nn

from fei import methods as registry
from fei.core.checks import check_inputs
from fei.core.scoring import check_target, named_target
from fei.errors import InputError
from fei.metrics import BlackImage
from fei.progress import Progress
from fei.protocols import Protocol, get
from fei.references import ReferenceSpec
from fei.report.explorer import Comparison
from fei.service.inquiry import Found, Inquiry
from fei.service.looking import ImageSource, Look, look


def collect(
    classifier: nn.Module,
    images: Tensor | Sequence[ImageSource | Look],
    methods: Sequence[str] | Mapping[str, Found],
    *,
    target: int | str | Sequence[int | str] | Tensor | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
    protocol: str | Protocol = "held-out-fine",
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
        images: The network's inputs (N, C, H, W); or files, PIL images, or what `fei.service.look` made of them, if the
            network is a `fei.models.Classifier`.
        methods: Names; or by name a method, an explanation of these images, or their maps (N, 1, H, W).
        target: The class to explain, by index or name, or one per image; the predicted one if not given.
        names: What the images are called; by default as their files.
        seed: Of whatever is random.
        protocol: How insertion and deletion are measured.
        reference: R, for methods and for the protocol where it leaves it open; by default a random colour per image.
        layers: Layers to look into, as for `fei.metrics.internal`; an empty list for none.
        black_image: Trials of the black-image test for each method that can be tested, or results by name.
        batch_size: Rows in one forward pass.
        progress: ``True`` for a progress bar per method, or a callable on (done, total) of the method that runs.
        tell: Is told in a few words what happens next.

    Returns:
        One `Shown` per image.

    Examples:
        >>> comparison = fei.service.collect(model, images, ["gradcam", "edges"], target=1, names=["one", "two"])
        >>> [panel.method for panel in comparison[0].panels]
        ['gradcam', 'edges']
    """
    seen = _looks(classifier, images, names)
    found: dict[str, Found] = dict(methods) if isinstance(methods, Mapping) else {
        registry.describe(name).name: registry.create(name) for name in methods
    }  # fmt: skip
    if not found:
        raise InputError("No method was given; name at least one, see fei.methods.available().")
    given = check_target(named_target(classifier, target), len(seen))
    told = tell or (lambda text: None)
    how = (reference, layers, batch_size, None, progress, told)
    inquiry = Inquiry(classifier, found, seed, get(protocol), *how)
    tests = inquiry.black_images(black_image) if isinstance(black_image, int) else black_image
    targets = [None] * len(seen) if given is None else given.tolist()
    return Comparison(
        replace(inquiry, target=one).compare(image, tests, number)
        for number, (image, one) in enumerate(zip(seen, targets, strict=True))
    )


def _looks(
    classifier: nn.Module, images: Tensor | Sequence[ImageSource | Look], names: Sequence[str] | None
) -> list[Look]:
    """What the network sees in each image."""
    if isinstance(images, str | os.PathLike):
        raise InputError("The images are one path; give a list of files, PIL images, or a tensor (N, C, H, W).")
    given: Sequence[ImageSource | Look | Tensor]
    given = list(check_inputs(images).split(1)) if isinstance(images, Tensor) else images
    if not len(given):
        raise InputError("There is no image; give at least one.")
    if names is not None and len(names) != len(given):
        raise InputError(f"There are {len(names)} names for {len(given)} images; give one for each.")
    seen = []
    for number, image in enumerate(given):
        one = image if isinstance(image, Look) else look(classifier, image)
        unnamed = one.name if one.source is not None or isinstance(image, Look) else f"image {number + 1}"
        seen.append(replace(one, name=unnamed if names is None else names[number]))
    return seen
