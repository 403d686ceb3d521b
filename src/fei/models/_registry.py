"""What a model specification can say. A new kind of network is one line in the table."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from fei.errors import InputError
from fei.models import _file, embedded
from fei.models.classifier import Classifier


@dataclass(frozen=True)
class _Source:
    """A kind of specification: how it is written, how it is recognised, and who loads it."""

    form: str
    pattern: re.Pattern[str]
    load: Callable[[str], Classifier]


_SOURCES = (
    _Source("efficientnet_lite0", re.compile(r"efficientnet_lite0"), embedded.load_efficientnet_lite0),
    _Source("path/to/file.py:factory[:checkpoint]", re.compile(r".+\.py(:.*)?"), _file.load_file_factory),
)


def available() -> list[str]:
    """How the networks that `load` knows are written: names, and forms to fill in."""
    return [source.form for source in _SOURCES]


def load(spec: str) -> Classifier:
    """Load a network, in evaluation mode, on the CPU.

    Args:
        spec: "efficientnet_lite0" (ImageNet; comes with the install), or "path/to/file.py:factory" for a function of
            yours that returns an `nn.Module` on RGB in [0, 1]; ":checkpoint" after it names a file with its weights.

    Returns:
        The network as a `Classifier`.

    Raises:
        InputError: If the specification names nothing that exists.
        ModelError: If the network or its weights were found and cannot be used.
    """
    if not isinstance(spec, str):
        raise InputError(f"The model is given as a {type(spec).__name__}; give a string: {', '.join(available())}.")
    for source in _SOURCES:
        if source.pattern.fullmatch(spec):
            return source.load(spec)
    raise InputError(f"There is no model '{spec}' in this version; give one of: {', '.join(available())}.")
