"""The answers of audits beside those that the study's scores give to the same questions.

The scores are those of `studies/flagship` (photographs of `imagenet_test/`) and `studies/transformers` (photographs of
`imagenet/`), judged by the tests of an audit. They do not hold the score of the photograph, so `score` is not compared.

    python studies/audit/beside.py fei-out/audit-*/audit.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fei.auditing.measured import Measured
from fei.auditing.questions import named
from fei.auditing.verdicts import MARKS, Table, judge

ROOT = Path(__file__).parents[1]
FILES = {
    "efficientnet_lite0": "flagship/scores/EfficientNet-Lite0.jsonl",
    "squeezenet": "flagship/scores/SqueezeNet.jsonl",
    "resnet50": "flagship/scores/ResNet50.jsonl",
    "deit_tiny": "transformers/scores/final.jsonl",
}
QUESTIONS = named("class,weights,seed,controls,inside")
NAMES = {
    "seeds": "stability", "random_class": "random_class", "classifier": "classifier_randomization",
    "insertion": "insertion", "deletion": "deletion", "cosine": "cosine",
}  # fmt: skip


def study(file: str) -> Table:
    """What the tests of an audit say of the study's numbers."""
    measured, items = Measured(), dict[str, None]()
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] in ("held-out", "trust"):
            items[row["photograph"]] = None
            found = {ours: row[theirs] for theirs, ours in NAMES.items() if theirs in row}
            measured.scores[row["method"], row["photograph"]] |= found
    return judge(measured, sorted({method for method, _ in measured.scores}), QUESTIONS, list(items))


def compared(audit: dict[str, Any]) -> Iterator[list[str]]:
    """A row for each question about each method that both have numbers of."""
    network = audit["network"]["model"].rpartition(":")[2]
    known = study(FILES[network])
    for method in audit["methods"]:
        for question in QUESTIONS:
            here, there = method["answers"][question.name], known.get((method["name"], question.name))
            if there is not None and there.n > 1 and here["n"] >= 5:
                ours = _cell(here["mark"], here["mean"], here["low"], here["high"], here["n"])
                theirs = _cell(MARKS[there.answer], there.mean, there.low, there.high, there.n)
                yield [network, f"`{method['name']}`", question.name, ours, theirs]


def _cell(mark: str, mean: float, low: float, high: float, n: int) -> str:
    return f"{mark} {mean:.2f} [{low:.2f}, {high:.2f}], {n}"


if __name__ == "__main__":
    print("| network | method | question | audit: mean, interval, n | study |\n|---|---|---|---|---|")
    for name in sys.argv[1:]:
        for row in compared(json.loads(Path(name).read_text(encoding="utf-8"))):
            print(f"| {' | '.join(row)} |")
