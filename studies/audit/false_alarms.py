"""How often the verdicts of an audit flip when nothing but the seed and the drawn images change.

A small network with a known answer is audited 50 times: each time another seed, and 10 other of 16 pictures. The
numbers of all pictures are measured first, for each seed; each audit is then a race over them, which stops and drops
methods as a real one does. A flip is a ✓ where most audits say ✗, or the other way round. Besides, each method is
compared with itself under the next seed, which should find no lead.

    python studies/audit/false_alarms.py
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import audited  # noqa: E402

from fei import methods, metrics, models  # noqa: E402
from fei.auditing.costs import Costs  # noqa: E402
from fei.auditing.measured import Measured  # noqa: E402
from fei.auditing.questions import CONTROLS, QUESTIONS, STEPS  # noqa: E402
from fei.auditing.schedule import Race  # noqa: E402
from fei.auditing.verdicts import lead  # noqa: E402
from fei.bench.units import MAP, Outcome  # noqa: E402

AUDITS, PICTURES, DRAWN = 50, 16, 10
METHODS = {"gradcam": {}, "smoothgrad": {"samples": 2}, "random": {}}
OF_STEP = {
    "map": ("stability",),
    "class": ("random_class",),
    "weights": ("classifier_randomization",),
    "score": ("insertion", "deletion", "cosine"),
    "survey": (),
}


def numbers(model: torch.nn.Module, images: torch.Tensor, name: str, seed: int) -> list[dict[str, float]]:
    """All numbers of one method under one seed, for each picture."""
    method = methods.create(name, **METHODS.get(name, {}))

    def how() -> dict[str, Any]:
        return {"generator": torch.Generator().manual_seed(seed)}

    maps = method(model, images, **how())
    found = metrics.evaluate(model, images, maps, protocol="held-out", **how())
    cosine = torch.stack([inside.cosine for inside in found.internal.values()]).mean(0)
    columns = {"insertion": found.insertion.auc, "deletion": found.deletion.auc, "cosine": cosine}
    if name not in CONTROLS:
        columns["stability"] = metrics.stability(model, method, images, maps=maps, **how()).correlation
        columns["random_class"] = metrics.class_sensitivity(
            model, method, images, maps=maps, **how()
        ).random.correlation
        columns["classifier_randomization"] = metrics.classifier_randomization(
            model, method, images, maps=maps, **how()
        ).correlation
    return [{key: float(values[i]) for key, values in columns.items()} for i in range(len(images))]


def race(known: dict[str, list[dict[str, float]]], scores: list[float], drawn: list[int]) -> Race:
    """An audit over numbers that are known already; a clock that hardly moves, so that the budget does not decide."""
    measured, now = Measured(), [0.0]
    costs = Costs(0.01, METHODS, measured)
    items = [str(number) for number in drawn]
    found = Race(list(METHODS), items, QUESTIONS, [], measured, costs, 1e9, lambda: now[0])
    while (step := found.next()) is not None:
        now[0] += 0.2
        row = known[step.method][int(step.item)]
        came = Outcome(
            key=f"{step.method}-{step.item}", kind=MAP, model="", data="", item=step.item, method=step.method,
            config="", seed=0, status="done", target=1, probability=scores[int(step.item)], seconds=0.1,
            scores=tuple((name, "", "", row[name]) for name in OF_STEP[step.name]), groups=STEPS[step.name],
        )  # fmt: skip
        measured.add(came)
        found.came(came)
    found.look()
    return found


def main() -> None:
    """Measure, race, count."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        audited.make(Path(folder))
        model = models.load(f"{folder}/nets.py:seeing")
    drawn, *_ = audited.pictures(PICTURES, seed=5)  # type: ignore[no-untyped-call]
    images = torch.from_numpy(drawn).permute(0, 3, 1, 2).float()
    with torch.no_grad():
        scores = model(images).softmax(1).amax(1).tolist()
    tables, leads, runs = [], [], []
    still = {name: numbers(model, images, name, 0) for name in CONTROLS if name != "smooth-noise"}  # they draw nothing
    for seed in range(AUDITS):
        known = still | {name: numbers(model, images, name, seed) for name in (*METHODS, "smooth-noise")}
        drawn = random.Random(seed).sample(range(PICTURES), DRAWN)
        found = race(known, scores, drawn)
        tables.append({cell: verdict.answer for cell, verdict in found.table.items()})
        runs.append((known, drawn))
        print(seed, "".join(found.table[cell].mark for cell in sorted(found.table)), flush=True)
    for (known, drawn), (other, _) in zip(runs, [*runs[1:], runs[0]], strict=True):
        for name in METHODS:
            both = Measured()
            for label, source in (("one", known), ("other", other)):
                for number in drawn:
                    both.scores[label, str(number)] |= source[name][number]
            mean, p, _ = lead(both, "one", "other", [str(number) for number in drawn])
            leads.append(p <= 0.05 and mean != 0)
    flips = answered = 0
    for cell in sorted(tables[0]):
        counts = Counter(table[cell] for table in tables)
        decided = counts["pass"] + counts["fail"]
        fewer = min(counts["pass"], counts["fail"])
        answered, flips = answered + decided, flips + fewer
        print(
            f"{cell[0]:16} {cell[1]:9} ✓ {counts['pass']:2} ✗ {counts['fail']:2} ? {counts['unknown']:2} flips {fewer}"
        )
    print(f"flips: {flips} of {answered} answers ({flips / max(1, answered):.1%}) in {AUDITS} audits")
    print(f"leads of a method over itself: {sum(leads)} of {len(leads)} ({sum(leads) / len(leads):.1%})")


if __name__ == "__main__":
    main()
