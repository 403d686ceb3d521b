"""What an audit found, as an object and as plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fei.auditing import thresholds
from fei.auditing.measured import Measured
from fei.auditing.network import FirstLook, Remark
from fei.auditing.questions import CONTROLS, PROTOCOL, Question
from fei.auditing.verdicts import FAIL, NONE, PASS, Table, Verdict
from fei.errors import InputError

SCHEMA = 1


@dataclass(frozen=True, repr=False)
class Audit:
    """Which explanations can be trusted on a network.

    Attributes:
        recommended: The method to use; None where none can be recommended.
        sentences: The recommendation in two sentences.
        by_question: For each question the best of those that pass it, with its number.
        table: The verdicts by method and question.
        methods: The methods that were measured, the best first.
        questions: What was asked.
        dropped: Methods that were measured no further while others were undecided, and why.
        left_out: Methods that were not measured, or not enough, and why.
        remarks: What was found about the network itself.
        measured: All numbers.
        items: The images, in the order in which they were taken.
        looked: What the network says of the first of them.
        asked: What was asked for.
        fingerprint: The network's, see `fei.bench.plan.keys.model_fingerprint`.
        folder: Where the report and the run are.
        computed: Steps that were computed now; the others were there already.
        seconds: How long it took.
        finished: When it ended.

    Examples:
        >>> found = fei.audit("net.py:net", "imagefolder:classes", methods=["gradcam", "random"], require="class")
        >>> found.page.name, sorted(found.methods)
        ('required.html', ['gradcam', 'random'])
    """

    recommended: str | None
    sentences: tuple[str, str]
    by_question: dict[str, tuple[str, float] | None]
    table: Table
    methods: tuple[str, ...]
    questions: tuple[Question, ...]
    dropped: dict[str, str]
    left_out: dict[str, str]
    remarks: tuple[Remark, ...]
    measured: Measured = field(compare=False)
    items: tuple[str, ...]
    looked: FirstLook
    asked: dict[str, Any]
    fingerprint: str
    folder: Path
    computed: int
    seconds: float
    finished: str

    def __repr__(self) -> str:
        return f"Audit({self.asked['spec']!r}, recommended {self.recommended!r}, {len(self.methods)} methods)"

    @property
    def stem(self) -> str:
        """How its files are called: one with requirements leaves the report of the whole audit as it is."""
        return "required" if self.asked["require"] else "audit"

    @property
    def page(self) -> Path:
        """The report."""
        return self.folder / f"{self.stem}.html"

    def verdict(self, method: str, question: str) -> Verdict:
        """The answer to a question about a method.

        Raises:
            InputError: If that was not asked.
        """
        if (method, question) not in self.table:
            why = self.left_out.get(method, "it was not asked for")
            raise InputError(f"There is no answer to '{question}' about '{method}', {why}; audit that too.")
        return self.table[method, question]

    def unmet(self, method: str | None = None) -> dict[str, str]:
        """The questions that a method does not pass, with the reason; by default of the recommended one.

        What does not apply to a method is no requirement of it; what cannot be told is not met.
        """
        name = method or self.recommended
        if name is None:
            return {question.name: "no method can be recommended" for question in self.questions}
        if name not in self.methods:
            return {question.name: self.left_out.get(name, "it was not measured") for question in self.questions}
        found = {question: self.table[name, question.name] for question in self.questions}
        return {
            question.name: question.fails if verdict.answer == FAIL else f"cannot tell: {verdict.why}"
            for question, verdict in found.items()
            if verdict.answer not in (PASS, NONE)
        }

    def images_of(self, method: str) -> int:
        """On how many images a method was measured."""
        return sum(self.measured.has(method, item, "map") for item in self.items)

    def document(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "schema": SCHEMA,
            "recommended": self.recommended,
            "sentences": list(self.sentences),
            "by_question": {
                name: None if best is None else {"method": best[0], "mean": best[1]}
                for name, best in self.by_question.items()
            },
            "network": {
                "model": self.asked["spec"],
                "fingerprint": self.fingerprint,
                "looked_at": self.looked.images,
                "right": self.looked.right,
                "predicted_classes": self.looked.classes,
                "confidence": self.looked.confidence,
                "remarks": [
                    {"name": each.name, "sentence": each.sentence, "cells": [list(cell) for cell in each.cells]}
                    for each in self.remarks
                ],
            },
            "data": {"spec": self.asked["data"], "images": self.asked["images"]},
            "questions": [
                {
                    "name": question.name,
                    "title": question.title,
                    "measure": question.measure,
                    "limit": question.limit.value,
                    "reason": question.limit.reason,
                    "below": question.name == "black",
                    "passes": question.passes,
                    "fails": question.fails,
                }
                for question in self.questions
            ],
            "methods": [self._method(name) for name in self.methods],
            "controls": [{"name": name, "gain": self._gain(name)} for name in CONTROLS],
            "dropped": self.dropped,
            "left_out": self.left_out,
            "budget": self.asked["budget"],
            "seconds": round(self.seconds, 1),
            "computed": self.computed,
            "seed": self.asked["seed"],
            "protocol": PROTOCOL,
            "alpha": thresholds.ALPHA.value,
            "finished": self.finished,
        }

    def _method(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "options": self.asked["options"].get(name, {}),
            "images": self.images_of(name),
            "seconds": self.measured.cost(name),
            "gain": self._gain(name),
            "runner_up": _mean(self.measured.values(name, self.items, "runner_up")[:, 0].tolist()),
            "answers": {question.name: _plain(self.table[name, question.name]) for question in self.questions},
        }

    def _gain(self, name: str) -> float | None:
        return _mean(list(self.measured.gains(name, self.items).values()))


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _plain(verdict: Verdict) -> dict[str, Any]:
    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return {
        "answer": verdict.answer,
        "mark": verdict.mark,
        "n": verdict.n,
        "mean": number(verdict.mean),
        "low": number(verdict.low),
        "high": number(verdict.high),
        "limit": verdict.limit,
        "against": verdict.against,
        "why": verdict.why,
    }
