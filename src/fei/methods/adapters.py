"""Anybody's attribution code as a method: functions, classes of captum, torchcam and pytorch_grad_cam, or their names.

    method = as_method(lambda model, inputs, target: my_maps(model, inputs, target))
    method = as_method(captum.attr.DeepLift)                                    # baselines: the reference R
    method = as_method(lambda model: NoiseTunnel(Saliency(model)), nt_samples=20, stdevs=0.1)
    method = as_method("torchcam.methods:LayerCAM", target_layer="layer4")
    method = as_method("pytorch_grad_cam:HiResCAM")
    method = as_method("my_file.py:my_maps")

Every kind is called with one image at a time, in evaluation mode, with gradients on, and with torch's and numpy's
global generators seeded from the image, so that maps depend on neither the order nor the batch. The network is given
back as it was. Maps are summed over colour channels, never rescaled, and refused if they are not one finite map per
image. Networks and layers that the hooks of captum (BSD-3) or torchcam (Apache-2) would misread are refused; that costs
one more forward pass per image, and one again to choose the class. Not checked: whether a formula is its paper's
(torchcam 0.5 has other Grad-CAM++ weights, captum 0.9's DeepLift does not sum up through max-pooling), and what a
function of one's own does inside.
"""

from __future__ import annotations

import abc
import copy
import importlib
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from captum import attr
from torch import Tensor, nn

from fei.common.consent import check_module
from fei.common.random_state import lent_random_state
from fei.common.source_files import import_file
from fei.common.words import suggestion
from fei.core.scoring import logits_of
from fei.errors import InputError
from fei.methods._baseline import Baseline, Task
from fei.methods._foreign import check_activations, check_layer, checked_maps, kept_state, layer_name

if TYPE_CHECKING:
    from fei.methods._call import Method

_METHOD_ARGUMENTS = {"reference", "generator", "batch_size", "progress"}
_NOT_OPTIONS = {"self", "inputs", "target", "additional_forward_args", "device_ids"}


def as_method(obj: Any, **options: Any) -> Method:
    """Make a method of attribution code.

    Args:
        obj: One of

            - a function ``(model, inputs, target, **options) -> maps``, `inputs` being (1, C, H, W) and `target` a
              tensor with one class index, or the caller's callable;
            - a captum `Attribution` class. It explains the logit (or the caller's callable target); `baselines` is the
              reference R unless given; a `layer` may be a module's name and is the last feature layer unless given;
              the output of a layer is upsampled bilinearly;
            - a torchcam extractor class, likewise with `target_layer`. Its map is not normalised, but has the ReLU of
              that class, if any;
            - a class of pytorch_grad_cam, likewise with `target_layers`, one of them. Its map is scaled to [0, 1] by
              that library;
            - a function of the model alone that makes an object of captum's or torchcam's;
            - a `Baseline` class, or a method, which is returned as it is;
            - the name of any of them as ``"package.module:object"`` or ``"path/to/file.py:object"``.
        options: For a function, its further arguments; for a class, those of its constructor and, of captum's, those
            of ``attribute``; for a maker of such objects, those of their ``attribute`` or call.

    Raises:
        InputError: If `obj` is none of them or does not take these options.

    Examples:
        >>> method = fei.methods.as_method(lambda model, inputs, target: inputs.mean(1, keepdim=True))
        >>> tuple(method(model, images).shape)
        (2, 1, 16, 16)
        >>> tuple(fei.methods.as_method("captum.attr:InputXGradient")(model, images).shape)
        (2, 1, 16, 16)
    """
    source = obj if isinstance(obj, str) else _name(obj)
    if isinstance(obj, str):
        obj = _load(obj)
    if isinstance(obj, type):
        return _from_class(obj, source, options)
    if isinstance(obj, attr.Attribution) or _is_extractor(obj):
        raise InputError(f"{source} is bound to one network already; pass its class, or a function that makes it.")
    if callable(obj) and set(_parameters(obj)) >= _METHOD_ARGUMENTS:
        if options:
            raise InputError(f"{source} is a method already and takes no options here; give them when making it.")
        method: Method = obj
        return method
    if _takes(obj, 1):
        return _FactoryMethod(source, obj, options)
    if _takes(obj, 3, options):
        return _FunctionMethod(source, obj, options)
    with_options = f" with the option(s) {', '.join(options)}" if options else ""
    raise InputError(
        f"{source} cannot be called as (model, inputs, target){with_options}, nor as (model); pass such a function, a "
        "captum Attribution class or a torchcam extractor class."
    )


class _Adapter(Baseline):
    """Foreign code behind the checks of a baseline; one image at a time, since it may draw at random."""

    one_by_one = True

    def __init__(self, source: str, code: Callable[..., Any], options: dict[str, Any]) -> None:
        self.source, self.code, self.options = source, code, options

    def __repr__(self) -> str:
        return f"as_method({self.source})"

    @property
    def config(self) -> dict[str, Any]:
        """Where the code comes from, and its options."""
        options = {name: repr(value) for name, value in self.options.items()}
        return {"source": self.source, "options": options} | self._origin

    @abc.abstractmethod
    def run(self, task: Task) -> tuple[Any, bool]:
        """What the foreign code returns for one image, and whether it is a layer's map, of any resolution."""

    def maps(self, task: Task) -> Tensor:
        """The map of one image."""
        with kept_state(task.model), lent_random_state(task.generator("adapter").initial_seed()):
            result, of_layer = self.run(task)
        return checked_maps(result, task.images, self.source, resize=of_layer)

    def refuse_callable_target(self, task: Task) -> None:
        if callable(task.target):
            raise InputError(f"{self.source} needs class indices as targets; a callable target cannot be used with it.")

    def attribute(self, attribution: Any, task: Task, model: nn.Module, options: dict[str, Any]) -> tuple[Any, bool]:
        """The result of a captum object that was built on `model`."""
        if isinstance(attribution, attr.FeaturePermutation):
            raise InputError(f"{self.source} shuffles pixels between the images of a batch; a method has one at once.")
        check_activations(attribution, model, task.images, self.source)
        layer = getattr(getattr(attribution, "grad_cam", attribution), "layer", None)
        if isinstance(layer, nn.Module):
            check_layer(model, layer, task.images, self.source, keeps_values=False)
        known = _parameters(attribution.attribute)
        defaults = {
            "baselines": task.reference.expand_as(task.images),
            "perturbations_per_eval": task.rows,
            "internal_batch_size": task.rows,
        }
        arguments = {name: value for name, value in defaults.items() if name in known} | options
        result = attribution.attribute(task.images.detach().requires_grad_(), **arguments)
        return result, isinstance(attribution, attr.LayerAttribution)

    def extract(self, extractor: Any, task: Task, options: dict[str, Any], call: int | None = None) -> tuple[Any, bool]:
        """The map of a torchcam extractor; `call` is the number of the layer's call that is meant, if it has more."""
        with extractor:
            for name in extractor.target_names:
                layer = task.model.get_submodule(name)
                check_layer(task.model, layer, task.images, self.source, call=call, keeps_values=True)
            scores = logits_of(task.model(task.images.detach().requires_grad_()), len(task.images))
            cams = extractor(task.chosen.tolist(), scores, normalized=False, **options)
        if len(cams) != 1:
            raise InputError(f"{self.source} returned maps of {len(cams)} layers; name one layer.")
        return cams, True


class _FunctionMethod(_Adapter):
    """A function ``(model, inputs, target, **options) -> maps``."""

    def run(self, task: Task) -> tuple[Any, bool]:
        target = task.target if callable(task.target) else task.chosen
        return self.code(task.model, task.images, target, **self.options), False


class _FactoryMethod(_Adapter):
    """A function of the model that makes a captum object or a torchcam extractor, anew for each image."""

    def run(self, task: Task) -> tuple[Any, bool]:
        self.refuse_callable_target(task)
        made = self.code(task.model)
        if _is_extractor(made):
            return self.extract(made, task, self.options)
        if not isinstance(made, attr.Attribution):
            raise InputError(
                f"{self.source} takes the model alone and returned {type(made).__name__}; expected a captum "
                "Attribution or a torchcam extractor."
            )
        # an inner method such as NoiseTunnel's takes the target too, without naming it
        named = {"target", "kwargs"} & set(_parameters(made.attribute))
        target = {"target": int(task.chosen[0])} if named else {}
        return self.attribute(made, task, task.model, target | self.options)


class _CaptumMethod(_Adapter):
    """A captum class, built for each image on the network with one number, the explained score, as its output."""

    def __init__(self, source: str, code: type, options: dict[str, Any]) -> None:
        built, called = _parameters(code), _parameters(code.attribute)  # type: ignore[attr-defined]
        first = next(iter(built), None)
        if first not in {"forward_func", "model"} or "inputs" not in called:
            raise InputError(f"{source} is not built from a model alone; pass a function of the model that makes it.")
        known = {name: p for name, p in (called | built).items() if name not in _NOT_OPTIONS and name != first}
        automatic = {"layer", "baselines"}
        missing = [n for n, p in known.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        _check_options(source, options, known, [name for name in missing if name not in automatic])
        self._built = {name: value for name, value in options.items() if name in built}
        self._needs_layer = "layer" in built
        super().__init__(source, code, {name: value for name, value in options.items() if name not in built})

    def run(self, task: Task) -> tuple[Any, bool]:
        # LRP rewrites weights and loads them back, so it works on a copy
        model = copy.deepcopy(task.model) if issubclass(self.code, attr.LRP) else task.model  # type: ignore[arg-type]
        arguments = dict(self._built)
        if self._needs_layer:
            name, _ = layer_name(task.survey, arguments.get("layer"), self.source)
            arguments["layer"] = model.get_submodule(name)
        return self.attribute(self.code(_Scored(task, model), **arguments), task, model, self.options)


class _TorchcamMethod(_Adapter):
    """A torchcam extractor class, built for each image."""

    def __init__(self, source: str, code: type, options: dict[str, Any]) -> None:
        _check_options(source, options, _parameters(code), [])
        super().__init__(source, code, options)

    def run(self, task: Task) -> tuple[Any, bool]:
        self.refuse_callable_target(task)
        options = dict(self.options)
        layer, call = options.pop("target_layer", None), None
        if not isinstance(layer, list):
            layer, call = layer_name(task.survey, layer, self.source)
        if "batch_size" in _parameters(self.code):
            options.setdefault("batch_size", task.rows)
        # its hook is left with the last call of the layer, which is the only one that may be meant
        return self.extract(self.code(task.model, target_layer=layer, **options), task, {}, call)


class _GradCamMethod(_Adapter):
    """A class of pytorch_grad_cam, built for each image on the network with the explained score as its output."""

    def __init__(self, source: str, code: type, options: dict[str, Any]) -> None:
        built, called = _parameters(code), _parameters(code.__call__)
        own = {"model", "self", "input_tensor", "targets"}
        known = {name: p for name, p in (called | built).items() if name not in own}
        _check_options(source, options, known, [])
        self._called = {name: value for name, value in options.items() if name in called}
        super().__init__(source, code, {name: value for name, value in options.items() if name not in called})

    def run(self, task: Task) -> tuple[Any, bool]:
        options = dict(self.options)
        given = options.pop("target_layers", None)
        layers = given if isinstance(given, (list, tuple)) else [given]
        if len(layers) != 1:
            raise InputError(f"{self.source} is given {len(layers)} layers; name one layer.")
        name, call = layer_name(task.survey, layers[0], self.source)
        layer = task.model.get_submodule(name)
        check_layer(task.model, layer, task.images, self.source, call=call, keeps_values=False)
        cam = self.code(_Scored(task, task.model), target_layers=[layer], **options)
        # a target of that library takes one row of the output, and here that is the score itself
        return cam(input_tensor=task.images.detach(), targets=[lambda row: row], **self._called), True


class _Scored(nn.Module):
    """A network whose output is the explained score of each row, all rows being versions of one image."""

    def __init__(self, task: Task, network: nn.Module) -> None:
        super().__init__()
        self.network, self._task, self.training = network, task, False

    def forward(self, rows: Tensor) -> Tensor:
        return self._task.phi(self.network(rows), copies=len(rows))


def _from_class(kind: type, source: str, options: dict[str, Any]) -> Method:
    if issubclass(kind, Baseline):
        _check_options(source, options, _parameters(kind), [])
        return kind(**options)
    if issubclass(kind, attr.Attribution):
        return _CaptumMethod(source, kind, options)
    if _is_extractor(kind):
        return _TorchcamMethod(source, kind, options)
    if "target_layers" in _parameters(kind) and {"input_tensor", "targets"} <= set(_parameters(kind.__call__)):
        return _GradCamMethod(source, kind, options)  # told by its interface, as pytorch_grad_cam need not be there
    raise InputError(
        f"{source} is no class of captum, torchcam or pytorch_grad_cam that is known; pass a function (model, inputs, "
        "target)."
    )


def _is_extractor(obj: Any) -> bool:
    """Whether an object is a torchcam extractor, or its class; told by its interface, as torchcam need not be there."""
    return all(hasattr(obj, name) for name in ("remove_hooks", "reset_hooks", "__enter__"))


def _parameters(code: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(code).parameters) if callable(code) else {}
    except ValueError:  # compiled functions may have none
        return {}


def _takes(code: Any, count: int, options: dict[str, Any] | None = None) -> bool:
    if not callable(code):
        return False
    try:
        inspect.signature(code).bind(*[None] * count, **(options or {}))
    except (TypeError, ValueError):
        return False
    return True


def _check_options(
    source: str, options: Iterable[str], known: dict[str, inspect.Parameter], required: Iterable[str]
) -> None:
    names = [name for name, p in known.items() if p.kind not in {p.VAR_KEYWORD, p.VAR_POSITIONAL}]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in known.values())
    unknown = [option for option in options if option not in names and not open_ended]
    if unknown:
        raise InputError(f"{source} has no option {unknown[0]!r}; it takes {', '.join(names) or 'none'}.")
    missing = [name for name in required if name not in options]
    if missing:
        raise InputError(f"{source} needs the option {missing[0]!r}; give it a value.")


def _load(name: str) -> Any:
    """The object that ``"package.module:object"`` names."""
    path, _, attribute = name.rpartition(":")  # a path may begin with a drive
    if not path or not attribute:
        raise InputError(f"{name!r} names no object; the form is package.module:object or file.py:object.")
    if path.endswith(".py") and not Path(path).is_file():
        raise InputError(f"There is no method file '{path}'; check the path.")
    if not path.endswith(".py"):
        check_module(path, attribute)
    try:
        found: Any = import_file(Path(path), attribute, "_fei_method_") if path.endswith(".py") else _imported(path)
    except ImportError as error:
        raise InputError(f"{name!r} cannot be imported ({error}); check the name and what is installed.") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InputError(f"{path!r} has no {part!r}; {suggestion(part, dir(found), 'check the name.')}")
        found = getattr(found, part)
    return found


def _imported(path: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
        from fei.models.sources import import_torchvision

        import_torchvision()  # which it needs, and which does not fit torch without help here
        return importlib.import_module(path)


def _name(obj: Any) -> str:
    """What to call an object in a sentence: "captum.DeepLift" for a class, the bare name of anything else."""
    name: str = getattr(obj, "__qualname__", None) or type(obj).__name__
    return f"{obj.__module__.partition('.')[0]}.{name}" if isinstance(obj, type) else name
