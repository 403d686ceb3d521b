"""package.module:factory, a network of the user's own, from an installed package."""

import importlib
import importlib.util

from fei.common.words import in_brief, suggestion
from fei.errors import InputError, ModelError
from fei.models._checkpoint import Checkpoint
from fei.models._factory import load_from_factory
from fei.models.classifier import Classifier

_OTHER_FORMS = ("torchvision", "timm", "hf")


def load_from_package(name: str, checkpoint: Checkpoint | None) -> Classifier:
    """Call a factory in a module that Python finds, and wrap the network it returns.

    Args:
        name: "package.module:factory".
        checkpoint: Weights for it.

    Returns:
        The network as a classifier.

    Raises:
        InputError: If the module or the factory is not there.
        ModelError: If one of them is there and does not work, or the checkpoint does not fit.
    """
    path, _, factory = name.partition(":")
    try:
        found = importlib.util.find_spec(path)
    except (ImportError, ValueError):  # a parent that is missing, or is no package
        found = None
    except (Exception, SystemExit) as error:  # a parent that does not run
        raise _broken(path, error) from error
    if found is None:
        forms = [f"{form}:{factory}" for form in _OTHER_FORMS]
        hint = suggestion(f"{path}:{factory}", forms, "check the name, or install its package.", cutoff=0.8)
        raise InputError(f"There is no Python module '{path}'; {hint}")
    try:
        module = importlib.import_module(path)
    except (Exception, SystemExit) as error:
        raise _broken(path, error) from error
    return load_from_factory(module, factory, checkpoint, where=path, form="package.module:factory")


def _broken(path: str, error: BaseException) -> ModelError:
    return ModelError(f"The module '{path}' cannot be imported ({in_brief(error)}); it must run without errors.")
