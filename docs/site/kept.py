"""What is computed for the site, kept under build/ until the code or its source changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "site-parts"


@cache
def _code() -> str:
    """A digest of the package, and of what makes the parts."""
    digest = hashlib.sha256()
    own = [Path(__file__).with_name(name) for name in ("notebooks.py", "pictures.py")]
    for file in sorted([*(ROOT / "src" / "fei").rglob("*.py"), *own]):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def kept(name: str, source: str, make: Callable[[], bytes]) -> bytes:
    """What `make` makes, or made before from the same source by the same code."""
    digest = hashlib.sha256(f"{_code()}\n{source}".encode()).hexdigest()[:16]
    file = FOLDER / f"{digest}-{name}"
    if not file.exists():
        content = make()
        FOLDER.mkdir(parents=True, exist_ok=True)
        for old in FOLDER.glob(f"*-{name}"):
            old.unlink()
        part = file.with_name(file.name + ".part")
        part.write_bytes(content)
        part.replace(file)
    return file.read_bytes()
