"""The command line. ``fei --help`` answers without loading torch: commands import what they need when they run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

    Args:
        arguments: What follows ``fei`` on the command line; taken from there if not given.
    """
    try:
        from fei.cli._app import run

        code = run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:  # while the command line itself was still loading
        code = 130
    sys.exit(code)
