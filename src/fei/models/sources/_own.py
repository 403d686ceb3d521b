"""file.py:factory and package.module:factory, networks that a function of the user's own makes."""

import importlib
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

from torch import nn

from fei.common.consent import check_module
from fei.common.source_files import import_file
from fei.common.words import in_brief, suggestion
from fei.errors import FEIError, InputError, ModelError
from fei.models.classifier import Classifier
from fei.models.identity import OWN_FILE
from fei.models.sources._checkpoint import Checkpoint, load_checkpoint

_OTHER_FORMS = ("torchvision", "timm", "hf")


def load_from_file(name: str, checkpoint: Checkpoint | None) -> Classifier:
    """Wrap the network that a function in a Python file returns; the name is "path/to/file.py:factory".

    The file is imported under a name of its own, so that it does not replace another module.
    """
    path, _, factory = name.partition(".py:")
    file = Path(path.removesuffix(".py") + ".py")
    if not file.is_file():
        raise InputError(f"There is no model file '{file}'; check the path.")
    try:
        module = import_file(file, factory, OWN_FILE)
    except FEIError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelError(f"'{file}' cannot be imported ({in_brief(error)}); it must run without errors.") from error
    return _load(module, factory, checkpoint, where=str(file), form="file.py:factory")


def load_from_package(name: str, checkpoint: Checkpoint | None) -> Classifier:
    """Wrap the network that a function in a module Python finds returns; the name is "package.module:factory"."""
    path, _, factory = name.partition(":")
    check_module(path, factory)
    try:
        try:
            found = importlib.util.find_spec(path)
        except (ImportError, ValueError):  # a parent that is missing, or is no package
            found = None
        module = None if found is None else importlib.import_module(path)
    except (Exception, SystemExit) as error:
        raise ModelError(f"'{path}' cannot be imported ({in_brief(error)}); it must run without errors.") from error
    if module is None:
        forms = [f"{form}:{factory}" for form in _OTHER_FORMS]
        hint = suggestion(f"{path}:{factory}", forms, "check the name, or install its package.", cutoff=0.8)
        raise InputError(f"There is no Python module '{path}'; {hint}")
    return _load(module, factory, checkpoint, where=path, form="package.module:factory")


def _load(module: ModuleType, name: str, checkpoint: Checkpoint | None, *, where: str, form: str) -> Classifier:
    """Call a factory and wrap the network it returns.

    The factory is called without arguments and returns an `nn.Module` on RGB in [0, 1], which may carry `input_size`,
    `labels` and `feature_layers` (names of its own modules), or a `Classifier`. An error calls the module `where`.
    """
    factory = getattr(module, name, None) if name else None
    if not callable(factory):
        known = [
            key
            for key, value in vars(module).items()
            if (inspect.isfunction(value) or inspect.isclass(value))
            and value.__module__ == module.__name__
            and not key.startswith("_")
        ]
        wrong = f"'{where}' has no factory '{name}'" if name else f"'{where}' is given without a factory"
        hint = suggestion(name, known, f"it defines {', '.join(known) or 'none'}.", most=1)
        raise InputError(f"{wrong}, which the form {form} needs; {hint}")
    what = f"{where}:{name}"
    try:
        network = factory()
    except FEIError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelError(f"The factory '{what}' failed ({in_brief(error)}); it is called without arguments.") from error
    if not isinstance(network, nn.Module):
        raise ModelError(f"The factory '{what}' returned a {type(network).__name__}; it must return an nn.Module.")
    if not isinstance(network, Classifier):
        carried = [key for key in ("input_size", "labels", "feature_layers") if hasattr(network, key)]
        try:
            network = Classifier(network, **{key: getattr(network, key) for key in carried})
        except InputError as error:
            wrong = str(error).rstrip(".")
            raise ModelError(f"The network of '{what}' describes itself wrongly ({wrong}); mend it.") from error
    network.files = (module.__file__,) if module.__file__ else ()
    return load_checkpoint(network, checkpoint)
