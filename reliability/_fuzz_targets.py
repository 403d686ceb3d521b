"""The targets of the fuzzer, each with its share of the cases, which depends on its speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from _fuzz_bombs import Bombs
from _fuzz_commands import Commands
from _fuzz_data import Data
from _fuzz_exports import Exports
from _fuzz_images import Images
from _fuzz_plans import Plans
from _fuzz_runs import Stores
from _fuzz_tensors import Checkpoints, Explanations
from _fuzz_worker import Case, Target


class Entry(NamedTuple):
    """A target, and its share of the cases."""

    target: Target
    weight: int


_ENTRIES = (
    Entry(Explanations(), 110),
    Entry(Exports(), 60),
    Entry(Checkpoints(), 120),
    Entry(Plans(), 110),
    Entry(Data(), 158),
    Entry(Images(), 370),
    Entry(Stores(), 40),
    Entry(Commands(), 2),
    Entry(Bombs(), 50),
)
TARGETS: dict[str, Entry] = {entry.target.name: entry for entry in _ENTRIES}


class Mixed:
    """All targets in one, by their shares: for a short run in one process."""

    name = "mixed"
    max_bytes = Images.max_bytes

    def valid(self) -> Sequence[Case]:
        """The whole files of all."""
        return [_told(case, entry.target) for entry in _ENTRIES for case in entry.target.valid()]

    def make(self, rng: Random) -> Case:
        """A case of one of them."""
        (chosen,) = rng.choices(_ENTRIES, [entry.weight for entry in _ENTRIES])
        return _told(chosen.target.make(rng), chosen.target)

    def read(self, folder: Path, ask: tuple[str, ...]) -> None:
        """As that one reads it."""
        TARGETS[ask[0]].target.read(folder, ask[1:])


def _told(case: Case, target: Target) -> Case:
    return replace(case, ask=(target.name, *case.ask))
