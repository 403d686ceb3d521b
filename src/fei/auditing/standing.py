"""Where the methods of an audit stand: what is decided, who is dropped, and who is ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fei.auditing import thresholds
from fei.auditing.costs import Costs
from fei.auditing.measured import Measured
from fei.auditing.questions import Question
from fei.auditing.verdicts import FAIL, MARKS, PASS, UNKNOWN, Verdict, judge_at, lead

OPEN = Verdict(UNKNOWN, 0, 0.0, 0.0, 0.0, 0.0)
"""Of what has not been measured."""


@dataclass
class Standing:
    """The methods of an audit and how far they are.

    Args:
        methods: Names, of those to be judged; controls come besides.
        items: The images, in the order in which they are taken.
        questions: What is asked.
        with_masks: The methods that black images can be asked of.
        measured: What is known; others add to it.
        costs: What steps take.
        deadline: When the last step must be ready, by the clock.
        clock: Tells the time in seconds.
        tell: Is told in words what has been decided.
        workers: How many steps are computed at a time.

    Attributes:
        dropped: Why a method is measured no further before the others are decided.
        left_out: Why a method was not begun, or not finished.
        table: The verdicts so far.
        sure: The verdicts at the stricter level, at which nothing more is measured.
    """

    methods: Sequence[str]
    items: Sequence[str]
    questions: Sequence[Question]
    with_masks: Sequence[str]
    measured: Measured
    costs: Costs
    deadline: float
    clock: Callable[[], float]
    tell: Callable[[str], None] = lambda text: None
    workers: int = 1
    dropped: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    table: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    sure: dict[tuple[str, str], Verdict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begun: list[str] = []
        self._order: list[str] = []
        self._told: dict[tuple[str, str], str] = {}
        self._looked = float("-inf")

    @property
    def begun(self) -> list[str]:
        """The methods that were measured."""
        return [method for method in self._begun if method not in self.left_out]

    def look(self) -> None:
        """See what is decided by now, and who can no longer be recommended."""
        self._looked = self.clock()
        table, self.sure = judge_at(
            [thresholds.ALPHA.value, thresholds.SURE.value],
            self.measured, self.begun, self.questions, self.items, self.with_masks,
        )  # fmt: skip
        for (method, name), verdict in table.items():
            if verdict.answer in (PASS, FAIL) and verdict.answer != self._told.get((method, name)):
                self._told[method, name] = verdict.answer  # once, though it may waver
                self.tell(f"{method}: {name} {MARKS[verdict.answer]}")
        self.table = table
        self._order = self._ordered()
        clean = [method for method in self._order if not self._failed(method, self.sure)]
        for method in self.begun:
            reason = self._beaten(method, clean)
            if reason and method not in self.dropped:
                self.dropped[method] = reason
                self.tell(f"{method} is dropped: {reason}")

    def _failed(self, method: str, table: dict[tuple[str, str], Verdict]) -> list[str]:
        essential = [question.name for question in self.questions if question.essential]
        return [name for name in essential if table.get((method, name), OPEN).answer == FAIL]

    def _beaten(self, method: str, clean: Sequence[str]) -> str | None:
        """Why a method cannot be recommended any more."""
        failed, others = self._failed(method, self.sure), [other for other in clean if other != method]
        if failed and others:
            return f"it fails {' and '.join(failed)}, and {others[0]} fails nothing so far"
        for other in others:
            ahead, p, _ = lead(self.measured, other, method, self.items)
            if ahead > 0 and p <= thresholds.SURE.value and self.costs.of_map(other) <= self.costs.of_map(method):
                return f"{other} is better (insertion − deletion {ahead:+.3f}) and no slower"
        return None

    def standing(self) -> list[str]:
        """The methods that were measured, the best first, as of the last look; those begun since come last."""
        known = [method for method in self._order if method not in self.left_out]
        return known + [method for method in self.begun if method not in self._order]

    def _ordered(self) -> list[str]:
        """By fails, open questions, gain and cost."""

        def place(method: str) -> tuple[int, int, float, float]:
            essential = [question.name for question in self.questions if question.essential]
            answers = [self.table.get((method, name), OPEN).answer for name in essential]
            gains = list(self.measured.gains(method, self.items).values())
            gain = sum(gains) / len(gains) if gains else 0.0
            return answers.count(FAIL), answers.count(UNKNOWN), -gain, self.costs.of_map(method)

        return sorted(self.begun, key=place)
