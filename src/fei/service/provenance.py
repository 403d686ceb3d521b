"""How a page was made: facts for its foot, and the code and the command that make it again."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fei import __version__
from fei import methods as registry
from fei.core.randomness import image_digest
from fei.errors import InputError
from fei.models import Classifier
from fei.models.preprocessing import in_words
from fei.protocols import available
from fei.references import Reference, ReferenceSpec
from fei.service.request import option_text

if TYPE_CHECKING:
    from fei.service.inquiry import Inquiry
    from fei.service.looking import Look


def facts(inquiry: Inquiry, seen: Look) -> dict[str, str]:
    """What a reader should know, in the order of its importance."""
    named = _reference_words(inquiry.reference)
    replaced = named if inquiry.protocol.replacement == "reference" else "fixed by the protocol"
    model = inquiry.model
    return {
        "network": inquiry.spec or type(model).__name__,
        **({"note": " ".join(inquiry.notes)} if inquiry.notes else {}),
        "image": seen.source or "given as values",
        **({"sees": in_words(model)} if isinstance(model, Classifier) and seen.source is not None else {}),
        "input": f"{' × '.join(map(str, seen.inputs.shape[1:]))}, SHA-256 {image_digest(seen.inputs[0])[:16]}…",
        "target": f"class {inquiry.explained(seen)}, {'the prediction' if inquiry.target is None else 'asked for'}",
        "protocol": inquiry.protocol.id,
        "reference R": f"{replaced}; for methods: {named}" if replaced != named else named,
        "seed": str(inquiry.seed),
        "versions": f"fei {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
    }


def code(inquiry: Inquiry, seen: Look) -> str:
    """Python that makes the page of one image again; what it cannot know is left to the reader in a comment."""
    source = seen.source
    model = f"fei.models.load({inquiry.spec!r})" if inquiry.spec else "...  # your network, in evaluation mode"
    images = "[" + repr(source) + "]" if source is not None else "...  # the network's input, (1, C, H, W)"
    lines = ["import fei", "from fei.service import collect", "", f"model = {model}", f"images = {images}"]
    lines.append("methods = {")
    for name, method in inquiry.methods.items():
        lines.append(f"    {name!r}: {_creation(name, method)}")
    arguments = [f"target={inquiry.target}"] if inquiry.target is not None else []
    arguments += [f"seed={inquiry.seed}", f"protocol={inquiry.protocol.id!r}"]
    if inquiry.reference is not None:
        simple = isinstance(inquiry.reference, str | float | int | Reference)
        arguments.append(f"reference={inquiry.reference!r}" if simple else "reference=...")
    lines += ["}", f"shown = collect(model, images, methods, {', '.join(arguments)})", 'shown.save("explorer.html")']
    return "\n".join(line.replace("Reference(", "fei.Reference(") for line in lines) + "\n"


def command(inquiry: Inquiry, seen: Look) -> str | None:
    """The command that makes the page of one image again; ``None`` where the command line cannot say it."""
    source = seen.source
    options = {name: given_options(name, method) for name, method in inquiry.methods.items()}
    told = {name: given for name, given in options.items() if given is not None}
    if source is None or not inquiry.spec or inquiry.reference is not None or len(told) < len(options):
        return None
    if inquiry.protocol.id not in available():
        return None
    words = ["fei", "compare", source, "--model", inquiry.spec, "--methods", ",".join(options)]
    words += ["--target", str(inquiry.target)] if inquiry.target is not None else []
    words += ["--protocol", inquiry.protocol.id, "--seed", str(inquiry.seed)]
    for name, given in told.items():
        for option, value in given.items():
            words += ["--option", f"{name}.{option}={option_text(value)}"]
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


def _reference_words(reference: ReferenceSpec) -> str:
    if reference is None:
        return "one random colour, from the seed"
    if isinstance(reference, str | Reference):
        named = reference if isinstance(reference, Reference) else Reference.of(reference)
        return named.kind + (", drawn again at each step" if named.resample else "")
    if isinstance(reference, float | int):
        return str(reference)
    return "given as values" if isinstance(reference, Tensor) else "given as a function"
