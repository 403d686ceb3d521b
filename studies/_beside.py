"""Tables of the second edition that no benchmark has: beside the paper's, controls, fragmentation, the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from studies import _paper
from studies._editions import FAST, PRESETS, Place, Study, black_images, places, values
from studies._hypotheses import BETTER
from studies._questions import CONTROLS, SMOOTHED, Extra, fragment_values
from studies._steps import passes, signed
from studies._verdicts import Values, paired_difference

from fei.bench.report._cells import known
from fei.bench.report._statistics import Estimate, estimate, proportion
from fei.bench.report.numbers import Numbers, is_reduced
from fei.common.words import in_markdown
from fei.metrics import bootstrap_interval

METRICS = ("insertion", "deletion", "mse", "cosine")
_VARIANTS = ("FEI-VM", "FEI-IVM", "FEI-AVM", "FEI-IBM", "FEI-NONE", "FEI")
Front = list[tuple[str, float, float, float]]
"""Labels, insertion, MSE, and passes."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """A table in Markdown whose first columns are text."""
    lines = [head, [*[":--"] * texts, *["--:"] * (len(head) - texts)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def told(found: Estimate | None, digits: int = 3) -> str:
    """A mean with its interval."""
    if found is None:
        return "–"
    return f"{found.mean:.{digits}f}" + (
        "" if np.isnan(found.low) else f" [{found.low:.{digits}f}, {found.high:.{digits}f}]"
    )


def beside_paper(numbers: Numbers, pair: int) -> str:
    """Our means beside the paper's on the same network."""
    network = numbers.plan.pairs[pair].name
    rows = []
    for row in numbers.plan.methods:
        cells = []
        for metric in METRICS:
            ours, theirs = values(numbers, pair, row.label, metric), _paper.number(network, row.label, metric)
            cells += [told(None if ours is None else estimate(ours)), "–" if theirs is None else f"{theirs:.3f}"]
        if any(cell != "–" for cell in cells[1::2]):
            rows.append([in_markdown(row.label), *cells])
    heads = [cell for metric in METRICS for cell in (known(metric).heading, "paper")]
    return table(["method", *heads], rows)


def beside_black(study: Study) -> str:
    """How often each variant fires on black images, by preset, beside the paper's share."""
    rows = []
    for preset in PRESETS:
        for place in black_images(study, preset):
            for label in ("FEI-VM", "FEI-IVM", "FEI-AVM", "FEI-IBM", "FEI-NONE", "FEI", "FGVis"):
                fired = place.values(label, "fired")
                found = None if fired is None else proportion(fired)
                if fired is not None and found is not None:
                    count = int(np.isfinite(fired).sum())
                    theirs = _paper.BLACK.get(place.network, {}).get(label)
                    share = f"{np.nansum(fired):.0f} of {count} [{100 * found.low:.0f}, {100 * found.high:.0f}] %"
                    cells = ["–" if theirs is None else f"{theirs:g} %", "second" if place.is_second else "first"]
                    used = "fei" if label == "FEI" else preset
                    rows.append([place.network, f"`{used}`", label, share, *cells])
    return table(["network", "preset", "method", "fires [95 %]", "the paper", "edition"], rows, 3) if rows else ""


def controls_table(study: Study, editions: Sequence[Sequence[str]], preset: str = FAST) -> str:
    """Each variant against the control that does best, photograph by photograph."""
    rows = []
    for place in places(study, editions, preset):
        for label in _VARIANTS:
            cells = [_against_best(place, label, metric) for metric in ("insertion", "mse", "cosine")]
            if any(cell != "–" for cell in cells):
                count = place.values(label, "insertion")
                n = 0 if count is None else int(np.isfinite(count).any(1).sum())
                rows.append([place.network, label, *cells, str(n)])
    heads = [f"{known(metric).title}: lead over the best control" for metric in ("insertion", "mse", "cosine")]
    return table(["network", "method", *heads, "n"], rows, 2) if rows else ""


def _against_best(place: Place, label: str, metric: str) -> str:
    own = place.values(label, metric)
    known = {name: place.values(name, metric) for name in CONTROLS}
    others = {name: found for name, found in known.items() if found is not None and np.isfinite(found).any()}
    if own is None or not others:
        return "–"
    best = (max if BETTER[metric] else min)(others, key=lambda name: float(np.nanmean(others[name])))
    found = paired_difference("", "", own, others[best], higher_is_better=BETTER[metric])
    return "–" if found is None else f"{signed(found.difference, found.low, found.high)} ({best.lower()})"


def fragments_table(extra: Extra) -> str:
    """Inside measures of maps as they are, smoothed to the same rank variation, and with shuffled components."""
    names = ("mse", "cosine", "relevant_mse", "relevant_cosine", "borders")
    rows = []
    for network in dict.fromkeys(row["network"] for row in extra.fragments):
        for kind in ("as it is", *SMOOTHED, "shuffled"):
            for method in dict.fromkeys(row["method"] for row in extra.fragments):
                found = [fragment_values(extra, network, kind, name, (method,))[0].ravel() for name in names]
                if len(found[0]):
                    cells = [_mean(each.tolist()) for each in found]
                    rows.append([network, kind, method, *cells, str(len(found[0]))])
    titles = ("MSE ↓", "cosine ↑", "relevant MSE ↓", "relevant cosine ↑", "borders")
    return table(["network", "maps", "method", *titles, "n"], rows, 3)


def _mean(each: Sequence[float]) -> str:
    low, high = bootstrap_interval(each)
    mean = float(np.mean(each))
    digits = 1 if abs(mean) >= 10 else 3
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def front(points: Front, *, with_cost: bool = False) -> list[str]:
    """Labels of points that no other beats: more insertion, less MSE and, if asked for, fewer passes."""

    def beats(one: tuple[str, float, float, float], two: tuple[str, float, float, float]) -> bool:
        better = [one[1] - two[1], two[2] - one[2], *([two[3] - one[3]] if with_cost else [])]
        return min(better) >= 0 and max(better) > 0

    return [point[0] for point in points if not any(beats(other, point) for other in points)]


def points_of(numbers: Numbers, pair: int) -> Front:
    """Means of all methods with their authors' settings that were measured on each photograph that counts."""
    known: dict[int, Values] = {}
    for number, row in enumerate(numbers.plan.methods):
        each = [values(numbers, pair, row.label, metric) for metric in ("insertion", "mse")]
        both = [one.mean(1) for one in each if one is not None]
        if len(both) == 2 and not is_reduced(row.label) and np.isfinite(both).any():
            known[number] = np.stack(both)
    if not known:
        return []
    shared = np.isfinite(np.stack(list(known.values()))).all((0, 1))
    found: Front = []
    for number, numbers_of in known.items() if shared.any() else ():
        insertion, mse = numbers_of[:, shared].mean(1).tolist()
        found.append((numbers.plan.methods[number].label, insertion, mse, sum(passes(numbers, pair, number))))
    return found


def pareto_table(numbers: Numbers) -> str:
    """The methods on the front of outside against inside, and on that with the cost, network by network."""
    return table(
        ["network", "method", "insertion ↑", "MSE ↓", "passes", "outside and inside", "and cost"],
        list(_on_front(numbers)),
        2,
    )


def _on_front(numbers: Numbers) -> Iterator[list[str]]:
    for pair, network in enumerate(numbers.plan.pairs):
        points = points_of(numbers, pair)
        two, three = front(points), front(points, with_cost=True)
        for label, insertion, mse, cost in sorted(points, key=lambda point: -point[1]):
            if label in three or label in two:
                digits = 1 if mse >= 10 else 3
                marks = ["✓" if label in each else "" for each in (two, three)]
                yield [network.name, in_markdown(label), f"{insertion:.3f}", f"{mse:.{digits}f}", f"{cost:.0f}", *marks]
