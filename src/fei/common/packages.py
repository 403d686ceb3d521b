"""Packages that only a part of this project needs, and that an extra of the installation brings."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from fei.errors import PackageError

_CALLED = {"skimage": "scikit-image", "sklearn": "scikit-learn"}


def need(what: str, extra: str, *packages: str) -> None:
    """See that packages are installed, before they are imported. Nothing of them is loaded for that.

    Args:
        what: What needs them, to begin a sentence with.
        extra: The extra of this project that installs them.
        packages: The names they are imported by.

    Raises:
        PackageError: If one of them is not installed.
    """
    for package in packages:
        if (sys.modules[package] if package in sys.modules else find_spec(package)) is None:
            name = _CALLED.get(package, package)
            raise PackageError(f'{what} needs {name}, which is not installed; run pip install "fei[{extra}]".')
