"""Is a network fed what it was trained on? A doubt about networks that take pixels as they are.

Most networks are trained on normalised images, and many leave that to the code that loads them. Fed RGB in [0, 1] they
answer all the same, and wrongly. Whether a network normalises by itself is read off its data flow: something is added
to the image or multiplied with it before the first layer with weights. Where nothing is, the statistics that its first
BatchNorm has kept from training are compared with those of a few photographs, as they are and normalised.
"""

from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fei.core.dataflow import CONVOLUTIONS, Call, Flow, WatchingMode, trace
from fei.data.images import demo_image
from fei.models.classifier import IMAGENET_MEAN, IMAGENET_STD, Classifier

_PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket")
_LAYERS = CONVOLUTIONS | {"linear", "matmul", "addmm", "einsum"}
_ARITHMETIC = frozenset(
    {"add", "add_", "sub", "sub_", "rsub", "__rsub__", "mul", "mul_", "div", "div_", "true_divide", "lerp", "addcmul"}
    | {"addcdiv", "batch_norm", "instance_norm", "group_norm", "layer_norm", "index_put_", "__setitem__"}
)


_known: WeakKeyDictionary[Classifier, str | None] = WeakKeyDictionary()


def doubt(classifier: Classifier) -> str | None:
    """Why a network may be fed wrongly, in a sentence; ``None`` where there is no reason to think so.

    Args:
        classifier: The network, in evaluation mode; it is only ever called, a few times when it is first asked about.
    """
    if classifier.normalizes or classifier.told:
        return None
    if classifier not in _known:
        _known[classifier] = _doubt(classifier)
    return _known[classifier]


def _doubt(classifier: Classifier) -> str | None:
    photographs = torch.stack([classifier.preprocess(demo_image(name)) for name in _PHOTOGRAPHS])
    photographs = photographs.to(next((p.device for p in classifier.parameters()), photographs.device))
    flow, _ = trace(classifier, photographs[:1])
    if _normalises(flow) or flow.blind:  # what cannot be seen is not doubted
        return None
    advice = (
        "tell what it was trained on with --mean imagenet, its own --mean and --std, or --mean none (in Python and in "
        "plans '?mean=imagenet' at the end of its name)"
    )
    plain, normalised = _misfit(classifier, photographs), _misfit(classifier, _as_imagenet(photographs))
    if plain is None or normalised is None:
        return f"The network sees RGB in [0, 1] as it is, and nothing shows whether it was trained so; {advice}."
    if plain <= normalised:
        return None
    return (
        "The network sees RGB in [0, 1] as it is, and the statistics in its first BatchNorm are those of normalised "
        f"images; {advice}."
    )


def _as_imagenet(images: Tensor) -> Tensor:
    mean, std = (images.new_tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    return (images - mean) / std


def _normalises(flow: Flow) -> bool:
    """Whether something is computed with the image before the first layer with weights."""
    first = next((call for call in flow.calls if call.function in _LAYERS and call.depends), None)
    waiting: list[Call] = [] if first is None else list(first.inputs)
    seen: set[int] = set()
    while waiting:
        call = waiting.pop()
        if call.function in _ARITHMETIC and call.depends:
            return True
        if id(call) not in seen:
            seen.add(id(call))
            waiting += call.inputs
    return False


class _FirstNorm(WatchingMode):
    """Keeps the first input of a BatchNorm with statistics, and these."""

    def __init__(self) -> None:
        super().__init__()
        self.found: tuple[Tensor, Tensor, Tensor] | None = None

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is F.batch_norm and self.found is None and len(args) > 2 and isinstance(args[1], Tensor):
            self.found = args[0].detach(), args[1].detach(), args[2].detach()
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def _misfit(classifier: nn.Module, images: Tensor) -> float | None:
    """How far what comes to the first BatchNorm is from what it saw in training; ``None`` without one.

    Of each channel, the distance between the means in deviations plus the size of the log ratio of the deviations; the
    median over the channels.
    """
    with _FirstNorm() as mode:
        classifier(images)
    if mode.found is None:
        return None
    values, mean, variance = mode.found
    spread, seen = torch.std_mean(values.double().transpose(0, 1).flatten(1), 1)
    deviation = (variance.double() + 1e-5).sqrt()
    distance = (seen - mean).abs() / deviation + ((spread + 1e-5) / deviation).log().abs()
    return float(distance.median())
