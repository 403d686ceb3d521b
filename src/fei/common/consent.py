"""Whether code that a file names may run: its user says so, once for each content of it.

What is typed on a command line, passed to a function, or stands in a plan that was named there, has been said. What a
run, a record or an export names has not. Such code runs if the user agrees to it (``--trust-code``) or did so before:
every agreement is remembered by the SHA-256 of the source and the name of the object, in a file that only the user can
write, and until the command ends. What that source imports in turn is not looked at.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from fei.common.memory import own_file, read_own
from fei.errors import InputError

_FILE = "trusted-code"


@dataclass(frozen=True)
class _Stance:
    """What holds for code that is loaded now.

    Who names it (None: the caller), whether to trust or remember it, and what has been agreed to since anyone asks.
    """

    origin: str | None = None
    trusts: bool = False
    remembers: bool = False
    agreed: set[str] | None = None


_stance: ContextVar[_Stance] = ContextVar("stance", default=_Stance())  # noqa: B039 (it is frozen)


@contextmanager
def named_by(origin: str) -> Iterator[None]:
    """Within the block, code is named by data such as "The run in 'runs/a'", so that the user has to agree to it."""
    before = _stance.get()
    with _holding(replace(before, origin=origin, agreed=set() if before.agreed is None else before.agreed)):
        yield


@contextmanager
def trusting(yes: bool = True) -> Iterator[None]:
    """Within the block the user agrees to whatever code is named."""
    with _holding(replace(_stance.get(), trusts=yes)):
        yield


@dataclass(frozen=True)
class Agreement:
    """What one process may run on behalf of another; picklable.

    Attributes:
        origin: Who names the code; None if the user does, who may name any.
        entries: What the user has agreed to.
    """

    origin: str | None = None
    entries: frozenset[str] = frozenset()

    @classmethod
    def now(cls) -> Self:
        """What holds here and now: a file may be another one by the time that the other process reads it."""
        stance = _stance.get()
        return cls(stance.origin, frozenset(stance.agreed or ()))

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Within the block no other code runs."""
        with _holding(_Stance(self.origin, agreed=None if self.origin is None else set(self.entries))):
            yield


@contextmanager
def remembering() -> Iterator[None]:
    """Within the block, code that the caller names is remembered as agreed to."""
    with _holding(replace(_stance.get(), remembers=True, agreed=set())):
        yield


@contextmanager
def _holding(stance: _Stance) -> Iterator[None]:
    token = _stance.set(stance)
    try:
        yield
    finally:
        _stance.reset(token)


def check_code(where: str, name: str, source: bytes | None) -> None:
    """See that code may run, before anything of it does.

    Args:
        where: The file, or the module.
        name: The object in it that is called.
        source: What is run to import it; None where that cannot be read.

    Raises:
        InputError: If data names it and the user has not agreed to it.
    """
    stance = _stance.get()
    agreed = set[str]() if stance.agreed is None else stance.agreed
    digest = "unknown" if source is None else hashlib.sha256(source).hexdigest()
    known = digest if source is not None else f"{digest}, {where}"
    entry = f"{known} {name}".encode("unicode_escape").decode()
    if stance.origin is None or stance.trusts:
        if source is not None and (stance.remembers or stance.origin is not None):
            _remember(entry)
    elif entry not in agreed and (source is None or entry not in _remembered()):
        raise InputError(
            f"{stance.origin} names code that you have not agreed to run, '{name}' in '{where}' with the SHA-256 "
            f"{digest}; read that file, and add --trust-code if it may run with your rights."
        )
    agreed.add(entry)


def check_module(path: str, name: str) -> None:
    """As `check_code`, for an object of a module that Python finds; without one there is nothing to agree to.

    The digest is that of the sources that are run, the outermost package's first. Nothing is imported to find them.
    """
    if _stance.get() == _Stance():  # no one asks, and it is a search on the disk
        return
    found = _sources(path)
    if found is not None:
        check_code(found[0] or path, name, found[1])


def _sources(path: str) -> tuple[str, bytes | None] | None:
    """The file of a module, and the sources of it and of the packages around it; None if there is not even those."""
    where, sources, places = "", b"", None
    parts = path.split(".")
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        known = sys.modules.get(name)
        try:
            spec = known.__spec__ if known is not None else _find(name, places)
        except (ImportError, ValueError, AttributeError):
            spec = None
        if spec is None:  # what is there without one, as the program itself is, could be anything
            return None if depth == 1 and known is None else (path, None)  # a package may make its modules as it likes
        places = spec.submodule_search_locations
        if spec.origin is not None:
            try:
                where, sources = spec.origin, sources + Path(spec.origin).read_bytes()
            except OSError:  # built in, frozen, or in an archive
                return path, None
    return where, sources


def _find(name: str, places: list[str] | None) -> importlib.machinery.ModuleSpec | None:
    return importlib.util.find_spec(name) if places is None else importlib.machinery.PathFinder.find_spec(name, places)


def _remembered() -> frozenset[str]:
    """What was agreed to before; nothing where the file could be somebody else's word."""
    return frozenset((read_own(_FILE) or "").splitlines())


def _remember(entry: str) -> None:
    """Note an agreement; where nothing can be written, the user is asked again."""
    with suppress(OSError, RuntimeError):
        if entry in _remembered():
            return
        file = own_file(_FILE)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        with open(os.open(file, flags, 0o600), "a", encoding="utf-8") as stream:
            stream.write(f"{entry}\n")
