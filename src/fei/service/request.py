"""What is asked for: methods, on images, under one network. A record keeps it as data."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fei import methods
from fei.errors import DataError, InputError
from fei.methods import Entry, Option

_FLAGS = ("model", "method", "target", "seed", "steps", "preset", "reference", "batch_size", "device")
_NUMBERS = ("seed", "steps", "batch_size")


class Request(BaseModel):
    """One or more methods under one network; ``None`` where the method or the network decides.

    Attributes:
        model: The network's specification.
        methods: The options of each method, by name.
        target: The class to explain, by name or index.
        seed: Of whatever is random.
        device: "cpu", "cuda", "mps" or "auto".
        reference: What stands in for removed pixels.
        batch_size: Rows in one forward pass.
        protocol: How insertion and deletion are measured.
        layers: Where to look inside the network.
        stability: Whether maps are made once more with the next seed.

    Examples:
        >>> request = fei.service.Request.of("net.py:net", ["rise"], texts=["samples=20"], target="bright")
        >>> request.methods
        {'rise': {'samples': 20}}
        >>> request.command("photo.jpg").split(" --seed")[0]
        'fei explain photo.jpg --model net.py:net --method rise --target bright'
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: str
    methods: dict[str, dict[str, Any]] = Field(min_length=1)
    target: str | None = None
    seed: int = 0
    device: str = "auto"
    reference: str | None = None
    batch_size: int | None = None
    protocol: str = "held-out-fine"
    layers: list[str] | None = None
    stability: bool = False

    @classmethod
    def of(
        cls,
        model: str,
        names: Sequence[str],
        given: Mapping[str, Any] | None = None,
        texts: Sequence[str] = (),
        *,
        lenient: bool = False,
        **rest: Any,
    ) -> Request:
        """A request as the command line makes it.

        Args:
            model: The network's specification.
            names: Methods; ``*`` in a name stands for anything, and "all" for all that suit any network: those for
                transformers alone are named.
            given: Options by name; those that are ``None`` are left out.
            texts: Options as ``NAME=VALUE``, or ``METHOD.NAME=VALUE`` for one of several methods.
            lenient: Whether `given` goes only to the methods that have such an option.
            **rest: The other fields.

        Raises:
            InputError: If there is no such method or option.
        """
        entries = list({entry.name: entry for entry in map(methods.describe, _expand(names))}.values())
        told = read_options(texts, entries)
        wanted = {name: value for name, value in (given or {}).items() if value is not None}
        for entry in entries:
            taken = wanted
            if lenient:
                taken = {option.name: wanted[option.name] for option in entry.options if option.name in wanted}
            told[entry.name] = taken | told[entry.name]
        return cls(model=model, methods=told, **rest)

    @classmethod
    def from_data(cls, data: Any) -> Request:
        """The request of a record.

        Raises:
            DataError: If it is none.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"]))
            raise DataError(
                f"The record's request is wrong at '{place}'; give the record as it was written."
            ) from error

    @classmethod
    def from_command(cls, command: str) -> tuple[str, Request]:
        """The image and the request of a record that has no more than the command (version 0.1).

        Raises:
            DataError: If the command is none of ``fei explain``.
        """
        try:
            image, *rest = shlex.split(command)[2:]
            pairs = list(zip(rest[::2], rest[1::2], strict=True))
            flags: dict[str, Any] = {name.removeprefix("--").replace("-", "_"): value for name, value in pairs}
            flags |= {name: int(flags[name]) for name in _NUMBERS if name in flags}
            model, method = flags.pop("model"), flags.pop("method")
            flags.pop("option", None)
            given: dict[str, Any] = {"steps": flags.pop("steps", None), "preset": flags.pop("preset", None)}
            texts = [value for name, value in pairs if name == "--option"]
            return image, cls.of(model, [method], given, texts, **flags)
        except (ValueError, LookupError) as error:
            raise DataError(
                f"The command {command!r:.200} in the record is none of 'fei explain'; give it as it was written."
            ) from error

    @property
    def method(self) -> str:
        """The method, of a request that has one."""
        (name,) = self.methods
        return name

    def command(self, image: str | os.PathLike[str]) -> str:
        """The command line that asks for this, of a request that has one method."""
        options = dict(self.methods[self.method])
        flags = self.model_dump() | {"method": self.method}
        flags |= {name: options.pop(name, None) for name in ("steps", "preset")}
        words = ["fei", "explain", os.fspath(image)]
        for name in _FLAGS:
            words += [] if flags[name] is None else [f"--{name.replace('_', '-')}", str(flags[name])]
        for name, value in options.items():
            words += ["--option", f"{name}={option_text(value)}"]
        words += ["--stability"] if self.stability else []
        return shlex.join(words)


def option_text(value: Any) -> str:
    """The value of an option as the command line takes it."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def read_options(texts: Sequence[str], entries: Sequence[Entry]) -> dict[str, dict[str, Any]]:
    """The options of each method, from texts such as ``steps=50``.

    Args:
        texts: What was given. Without a method's name, an option goes to every method that has it.
        entries: The methods.

    Raises:
        InputError: If a text is not of that form, or none of the methods has the option.
    """
    given: dict[str, dict[str, Any]] = {entry.name: {} for entry in entries}
    for text in texts:
        left, mark, value = text.partition("=")
        if not mark or not left.strip():
            raise InputError(f"The option '{text}' has no value; write NAME=VALUE, such as steps=50.")
        name, takers = _takers(left.strip(), entries)
        for entry in takers:
            option = next((o for o in entry.options if o.name == name), Option(name, "Any", None, ""))
            given[entry.name][name] = option.parse(value)
    return given


def _takers(left: str, entries: Sequence[Entry]) -> tuple[str, list[Entry]]:
    """The option's name, and the methods it goes to."""
    named = [entry for entry in entries if left.startswith(entry.name + ".")]
    if named:
        return left.removeprefix(named[0].name + "."), named[:1]  # what it does not have, it refuses itself
    takers = [entry for entry in entries if entry.family == "adapter" or left in {o.name for o in entry.options}]
    if takers:
        return left, takers
    if len(entries) == 1:
        return left, list(entries)
    raise InputError(f"None of the methods has an option '{left}'; see 'fei methods NAME'.")


def _expand(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        pattern = name.strip()
        found = methods.available(pattern) if "*" in pattern else [pattern]
        if pattern == "all":
            found = [one for one in methods.available() if methods.describe(one).family != "attention"]
        if not found:
            raise InputError(f"No method matches '{name}'; see 'fei methods'.")
        yield from found
