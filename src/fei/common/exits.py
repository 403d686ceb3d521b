"""Code that would end the process: it fails, and the process goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def exits_caught() -> Iterator[None]:
    """Within the block ``os._exit`` raises a SystemExit, as ``sys.exit`` does; a child that was forked does end."""
    end, owner = os._exit, os.getpid()

    def failing(status: int) -> Any:
        if os.getpid() != owner:
            end(status)
        raise SystemExit(status)

    setattr(os, "_exit", failing)  # noqa: B010 (its type says that it never returns)
    try:
        yield
    finally:
        setattr(os, "_exit", end)  # noqa: B010
