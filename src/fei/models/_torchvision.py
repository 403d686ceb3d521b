"""Importing torchvision, also where its compiled part does not fit the installed torch."""

import importlib
import sys
from types import ModuleType

import torch

from fei.errors import ModelError

# While it is being imported, torchvision attaches Python code to operators that its compiled library declares. Where
# that library cannot be loaded (a CUDA build beside a CPU build of torch) the import dies of it, though no classifier
# uses these operators. Declaring them is enough. The library object must live on: its end takes the declarations back.
_OPERATORS = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_library: torch.library.Library | None = None


def import_torchvision() -> ModuleType:
    """Import torchvision.

    Returns:
        The package.

    Raises:
        ModelError: If it is not installed, or cannot be imported.
    """
    try:
        return _import()
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        raise ModelError(
            'torchvision is needed for this and is not installed; run: pip install "fei[torchvision]"'
        ) from error
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    _declare_operators()
    try:
        return _import()
    except RuntimeError as error:
        raise ModelError(
            f"torchvision does not fit torch {torch.__version__} ({error}); "
            "install the version that belongs to it: pip install --force-reinstall torchvision"
        ) from error


def _import() -> ModuleType:
    """Import torchvision, from its beginning if an earlier import did not get to its end and left modules behind."""
    if "torchvision" not in sys.modules:
        for name in [name for name in sys.modules if name.startswith("torchvision.")]:
            del sys.modules[name]
    return importlib.import_module("torchvision")


def _declare_operators() -> None:
    """Declare the operators that are missing."""
    global _library
    if _library is None:
        # A fragment, since some other package may have met the same problem and own the namespace already.
        _library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in _OPERATORS:
        if not hasattr(torch.ops.torchvision, operator):
            _library.define(operator + _SCHEMA)
