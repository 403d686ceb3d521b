"""How a page was made: facts for its foot, and the code and the command that make it again."""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fei import __version__
from fei import methods as registry
from fei.core.randomness import image_digest
from fei.errors import InputError
from fei.protocols import Protocol, available
from fei.references import Reference, ReferenceSpec


@dataclass(frozen=True)
class Making:
    """What a page is made from.

    Attributes:
        model: The network.
        sources: The file of each image; ``None`` where it came as values.
        methods: By name, a method, an explanation or maps.
        target_given: Whether the caller named the class.
        seed: Of whatever is random.
        protocol: How insertion and deletion are measured.
        reference: R as the caller gave it.
    """

    model: nn.Module
    sources: Sequence[str | None]
    methods: Mapping[str, Any]
    target_given: bool
    seed: int
    protocol: Protocol
    reference: ReferenceSpec

    @property
    def protocol_reference(self) -> ReferenceSpec:
        """R for the protocol: nothing where it fixes what replaces pixels."""
        return self.reference if self.protocol.replacement == "reference" else None

    @property
    def spec(self) -> str:
        """What `fei.models.load` loads this network from; empty where it was made otherwise."""
        return str(getattr(self.model, "spec", ""))


def facts(making: Making, number: int, x: Tensor, target: int) -> dict[str, str]:
    """What a reader should know, in the order of its importance."""
    named = _reference_words(making.reference)
    replaced = named if making.protocol.replacement == "reference" else "fixed by the protocol"
    return {
        "network": making.spec or type(making.model).__name__,
        "image": making.sources[number] or "given as values",
        "input": f"{' × '.join(map(str, x.shape[1:]))}, SHA-256 {image_digest(x[0])[:16]}…",
        "target": f"class {target}, {'asked for' if making.target_given else 'the prediction'}",
        "protocol": making.protocol.id,
        "reference R": f"{replaced}; for methods: {named}" if replaced != named else named,
        "seed": str(making.seed),
        "versions": f"fei {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
    }


def code(making: Making, number: int, target: int) -> str:
    """Python that makes the page of one image again; what it cannot know is left to the reader in a comment."""
    source = making.sources[number]
    model = f"fei.models.load({making.spec!r})" if making.spec else "...  # your network, in evaluation mode"
    images = "[" + repr(source) + "]" if source is not None else "...  # the network's input, (1, C, H, W)"
    lines = ["import fei", "from fei.service import collect", "", f"model = {model}", f"images = {images}"]
    lines.append("methods = {")
    for name, method in making.methods.items():
        lines.append(f"    {name!r}: {_creation(name, method)}")
    arguments = [f"target={target}"] if making.target_given else []
    arguments += [f"seed={making.seed}", f"protocol={making.protocol.id!r}"]
    if making.reference is not None:
        simple = isinstance(making.reference, str | float | int | Reference)
        arguments.append(f"reference={making.reference!r}" if simple else "reference=...")
    lines += ["}", f"shown = collect(model, images, methods, {', '.join(arguments)})", 'shown.save("explorer.html")']
    return "\n".join(line.replace("Reference(", "fei.Reference(") for line in lines) + "\n"


def command(making: Making, number: int, target: int) -> str | None:
    """The command that makes the page of one image again; ``None`` where the command line cannot say it."""
    source = making.sources[number]
    options = {name: given_options(name, method) for name, method in making.methods.items()}
    told = {name: given for name, given in options.items() if given is not None}
    if source is None or not making.spec or making.reference is not None or len(told) < len(options):
        return None
    if making.protocol.id not in available():
        return None
    words = ["fei", "compare", source, "--model", making.spec, "--methods", ",".join(options)]
    words += ["--target", str(target)] if making.target_given else []
    words += ["--protocol", making.protocol.id, "--seed", str(making.seed)]
    for name, given in told.items():
        for option, value in given.items():
            words += ["--option", f"{name}.{option}={_text(value)}"]
    return shlex.join([*words, "--html"])


def given_options(name: str, method: Any) -> dict[str, Any] | None:
    """The options in which a method differs from `fei.methods.create(name)`; ``None`` if it was made otherwise."""
    try:
        entry = registry.describe(name)
    except InputError:
        return None
    if entry.family == "adapter" or isinstance(method, Tensor):
        return None
    given = getattr(method, "options", None)  # FEI's: the rest comes from the preset
    if given is not None:
        return dict(given)
    defaults = {option.name: option.default for option in entry.options if option.name != "seed"}
    config: Mapping[str, Any] = getattr(method, "config", {})
    settings = config.get("settings", config)  # an explanation's
    return {option: value for option, value in settings.items() if option in defaults and defaults[option] != value}


def _creation(name: str, method: Any) -> str:
    given = given_options(name, method)
    if given is None:
        return "...,  # a method, its explanation, or its maps"
    return f"fei.methods.create({', '.join([repr(name), *(f'{key}={value!r}' for key, value in given.items())])}),"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _reference_words(reference: ReferenceSpec) -> str:
    if reference is None:
        return "one random colour, from the seed"
    if isinstance(reference, Reference):
        return reference.kind + (", drawn again at each step" if reference.resample else "")
    if isinstance(reference, str | float | int):
        return str(reference)
    return "given as values" if isinstance(reference, Tensor) else "given as a function"
