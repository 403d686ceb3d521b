"""FEI: attributions that keep the network's computational pathway.

    explainer = fei.FEI(model)
    maps = explainer.attribute(images)

Names are imported when first used, so that ``import fei`` itself is light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fei import compat, data, methods, metrics, models, protocols, references, report
    from fei.auditing.run import audit
    from fei.core.attribution import FEI
    from fei.core.clipgrad import clip_gradient
    from fei.core.explanation import Explanation
    from fei.references import Reference

    __version__: str

_HOME = {
    "FEI": "fei.core.attribution",
    "Explanation": "fei.core.explanation",
    "Reference": "fei.references",
    "audit": "fei.auditing.run",
    "clip_gradient": "fei.core.clipgrad",
}

__all__ = ["FEI", "Explanation", "Reference", "__version__", "audit", "clip_gradient"]
__all__ += ["compat", "data", "methods", "metrics", "models", "protocols", "references", "report"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in __all__:
        return importlib.import_module(f"fei.{name}")
    raise AttributeError(f"module 'fei' has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # as slow to import as all the rest of a command line

    try:
        return version("fei")
    except PackageNotFoundError:  # a source tree that is not installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted(__all__)
