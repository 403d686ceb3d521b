"""What `fei explain` is asked to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line; ``None`` where the method decides."""

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
