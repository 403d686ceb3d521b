"""Importing the packages that have networks: torchvision, also where it does not fit torch, timm and transformers."""

import importlib
import sys
from types import ModuleType

import torch

from fei.common.packages import need
from fei.errors import ModelError

# While it is being imported, torchvision attaches Python code to operators that its compiled library declares. Where
# that library cannot be loaded (a CUDA build beside a CPU build of torch) the import dies of it, though no classifier
# uses these operators. Declaring them is enough. The library object must live on: its end takes the declarations back.
_OPERATORS = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_library: torch.library.Library | None = None


def import_torchvision() -> ModuleType:
    """Import torchvision, from its beginning if an earlier import did not get to its end and left modules behind.

    Raises:
        ModelError: If it does not fit torch.
        PackageError: If it is not installed.
    """
    if "torchvision" not in sys.modules:
        for name in [name for name in sys.modules if name.startswith("torchvision.")]:
            del sys.modules[name]
    try:
        return _import("torchvision", "torchvision")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
        if not _declare_operators():
            raise ModelError(
                f"The installed torchvision does not fit torch {torch.__version__} ({error}); install the version that "
                "belongs to it with pip install --force-reinstall torchvision."
            ) from error
    return import_torchvision()


def import_beside_torchvision(name: str, extra: str) -> ModuleType:
    """Import a package that needs torchvision and cannot mend it; `extra` is the extra of ours that installs it."""
    import_torchvision()
    return _import(name, extra)


def _import(name: str, extra: str) -> ModuleType:
    need("This network", extra, name)
    return importlib.import_module(name)


def _declare_operators() -> bool:
    """Declare the operators that are missing; returns whether there were any."""
    global _library
    if _library is None:
        # A fragment, since some other package may have met the same problem and own the namespace already.
        _library = torch.library.Library("torchvision", "FRAGMENT")
    missing = [operator for operator in _OPERATORS if not hasattr(torch.ops.torchvision, operator)]
    for operator in missing:
        _library.define(operator + _SCHEMA)
    return bool(missing)
