"""Where results are: one SQLite file per run, and how they are exchanged."""

from fei.bench.store._damage import Damage
from fei.bench.store._store import Link, Store
from fei.bench.store.disk import MAPS

__all__ = ["MAPS", "Damage", "Link", "Store"]
