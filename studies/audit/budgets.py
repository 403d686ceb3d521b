"""What audits of different lengths would find on SqueezeNet: races on a clock of their own.

Methods cost what they cost on one thread, and their numbers are drawn around those that were measured
(`tests/racing.py`); each length is raced several times, with other photographs each time.

    python studies/audit/budgets.py [--slower 2] [--races 5] [minutes ...]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from racing import on_squeezenet  # noqa: E402

from fei.auditing.questions import QUESTIONS  # noqa: E402
from fei.auditing.recommendation import recommend  # noqa: E402

WATCHED = ("gradcam", "liftcam", "fei", "smoothgrad", "occlusion", "kernel-shap", "fgvce", "rise")


def summary(races: list[Any], budget: float) -> str:
    """What the races of one length found, in a few lines."""
    lines, chosen, passed, told = [], Counter[str](), [], Counter[str]()
    for race in races:
        advice = recommend(
            race.measured, race.race.table, race.race.standing(), QUESTIONS, race.race.items, race.race.left_out
        )
        best = str(advice.method)
        chosen[best] += 1
        answers = {q.name: race.race.table[best, q.name].mark for q in QUESTIONS} if advice.method else {}
        told.update(name for name, mark in answers.items() if mark in "✓✗")
        passed.append(sum(mark == "✓" for mark in answers.values()))
    used = [race.now / race.race.deadline for race in races]
    count = [len(race.race.begun) for race in races]
    answered = [sum(v.mark in "✓✗" for v in race.race.table.values()) for race in races]
    lines.append(
        f"{budget:g} min: use {', '.join(f'{name} {n}' for name, n in chosen.most_common())}; "
        f"passes {median(passed):g}; told of it {dict(told)}; "
        f"{median(count):g} methods, {median(answered):g} answers, time used {min(used):.2f} to {max(used):.2f}"
    )
    for name in WATCHED:
        images = [race.images(name, "map") for race in races]
        scores = [race.images(name, "score") for race in races]
        begun = [race.begun_at[name] for race in races if name in race.begun_at]
        share = [race.spent.get(name, 0.0) / race.now for race in races]
        when = f"begun at {median(begun):5.0f} s in {len(begun)}" if begun else "not begun"
        done = f"maps {median(images):3g}, scores {median(scores):3g}, {median(share):4.0%} of the time"
        lines.append(f"    {name:12} {done}, {when}")
    return "\n".join(lines)


def main() -> None:
    """Race and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("minutes", nargs="*", type=float, default=[1, 2, 5, 10, 20, 60])
    parser.add_argument("--slower", type=float, default=1.0)
    parser.add_argument("--races", type=int, default=5)
    asked = parser.parse_args()
    for minutes in asked.minutes:
        races = [
            on_squeezenet(minutes, slower=asked.slower, photographs=number)  # type: ignore[no-untyped-call]
            for number in range(asked.races)
        ]
        print(summary(races, minutes), flush=True)


if __name__ == "__main__":
    main()
