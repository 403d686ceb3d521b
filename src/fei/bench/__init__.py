"""Experiments: a plan, a run that can be interrupted, and its tables and figures.

Names are imported when first used, so that nothing heavy is loaded before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fei.common.lazy import lazy
from fei.common.packages import need

if TYPE_CHECKING:
    from fei.bench.engine._ray import RayEngine
    from fei.bench.engine.engines import Engine, LocalEngine
    from fei.bench.engine.runner import Pace, RunSummary, resume, run
    from fei.bench.plan import Plan, load_plan
    from fei.bench.store import Store
    from fei.bench.units import Outcome, Unit, expand

_HOMES = {
    "RayEngine": "engine._ray",
    "Store": "store",
    **dict.fromkeys(("Engine", "LocalEngine"), "engine.engines"),
    **dict.fromkeys(("Outcome", "Unit", "expand"), "units"),
    **dict.fromkeys(("Pace", "RunSummary", "resume", "run"), "engine.runner"),
    **dict.fromkeys(("Plan", "load_plan"), "plan"),
}

need("A benchmark", "bench", "pydantic", "scipy", "skimage")
__all__ = ["Engine", "LocalEngine", "Outcome", "Pace", "Plan", "RayEngine", "RunSummary"]
__all__ += ["Store", "Unit", "expand", "load_plan", "resume", "run"]
__getattr__ = lazy(__name__, _HOMES)
