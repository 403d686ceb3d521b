"""Experiments: a plan, a run that can be interrupted, and its tables and figures."""

from fei.bench.engine._ray import RayEngine
from fei.bench.engine.engines import Engine, LocalEngine
from fei.bench.engine.runner import Pace, RunSummary, resume, run
from fei.bench.plan import Plan, load_plan
from fei.bench.store import Store
from fei.bench.units import Outcome, Unit, expand

__all__ = [
    "Engine",
    "LocalEngine",
    "Outcome",
    "Pace",
    "Plan",
    "RayEngine",
    "RunSummary",
    "Store",
    "Unit",
    "expand",
    "load_plan",
    "resume",
    "run",
]
