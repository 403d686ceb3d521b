"""What is remembered for the user between commands: small files in a folder that only the user can write to."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fei.common.files import is_mine, write_files
from fei.errors import DataError

FOLDER = "FEI_CONFIG"
"""The environment variable that names another folder for what is remembered."""


def own_file(name: str) -> Path:
    """Where something is remembered; RuntimeError where there is no home."""
    given = os.environ.get(FOLDER)
    if given:
        return Path(given) / name
    home = os.environ.get("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "fei" / name


def read_own(name: str) -> str | None:
    """What is remembered there; None where nothing is, or where the file could be somebody else's word."""
    with suppress(OSError, RuntimeError):  # no such file, or no home
        descriptor = os.open(own_file(name), os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with open(descriptor, encoding="utf-8", errors="replace") as stream:
            status = os.fstat(descriptor)
            if is_mine(status) and (os.name != "posix" or not status.st_mode & 0o022):
                return stream.read()
    return None


def write_own(name: str, text: str) -> Path | None:
    """Remember something in place of what was there; None where nothing can be written."""
    with suppress(OSError, RuntimeError, DataError):
        file = own_file(name)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_files(file.parent, {file.name: text}, what="memory")
        file.chmod(0o600)
        return file
    return None
