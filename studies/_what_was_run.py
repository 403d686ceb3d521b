"""What the numbers rest on: units, passes, photographs, accuracy and versions, from the committed scores."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from fei.bench.store import Store
from fei.bench.units import BLACK_IMAGE

_UNITS = """
    SELECT p.pair, p.kind, p.unit, u.status, coalesce(u.forwards, 0), coalesce(u.backwards, 0)
    FROM plan_units p JOIN units u ON u.key = p.unit"""
_TRIALS = """
    SELECT p.pair, p.item FROM plan_units p JOIN units u ON u.key = p.unit
    WHERE p.kind = ? AND u.status = 'done' GROUP BY 1, 2"""
_FINISHED = "SELECT min(u.finished), max(u.finished) FROM plan_units p JOIN units u ON u.key = p.unit"
_IMAGES = """
    SELECT p.pair, p.item, max(u.correct), avg(u.probability), max(u.label)
    FROM plan_units p JOIN units u ON u.key = p.unit WHERE p.kind = 'map' AND u.target IS NOT NULL GROUP BY 1, 2"""


def plans_table(stores: Mapping[str, Store]) -> str:
    """Per plan: networks, photographs or trials, seeds, methods, units and passes, each counted where it comes first.

    Passes are rows through a network for maps and trials; those of the metrics are not included.
    """
    lines = [
        "| plan | networks | photographs | seeds | methods | units | failed | forwards | backwards |",
        "| :-- | :-- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    seen: set[str] = set()
    total: Counter[str] = Counter()
    for name, store in stores.items():
        plan, units = store.plan, store.rows(_UNITS)
        items = Counter(pair for pair, _ in {(row[0], row[1]) for row in store.rows(_IMAGES)})
        counts: Counter[str] = Counter()
        for _, _, key, status, forwards, backwards in units:
            counts["units"] += 1
            counts["failed"] += status == "failed"
            if key not in seen:
                seen.add(key)
                counts["forwards"] += forwards
                counts["backwards"] += backwards
        total += counts
        many = _numbers(items)
        if plan.black_image is not None:
            many = _of(
                _numbers(Counter(pair for pair, _ in store.rows(_TRIALS, [BLACK_IMAGE]))), plan.black_image.trials
            )
        cells = [
            f"[{name}](../studies/{name}.toml)",
            ", ".join(pair.name for pair in plan.pairs),
            many,
            str(len(plan.seeds)),
            str(len(plan.methods)),
            *(f"{counts[key]:,}" for key in ("units", "failed", "forwards", "backwards")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    sums = " | ".join(f"**{total[key]:,}**" for key in ("units", "failed", "forwards", "backwards"))
    return "\n".join([*lines, f"| **all** | | | | | {sums} |"]) + "\n"


def accuracy_table(stores: Mapping[str, Store]) -> str:
    """How many of its photographs each network gets right, and how sure it is of what is explained."""
    found: dict[str, dict[str, tuple[int | None, float]]] = {}
    for store in stores.values():
        for pair, item, correct, probability, _ in store.rows(_IMAGES):
            found.setdefault(store.plan.pairs[pair].name, {})[item] = (correct, probability)
    lines = [
        "| network | photographs | predicted rightly | probability of the explained class: lowest, mean |",
        "| :-- | --: | --: | --: |",
    ]
    for network, images in found.items():
        sure = [probability for _, probability in images.values()]
        right = sum(correct == 1 for correct, _ in images.values())
        lines.append(f"| {network} | {len(images)} | {right} | {min(sure):.2f}, {sum(sure) / len(sure):.2f} |")
    return "\n".join(lines) + "\n"


def photographs_table(store: Store) -> str:
    """The photographs of a plan, and what each network takes them for."""
    pairs = [pair.name for pair in store.plan.pairs]
    found: dict[str, dict[int, str]] = {}
    for pair, item, correct, probability, label in store.rows(_IMAGES):
        mark = "" if correct in (1, None) else " (wrong)"
        found.setdefault(item, {})[pair] = f"{_first(label)}{mark}, {probability:.2f}"
    lines = [f"| photograph | {' | '.join(pairs)} |", "| :-- |" + " :-- |" * len(pairs)]
    for item, labels in found.items():
        lines.append(f"| {item.split('/')[-1]} | {' | '.join(labels.get(pair, '–') for pair in range(len(pairs)))} |")
    return "\n".join(lines) + "\n"


def reading_table(stores: Mapping[str, Store]) -> str:
    """When the units of each plan were computed: the first and the last."""
    lines = ["| plan | first unit | last unit |", "| :-- | :-- | :-- |"]
    for name, store in stores.items():
        ((first, last),) = store.rows(_FINISHED)
        lines.append(f"| {name} | {_moment(first)} | {_moment(last)} |")
    return "\n".join(lines) + "\n"


def _numbers(of_pairs: Counter[int]) -> str:
    """How many photographs or trials the networks have, each number once."""
    return "/".join(str(n) for n in sorted(set(of_pairs.values()))) or "–"


def _of(computed: str, planned: int) -> str:
    return f"{planned} trials" if computed == str(planned) else f"{computed} of {planned} trials"


def _moment(finished: str | None) -> str:
    return "–" if finished is None else f"{finished[:16].replace('T', ' ')} UTC"


def versions(stores: Mapping[str, Store]) -> str:
    """The versions that the plans were computed with, each once."""
    found: dict[str, list[str]] = {}
    for store in stores.values():
        facts: dict[str, Any] = json.loads(store.meta("versions") or "{}")
        for package, version in facts.items():
            found.setdefault(package, []).append(version)
    return ", ".join(f"{package} {' and '.join(sorted(set(all_)))}" for package, all_ in sorted(found.items()))


def _first(label: str | None) -> str:
    return (label or "?").split(",")[0]
