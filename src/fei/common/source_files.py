"""Python files that are named, imported under names of their own, once their user has agreed to what they hold."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import CodeType, ModuleType

from fei.common.consent import check_code
from fei.errors import InputError


def import_file(file: Path, name: str, prefix: str) -> ModuleType:
    """Import a Python file under a name of its own, so that it does not replace another module.

    It is imported from its source alone: a compiled file beside it may hold something else than what the user has read.

    Args:
        file: The file, which is there.
        name: The object in it that is wanted.
        prefix: What its name as a module begins with.

    Raises:
        InputError: If it cannot be read, data names it and the user has not agreed to it, or it imports what lies
            beside it and nowhere else: that would be code to which nobody has agreed.
        BaseException: Whatever its code raises.
    """
    try:
        source = file.read_bytes()
    except OSError as error:
        raise InputError(f"The file '{file}' cannot be read ({error.strerror}); check its permissions.") from error
    check_code(str(file), name, source)
    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]
    unique = f"{prefix}{file.stem}_{digest}"
    loader = _Loader(unique, str(file), source)
    spec = importlib.util.spec_from_file_location(unique, file, loader=loader)
    if spec is None:
        raise ImportError(f"{file} is no Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module  # dataclasses and pickling look a class's module up there
    try:
        loader.exec_module(module)
    except BaseException as error:
        del sys.modules[unique]
        if isinstance(error, ModuleNotFoundError) and _is_beside(file, error.name or ""):
            raise InputError(
                f"'{file}' imports '{error.name}', which lies beside it, where Python does not look; set PYTHONPATH to "
                f"the folder '{file.parent}'."
            ) from error
        raise
    return module


def _is_beside(file: Path, module: str) -> bool:
    first = file.parent / module.partition(".")[0]
    return bool(module) and (first.is_dir() or first.with_suffix(".py").is_file())


class _Loader(importlib.machinery.SourceFileLoader):
    """Runs the source that it was given, whatever else is on the disk by now."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        """The source, compiled."""
        return self.source_to_code(self._source, self.path)
