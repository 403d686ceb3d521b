"""What a run computes: the plan, what it means on this machine, and what its work is called."""

from fei.bench.plan._plan import LAYOUTS, Layout, Metrics, Pair, Plan, PlannedMethod, load_plan, parse_plan

__all__ = ["LAYOUTS", "Layout", "Metrics", "Pair", "Plan", "PlannedMethod", "load_plan", "parse_plan"]
