"""A network of the user's own: a factory in a Python file, and perhaps a checkpoint."""

import difflib
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from fei.errors import FEIError, InputError, ModelError
from fei.models._checkpoint import load_checkpoint
from fei.models._wording import in_brief
from fei.models.classifier import Classifier


def load_file_factory(spec: str) -> Classifier:
    """Call a factory in a Python file and wrap the network it returns.

    Args:
        spec: "path/to/file.py:factory[:checkpoint]". The factory is called without arguments and returns an `nn.Module`
            on RGB in [0, 1], which may carry `input_size`, `labels` and `feature_layers` (names of its own modules).

    Returns:
        The network in evaluation mode.

    Raises:
        InputError: If the file, the factory or the checkpoint is not there.
        ModelError: If one of them is there and does not work.
    """
    path, _, rest = spec.partition(".py:")
    name, _, checkpoint = rest.partition(":")
    file = Path(path.removesuffix(".py") + ".py")
    factory = _find_factory(_import_file(file), name, file)
    network = _call(factory, f"{file}:{name}")
    if checkpoint:
        load_checkpoint(network.network if isinstance(network, Classifier) else network, Path(checkpoint))
    return _wrap(network, spec).eval()


def _import_file(file: Path) -> ModuleType:
    """Import a file under a name of its own, beside whatever else is called the same."""
    if not file.is_file():
        raise InputError(f"There is no model file '{file}'; check the path.")
    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]
    name = f"_fei_model_{file.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ModelError(f"'{file}' cannot be imported; it must be a Python source file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look a class's module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ModelError(f"'{file}' cannot be imported ({in_brief(error)}); it must run without errors.") from error
    return module


def _find_factory(module: ModuleType, name: str, file: Path) -> Callable[[], Any]:
    """The callable of that name, or an error that lists those there are."""
    factory: Callable[[], Any] | None = getattr(module, name, None) if name else None
    if callable(factory):
        return factory
    known = [
        key
        for key, value in vars(module).items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
        and not key.startswith("_")
    ]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    wrong = f"'{file}' has no factory '{name}'" if name else f"'{file}' is given without a factory"
    raise InputError(f"{wrong}; {hint}it defines {', '.join(known) or 'none'}, and the form is file.py:factory.")


def _call(factory: Callable[[], Any], what: str) -> nn.Module:
    try:
        network = factory()
    except FEIError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelError(f"The factory '{what}' failed ({in_brief(error)}); it is called without arguments.") from error
    if not isinstance(network, nn.Module):
        raise ModelError(f"The factory '{what}' returned a {type(network).__name__}; it must return an nn.Module.")
    return network


def _wrap(network: nn.Module, spec: str) -> Classifier:
    if isinstance(network, Classifier):
        network.spec = spec
        return network
    try:
        return Classifier(
            network,
            input_size=getattr(network, "input_size", 224),
            labels=getattr(network, "labels", None),
            feature_layers=getattr(network, "feature_layers", None),
            spec=spec,
        )
    except InputError as error:
        raise ModelError(f"The network of '{spec}' describes itself wrongly: {error}") from error
