"""What to use on this network, in two sentences, and which method is best for which question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fei.auditing import thresholds
from fei.auditing.costs import short
from fei.auditing.measured import Measured
from fei.auditing.questions import Question
from fei.auditing.verdicts import FAIL, NONE, PASS, UNKNOWN, Table


@dataclass(frozen=True)
class Recommendation:
    """What to use.

    Attributes:
        method: The method; None where none can be recommended.
        sentences: The recommendation, and what to know with it.
        by_question: For each question the best of those that pass it, with its number; None where none does.
    """

    method: str | None
    sentences: tuple[str, str]
    by_question: dict[str, tuple[str, float] | None]


def recommend(
    measured: Measured,
    table: Table,
    standing: Sequence[str],
    questions: Sequence[Question],
    items: Sequence[str],
    left_out: dict[str, str],
) -> Recommendation:
    """Choose from the methods that were measured.

    Args:
        measured: The numbers.
        table: The verdicts.
        standing: The methods, the best first.
        questions: What was asked.
        items: The images.
        left_out: The methods that were not measured, and why.
    """

    def of(method: str, answer: str) -> list[Question]:
        return [question for question in questions if table[method, question.name].answer == answer]

    def sound(method: str) -> bool:
        return not any(question.essential for question in of(method, FAIL))

    best = next((method for method in standing if sound(method) and of(method, PASS)), None)
    by_question = {
        question.name: _best(question, [method for method in standing if sound(method)], table)
        for question in questions
    }
    if best is None:
        return Recommendation(None, _nothing(standing, table, questions), by_question)
    passed, open_ = of(best, PASS), of(best, UNKNOWN)
    counts = sorted({table[best, question.name].n for question in passed})
    n = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    asked = sum(table[best, question.name].answer != NONE for question in questions)
    cost = measured.cost(best)
    how_long = "" if cost is None else f" and takes {short(cost)} per map"
    first = f"Use {best} on this network: it passes {len(passed)} of {asked} questions on {n} images{how_long}."
    return Recommendation(best, (first, _besides(best, open_, standing, table, questions, left_out)), by_question)


def _besides(
    best: str,
    open_: Sequence[Question],
    standing: Sequence[str],
    table: Table,
    questions: Sequence[Question],
    left_out: dict[str, str],
) -> str:
    """The most important things to know with the recommendation."""

    def failed(method: str) -> list[Question]:
        return [question for question in questions if table[method, question.name].answer == FAIL]

    parts = [f"it {_joined([question.fails for question in failed(best)])}"] if failed(best) else []
    counts = {question.passes: table[best, question.name].n for question in open_}
    if few := [words for words, n in counts.items() if n < thresholds.FEWEST]:
        parts.append(f"there was no time to see whether it {_joined(few)}")
    if unclear := [words for words, n in counts.items() if n >= thresholds.FEWEST]:
        parts.append(f"{max(counts.values())} images cannot tell whether it {_joined(unclear)}")
    failing = [method for method in standing if any(question.essential for question in failed(method))]
    if failing:
        worst = failing[-1]
        why = f"{worst}, which {failed(worst)[0].fails}"
        share = f"{len(failing)} of {len(standing)} methods fail an essential question, such as {why}"
        parts.append(f"do not trust {why}" if len(failing) == 1 else share)
    later = [method for method, why in left_out.items() if why.startswith("not begun")]
    if later and len(parts) < 2:
        parts.append(f"{len(later)} slower methods were not begun, which a longer budget would allow")
    if not parts:
        parts.append("no other method was better, and none of those measured fails an essential question")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _nothing(standing: Sequence[str], table: Table, questions: Sequence[Question]) -> tuple[str, str]:
    if not standing:
        return (
            "No method could be measured on this network.",
            "The reasons stand below; other methods, more images or a longer budget may help.",
        )
    nearest = standing[0]
    failed = [q.fails for q in questions if q.essential and table[nearest, q.name].answer == FAIL]
    if failed:
        return (
            "None of the methods that were measured can be trusted on this network and these images.",
            f"The nearest is {nearest}, which {_joined(failed)}; do not read its maps as reasons.",
        )
    return (
        "With this many images nothing can be said of any method on this network.",
        "Give more images or a longer budget.",
    )


def _best(question: Question, methods: Sequence[str], table: Table) -> tuple[str, float] | None:
    passing = [m for m in methods if table[m, question.name].answer == PASS]
    if not passing:
        return None
    sign = -1 if question.name == "black" else 1
    best = max(passing, key=lambda method: sign * table[method, question.name].mean)
    return best, table[best, question.name].mean


def disagreement(maps: Sequence[np.ndarray]) -> float:
    """How much maps of one image differ: 1 − the mean rank correlation of all pairs."""
    ranks = np.stack([np.argsort(np.argsort(each, axis=None, kind="stable"), kind="stable") for each in maps]).astype(
        np.float64
    )
    ranks -= ranks.mean(1, keepdims=True)
    ranks /= np.linalg.norm(ranks, axis=1, keepdims=True)
    alike = ranks @ ranks.T
    count = len(maps)
    return float(1 - (alike.sum() - count) / (count * (count - 1)))


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
