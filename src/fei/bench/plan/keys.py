"""What work is called: keys made of its content, so that the same work has the same key in every run."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fei.core.attention import find_attention
from fei.core.checks import explained_failure
from fei.core.dataflow import trace
from fei.errors import FEIError
from fei.models import Classifier
from fei.models.identity import tensor_bytes
from fei.models.structure import grey_image

SCHEMA = 2
"""Raised when the same key would no longer mean the same numbers."""

_LENGTH = 32  # hexadecimal digits of a key: 128 bits
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def canonical(content: Any) -> str:
    """Plain data as JSON, the same for equal content: keys in order, no spaces, other objects by their `repr`."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_plain)


def key_of(kind: str, **content: Any) -> str:
    """The key of a unit of work.

    Args:
        kind: What sort of work.
        content: Everything that determines the result.

    Returns:
        The first 32 hexadecimal digits of a SHA-256.
    """
    text = canonical({"schema": SCHEMA, "kind": kind} | content)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:_LENGTH]


def plan_key(plan: Any) -> str:
    """The key of a plan: the same for plans that ask for the same, however they are written."""
    return hashlib.sha256(canonical(plan.model_dump(mode="json")).encode("ascii")).hexdigest()[:_LENGTH]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes.

    Raises:
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@torch.no_grad()
def model_fingerprint(classifier: Classifier) -> str:
    """SHA-256 of what a network computes with: weights, structure and the way images are prepared for it.

    Where it was loaded from is left out: the same network from two places has one fingerprint. The code of a `forward`
    is not seen; a network that only computes otherwise than before needs another structure text or other weights.

    Args:
        classifier: The network.

    Returns:
        Hexadecimal digits.
    """
    content = hashlib.sha256()
    for name, value in sorted(classifier.state_dict().items()):
        content.update(f"{name}\0".encode())
        content.update(tensor_bytes(value) if isinstance(value, Tensor) else canonical(value).encode())
    settings = {
        "structure": _ADDRESS.sub("", str(classifier.network)),
        "mean": classifier.mean.flatten().tolist(),
        "std": classifier.std.flatten().tolist(),
        "normalizes": classifier.normalizes,
        "input_size": classifier.input_size,
        "resize": classifier.resize,
        "interpolation": classifier.interpolation,
        "squash": classifier.squash,
        "feature_layers": feature_layers(classifier),
    }
    content.update(canonical(settings).encode("ascii"))
    return content.hexdigest()


def feature_layers(classifier: Classifier) -> list[str]:
    """The network's feature layers; none where it has none that can be found."""
    try:
        return classifier.feature_layers
    except FEIError:
        return []


def attends(classifier: Classifier) -> bool:
    """Whether the network has attention between tokens, seen on a grey image."""
    image = grey_image(classifier)
    try:
        with explained_failure(image):
            flow, _ = trace(classifier, image)
    except FEIError:  # what is wrong, its units will tell
        return False
    return find_attention(classifier, flow).between_tokens


def _plain(value: Any) -> Any:
    """What JSON does not know: dates of a TOML file, tuples' relatives, objects among a method's options."""
    return sorted(map(str, value)) if isinstance(value, (set, frozenset)) else _ADDRESS.sub("", repr(value))
