"""What was asked for: an explanation as `fei explain` and the page make it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """One explanation; ``None`` where the method decides."""

    model: str
    method: str
    target: str | None
    seed: int
    steps: int | None
    preset: str | None
    device: str
    reference: str | None
    batch_size: int | None
    options: tuple[str, ...] = ()
