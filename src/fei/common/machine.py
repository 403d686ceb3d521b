"""How many processors this process may use: fewer than the machine has, in a container or under `taskset`."""

from __future__ import annotations

import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # "200000 100000": two processors' worth of time; "max 100000": no limit


def usable_processors(quota: Path = _QUOTA) -> int:
    """The processors in this process's affinity mask, or as many as its control group's share of time is worth."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
    except (OSError, ValueError):  # another system, or another version of control groups
        return there
    return there if allowed == "max" else min(there, max(1, int(allowed) // int(period)))
