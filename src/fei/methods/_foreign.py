"""Attribution code of other libraries on a caller's network: its state kept, blind spots refused, its maps checked.

Captum and torchcam hook modules. Such hooks see neither functional activations nor the calls of a reused module apart,
and may keep a value that is overwritten in place later. What can be found out beforehand is refused in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from captum import attr
from torch import Tensor, nn

from fei.core.checks import kind_of
from fei.core.dataflow import ACTIVATIONS, Call, Flow, trace
from fei.core.sites import resolve_name
from fei.errors import InputError, ModelError
from fei.methods._baseline import Survey
from fei.methods.cam import upsample
from fei.methods.gradients import is_relu

_HOOK_TABLES = ("hooks", "hooks_with_kwargs", "hooks_always_called")
_TENSOR_TABLES = ("_parameters", "_buffers", "_modules")


@contextmanager
def kept_state(model: nn.Module) -> Iterator[None]:
    """Lend a network to code that may hook it, switch its modes and fill its gradients; afterwards it is as before.

    Within the block no module works in place, so that values kept by hooks stay what they were, and no parameter has a
    gradient to add to. Buffers are put back; weights are too large to copy, so code that wrote into them is refused
    once it has finished.
    """
    modules = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
    tables = [
        (table, dict(table))
        for module in modules
        for name, table in vars(module).items()
        if name.endswith(_HOOK_TABLES) or name in _TENSOR_TABLES
    ]
    flags = [
        (module, name, vars(module)[name])
        for module in modules
        for name in ("training", "inplace")
        if name in vars(module)
    ]
    parameters = [(parameter, parameter.requires_grad, parameter.grad) for parameter in model.parameters()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    versions = [(name, parameter, parameter._version) for name, parameter in model.named_parameters()]
    try:
        for module, name, value in flags:
            if name == "inplace" and value is True:
                vars(module)[name] = False
        for parameter, _, _ in parameters:
            parameter.grad = None
        yield
    finally:
        for table, entries in tables:
            table.clear()
            table.update(entries)
        for module, name, value in flags:
            setattr(module, name, value)
        for parameter, requires_grad, gradient in parameters:
            parameter.requires_grad_(requires_grad)
            parameter.grad = gradient
        for buffer, content in buffers:
            if not torch.equal(buffer, content):  # batch normalisation writes without raising the version
                buffer.data.copy_(content)
    written = [name for name, parameter, version in versions if parameter._version != version]
    if written:
        raise ModelError(
            f"The wrapped method wrote into the network's {written[0]!r}; reload the network, and let the method work "
            "on a copy.deepcopy of it."
        )


def checked_maps(result: Any, images: Tensor, source: str, *, resize: bool = False) -> Tensor:
    """What foreign code returned as maps (n, H, W): channels summed, detached, finite.

    Args:
        result: Its return value: a tensor or array (n, H, W), (n, 1, H, W) or (n, C, H, W), or the one in a sequence.
        images: The images it explained.
        source: Whose result it is, for the sentence of an error.
        resize: Whether maps of any channel count and resolution are welcome, as those of a layer are; they are
            upsampled bilinearly.
    """
    value = result[0] if isinstance(result, (tuple, list)) and len(result) == 1 else result
    if isinstance(value, np.ndarray):
        value = torch.as_tensor(np.ascontiguousarray(value))
    count, channels, *size = images.shape
    expected = f"expected ({count}, {size[0]}, {size[1]}), ({count}, 1, …) or ({count}, {channels}, …)"
    if not isinstance(value, Tensor) or value.is_complex():
        raise InputError(f"{source} returned {kind_of(value)}; {expected}, a tensor of real numbers.")
    maps = value.detach().to(images.device, torch.promote_types(value.dtype, torch.float32))
    if maps.ndim == 4 and (resize or maps.shape[1] in {1, channels}):
        maps = maps.sum(1)
    if maps.ndim != 3 or not (resize or list(maps.shape[1:]) == size):
        raise InputError(f"{source} returned shape {tuple(value.shape)}; {expected}.")
    if len(maps) != count:
        raise InputError(f"{source} returned {len(maps)} maps for {count} image(s); expected one per image.")
    if not maps.isfinite().all():
        raise InputError(f"{source} returned NaN or infinite values; a map must rank every pixel.")
    return maps if list(maps.shape[1:]) == size else upsample(maps, images)


def layer_name(survey: Survey, given: Any, source: str) -> tuple[str, int | None]:
    """The module that foreign code is to hook: the given one, by name or as itself, or the last feature layer.

    Returns:
        Its name, and the number of the call that is meant if the name says it ("relu#1").
    """
    modules = dict(survey.model.named_modules())
    if isinstance(given, nn.Module):
        names = [name for name, module in modules.items() if module is given]
        if not names:
            raise InputError(f"The layer given to {source} is no module of this network; give its name.")
        return names[0], None
    given = survey.last_feature_layer if given is None else given
    if not isinstance(given, str):
        raise InputError(f"The layer given to {source} must be a module or its name; got {type(given).__name__}.")
    name, _, call = given.partition("#")
    return resolve_name(name, modules), int(call) if call.isdecimal() else None


def check_layer(
    model: nn.Module, layer: nn.Module, images: Tensor, source: str, *, call: int | None = None, keeps_values: bool
) -> None:
    """Refuse a layer whose hook would not see what it should: one that runs more than once, or is overwritten.

    Args:
        model: The network.
        layer: One of its modules.
        images: What it takes. One forward pass is made.
        source: Who hooks the layer.
        call: The number of the call that is meant, where the hook is left with the last one; otherwise ``None``.
        keeps_values: Whether the hook keeps the layer's own output instead of a copy.
    """
    outputs: list[tuple[Any, int]] = []

    def listen(_: nn.Module, __: Any, output: Any) -> None:
        outputs.append((output, output._version if isinstance(output, Tensor) else 0))

    handle = layer.register_forward_hook(listen)
    try:
        with torch.no_grad():
            model(images[:1])
    finally:
        handle.remove()
    name = next((name for name, module in model.named_modules() if module is layer), type(layer).__name__)
    if len(outputs) != 1 + (call or 0):
        raise ModelError(
            f"The layer {name!r} runs {len(outputs)} times in one pass, and {source} cannot tell these runs apart; "
            "name a layer that runs once."
        )
    value, version = outputs[-1]
    if keeps_values and isinstance(value, Tensor) and value._version != version:
        raise ModelError(
            f"The output of layer {name!r} is overwritten in place later in the pass, and {source} would read the "
            "overwritten values; name another layer."
        )


@dataclass(frozen=True)
class _Sight:
    """What captum methods must see: which calls of a network, as modules of which types, and whether they may recur.

    Attributes:
        kinds: The methods.
        must_see: A predicate on the network and a call.
        modules: The types that they hook; ``None`` where they refuse the others themselves.
        reused: Whether they read a module that runs several times rightly.
    """

    kinds: tuple[type, ...]
    must_see: Callable[[nn.Module, Call], bool]
    modules: tuple[type[nn.Module], ...] | None
    reused: bool


_NONLINEAR = (
    ACTIVATIONS
    | {"softmax", "log_softmax"}
    | {f"{prefix}max_pool{n}d" for prefix in ("", "adaptive_") for n in (1, 2, 3)}
)
# captum's own table of rules; other modules pass their gradient there without a word
DEEPLIFT_MODULES = (
    *(nn.ReLU, nn.ELU, nn.LeakyReLU, nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Softmax),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
)
_RELU_HOOKERS = (
    *(attr.GuidedBackprop, attr.Deconvolution, attr.GuidedGradCam),
    *(attr.NeuronGuidedBackprop, attr.NeuronDeconvolution),
)
_DEEPLIFTS = (attr.DeepLift, attr.NeuronDeepLift, attr.NeuronDeepLiftShap)
_SIGHTS = (
    _Sight(_RELU_HOOKERS, is_relu, (nn.ReLU,), reused=True),
    _Sight(_DEEPLIFTS, lambda _, call: call.function in _NONLINEAR, DEEPLIFT_MODULES, reused=False),
    _Sight((attr.LRP,), lambda _, call: call.function in ACTIVATIONS, None, reused=False),
)


def check_activations(attribution: Any, model: nn.Module, images: Tensor, source: str) -> None:
    """Refuse a network with nonlinearities that a captum method must replace and would miss. One forward pass.

    Looked at are pointwise activations, max-pooling and softmax. Products of activations, layer norms and, for LRP,
    functional additions and poolings are not.
    """
    while isinstance(attribution, attr.NoiseTunnel):
        attribution = attribution.attribution_method
    sight = next((sight for sight in _SIGHTS if isinstance(attribution, sight.kinds)), None)
    if sight is None:
        return
    for wrong in _blind_spots(sight, model, trace(model, images[:1])[0]):
        raise ModelError(f"{source} {wrong}; use another method.")


def _blind_spots(sight: _Sight, model: nn.Module, flow: Flow) -> Iterator[str]:
    if flow.blind:
        yield f"cannot see into module {flow.blind[0]!r}, which runs scripted or foreign code"
    modules = dict(model.named_modules())
    for call in (call for call in flow.calls if sight.must_see(model, call)):
        owner, number = call.owner
        module = modules[owner]
        seen = next(module.children(), None) is None if sight.modules is None else type(module) in sight.modules
        if not seen:
            where = f"{call.function} in {owner or 'the network'!r} ({type(module).__name__})"
            yield f"acts only on modules it knows, and would miss {where}"
        if number and not sight.reused:
            yield f"needs modules that run once in a pass, and {owner!r} runs more often"
        if any(len(value.consumers) > 1 for value in call.inputs):
            yield f"hooks the input of {owner!r}, which also goes elsewhere, and would change that gradient too"
