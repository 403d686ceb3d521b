"""Where results are: one SQLite file per run, and how they are exchanged."""

from fei.bench.store._store import MAPS, Link, Store

__all__ = ["MAPS", "Link", "Store"]
