"""What of a run is no longer as it was written."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from fei.bench.store import _digests
from fei.bench.store.disk import map_bytes, read_map
from fei.bench.units import KEPT


@dataclass(frozen=True)
class Damage:
    """What of a run is not as it was written.

    Attributes:
        plan: Whether the plan and its list of units are sound, as far as that is known.
        units: The units that are damaged, by key.
        maps: The maps that are damaged, by the keys of their units.
        missing: The maps that were kept and are not there.
        covered: How many units have a digest; those of earlier versions have none.
        kept: How many maps were kept.
    """

    plan: bool
    units: list[str]
    maps: list[str]
    missing: list[str]
    covered: int
    kept: int

    @property
    def none(self) -> bool:
        """Whether all is well."""
        return self.plan and not (self.units or self.maps or self.missing)


def find_damage(sql: sqlite3.Connection, maps: Path) -> Damage:
    """Compare a run, and its maps in a folder, with the digests that were made as they were written."""
    units = list(_digests.damaged_units(sql))
    known, gone = _digests.map_digests(sql), set(units)
    kept = [key for (key,) in sql.execute("SELECT unit FROM groups WHERE name = ? ORDER BY unit", (KEPT,))]
    found: dict[str, list[str]] = {"damaged": [], "missing": [], "sound": []}
    for key in kept:
        if key not in gone:
            found[_state(maps, key, known.get(key))].append(key)
    sound = _digests.plan_is_sound(sql) is not False
    return Damage(sound, units, found["damaged"], found["missing"], _digests.covered(sql), len(kept))


def _state(maps: Path, key: str, digest: str | None) -> str:
    if not os.path.lexists(maps / f"{key}.npy"):
        return "missing"
    if digest is None:  # of an earlier version: it can be read, at least
        return "damaged" if read_map(maps, key) is None else "sound"
    content = map_bytes(maps, key)
    return "sound" if content is not None and _digests.sha256(content) == digest else "damaged"
