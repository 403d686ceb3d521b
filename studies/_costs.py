"""What the plans take: passes through the networks, and an estimate of the seconds on one core."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from studies._plans import plan_of

from fei.bench.plan import Plan, PlannedMethod
from fei.bench.plan.keys import canonical
from fei.methods import create, describe
from fei.protocols import Averaged, Protocol, get

# Seconds of one image on one core of an ordinary machine: forward and backward as FEI does it, and forward alone.
SECONDS = {
    "squeezenet": (0.038, 0.018),
    "mobilenet_v1": (0.058, 0.020),
    "mobilenet_v1_relu": (0.058, 0.020),
    "efficientnet_lite0": (0.072, 0.030),
    "googlenet": (0.125, 0.060),
    "resnet50": (0.190, 0.085),
    "resnet50_cub": (0.190, 0.085),
    "alexnet_cub": (0.025, 0.012),
    "deit_tiny": (0.060, 0.027),
    "vgg16_cub": (1.600, 0.500),
}
_CHANNELS = 512  # Score-CAM's forwards, on the networks that it is planned for
_SMOOTH_MASKS = 3  # Extremal Perturbation takes three times what its passes do
_PIXELS, _WIDTH = 224 * 224, 224


class Cost(NamedTuple):
    """Rows through a network, forwards and backwards."""

    forwards: int
    backwards: int

    def times(self, count: int) -> Cost:
        """The cost of doing this several times."""
        return Cost(self.forwards * count, self.backwards * count)


def map_cost(row: PlannedMethod) -> Cost:
    """What a map of a method takes, by its settings; passes through the last layers alone count as none."""
    settings: dict[str, Any] = getattr(create(row.name, **row.options), "config", {})
    settings = settings.get("fei", settings)
    if "quantiles" in settings:
        masks = 1 if settings["constraint"] in ("l1", "none") else len(settings["quantiles"])
        return Cost(settings["steps"] * masks, settings["steps"] * masks)
    if "areas" in settings:
        passes = _SMOOTH_MASKS * settings["steps"] * len(settings["areas"])
        return Cost(passes, passes)
    if "channels" in settings:
        return Cost(settings["channels"], 0)
    if row.name == "scorecam":
        return Cost(_CHANNELS, 0)
    forwards, backwards = (_number(part) for part in describe(row.name).cost.split("+"))
    count = settings.get("samples", settings.get("steps", 0))
    return Cost(count or forwards, (count or backwards) if backwards else 0)


def plan_costs(names: Sequence[str]) -> dict[str, dict[str, Cost]]:
    """What each plan has to compute per network, without what an earlier plan has computed already."""
    seen: set[str] = set()
    costs: dict[str, dict[str, Cost]] = {}
    for name in names:
        found: dict[str, Cost] = defaultdict(lambda: Cost(0, 0))
        for key, network, cost in _units(plan_of(name)):
            if key not in seen:
                seen.add(key)
                found[network] = Cost(*(a + b for a, b in zip(found[network], cost, strict=True)))
        costs[name] = dict(found)
    return costs


def cost_table(names: Sequence[str]) -> str:
    """A table of passes and seconds by plan, and their sum."""
    lines = [f"{'plan':<22}{'forwards':>10}{'backwards':>11}{'core seconds':>14}"]
    total = [0, 0, 0.0]
    for name, networks in plan_costs(names).items():
        forwards, backwards = (sum(cost[i] for cost in networks.values()) for i in (0, 1))
        seconds = sum(_seconds(network, cost) for network, cost in networks.items())
        total = [total[0] + forwards, total[1] + backwards, total[2] + seconds]
        lines.append(f"{name:<22}{forwards:>10}{backwards:>11}{seconds:>14.0f}")
    lines.append(f"{'all':<22}{total[0]:>10}{total[1]:>11}{total[2]:>14.0f}")
    return "\n".join(lines)


def _units(plan: Plan) -> list[tuple[str, str, Cost]]:
    """Each map, its scores under a protocol, and each trial: a key that plans share, and its cost."""
    units = []
    scores = {name: _rows(get(name)) for name in plan.metrics.protocols} if plan.metrics.groups else {}
    for pair in plan.pairs:
        network = re.split(r"[:/]", pair.model)[-1]
        for place, row in enumerate(plan.methods):
            cost = map_cost(row)
            config = getattr(create(row.name, **row.options), "config", row.options)
            images = range(pair.sample or 0) if pair.data else ()
            kinds = [("map", image, cost) for image in images]
            kinds += [(protocol, image, Cost(rows, 0)) for protocol, rows in scores.items() for image in images]
            if place in plan.black_image_methods() and plan.black_image:
                kinds += [("black", trial, cost) for trial in range(plan.black_image.trials)]
            if place in plan.sanity_methods() and plan.sanity:
                kinds += [("sanity", image, cost.times(plan.sanity.layers + 1)) for image in range(plan.sanity.images)]
            for (kind, item, work), seed in itertools.product(kinds, plan.seeds):
                units.append((canonical([kind, pair.model, row.name, config, item, seed]), network, work))
    return units


def _rows(protocol: Protocol) -> int:
    """The forwards of a map's two curves."""
    replaced = protocol.replacement
    copies = len(replaced.makers) if isinstance(replaced, Averaged) else 1
    return 2 * copies * len(protocol.levels(_PIXELS, _WIDTH)[0])


def _seconds(network: str, cost: Cost) -> float:
    both, forward = SECONDS[network]
    return cost.backwards * both + (cost.forwards - cost.backwards) * forward


def _number(text: str) -> int:
    found = re.match(r"\d+", text.strip())
    return int(found[0]) if found and "head" not in text else 0
