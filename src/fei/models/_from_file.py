"""file.py:factory, a network of the user's own, from a Python file."""

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from fei.common.words import in_brief
from fei.errors import InputError, ModelError
from fei.models._checkpoint import Checkpoint
from fei.models._factory import load_from_factory
from fei.models.classifier import Classifier


def load_from_file(name: str, checkpoint: Checkpoint | None) -> Classifier:
    """Call a factory in a Python file and wrap the network it returns.

    Args:
        name: "path/to/file.py:factory".
        checkpoint: Weights for it.

    Returns:
        The network as a classifier.

    Raises:
        InputError: If the file or the factory is not there.
        ModelError: If one of them is there and does not work, or the checkpoint does not fit.
    """
    path, _, factory = name.partition(".py:")
    file = Path(path.removesuffix(".py") + ".py")
    return load_from_factory(_import_file(file), factory, checkpoint, where=str(file), form="file.py:factory")


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
