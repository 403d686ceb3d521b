"""The command line. ``fei --help`` answers without loading torch: commands import what they need when they run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from fei.common.packages import need
from fei.errors import PackageError


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

    Args:
        arguments: What follows ``fei`` on the command line; taken from there if not given.
    """
    try:
        need("The command line", "cli", "typer", "pydantic", "scipy", "skimage")
        from fei.cli._app import run

        code = run(sys.argv[1:] if arguments is None else list(arguments))
    except PackageError as error:  # of the command line itself; those of a command are told there
        print(f"error: {error}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:  # while the command line itself was still loading
        code = 130
    sys.exit(code)
