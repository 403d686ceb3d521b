"""Plug-ins: what other packages bring under an entry point of ours. To have installed such a package is to agree to it.

In the package's own pyproject.toml:

    [project.entry-points."fei.methods"]
    contrast = "own_method:Contrast"

They are loaded when something is asked for that is not ours, or all there is. One that cannot be loaded is left out.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Found = TypeVar("Found")

_NAME = re.compile(r"[a-z0-9][a-z0-9_+.-]*")
_lock = threading.RLock()


@dataclass(frozen=True)
class Plugin:
    """What a package brings under one name.

    Attributes:
        name: The name.
        package: The package and its version, "own-method 0.1.0".
        summary: The package's own line about itself.
        content: The object.
    """

    name: str
    package: str
    summary: str
    content: Any


@dataclass
class Plugins(Generic[Found]):
    """The plug-ins of one entry point, loaded once, when first asked for.

    Args:
        group: The name of the entry point.
        kind: What they are, as in "method".
        taken: Our own names, which no plug-in can have; asked for when they are needed.
        read: Makes of a plug-in what is wanted; whatever it raises, the plug-in is left out.
    """

    group: str
    kind: str
    taken: Callable[[], Collection[str]]
    read: Callable[[Plugin], Found]
    _found: dict[str, Found] = field(default_factory=dict, init=False)
    _broken: dict[str, str] = field(default_factory=dict, init=False)
    _loaded: bool = field(default=False, init=False)
    _loading: bool = field(default=False, init=False)

    def found(self) -> dict[str, Found]:
        """Those that work, by name."""
        with _lock:
            if not self._loaded:
                self._loaded = self._loading = True  # before: the code of a plug-in may ask, too
                self._load()
                self._loading = False
        return self._found

    def broken(self) -> dict[str, str]:
        """For each name that does not work a sentence that says why."""
        self.found()
        return self._broken

    def tell(self) -> None:
        """Warn of those that do not work."""
        for sentence in () if self._loading else self.broken().values():
            warnings.warn(sentence, stacklevel=3)

    def _load(self) -> None:
        from importlib.metadata import entry_points  # as slow to import as all the rest of a command line

        for point in entry_points(group=self.group):
            package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "without a name"
            try:
                problem = self._refusal(point.name)
                if problem is None:
                    self._found[point.name] = self.read(_plugin(point, package))
            except (Exception, SystemExit) as error:  # it is somebody else's code
                problem = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            if problem is not None:
                self._broken[point.name] = (
                    f"The {self.kind} '{point.name}' of the package {package} cannot be used ({problem}); update that "
                    "package, or uninstall it."
                )

    def _refusal(self, name: str) -> str | None:
        if not _NAME.fullmatch(name):
            return "its name is not of small letters, digits and -_+."
        if name in self.taken():
            return "fei has one of that name"
        return "another package has one of that name" if name in self._found else None


def _plugin(point: EntryPoint, package: str) -> Plugin:
    told = point.dist is not None and "Summary" in point.dist.metadata
    summary = point.dist.metadata["Summary"] if point.dist is not None and told else "a plug-in"
    return Plugin(point.name, package, " ".join(summary.split()), point.load())
