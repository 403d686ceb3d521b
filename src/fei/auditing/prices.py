"""What the next answer about a method would take: by what its steps cost, and how many images would tell."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from fei.auditing import thresholds
from fei.auditing.questions import BY_NAME, CONTROLS, STEPS, Question
from fei.auditing.standing import OPEN, Standing
from fei.auditing.verdicts import UNKNOWN
from fei.core.settings import FLAGSHIP

QUICK = ("map", "class", "weights")
"""Steps of the quick questions."""


@dataclass(frozen=True)
class Step:
    """One step for one method: on which image, or the number of the trial."""

    method: str
    name: str
    item: str


class Prices(Standing):
    """How far the methods are, what is still to do of them, and how long that takes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._started = self.clock()
        self._given: set[Step] = set()
        self._spent: dict[str, float] = defaultdict(float)  # seconds
        self._place = {item: place for place, item in enumerate(self.items)}
        self._trials = [str(number) for number in range(thresholds.TRIALS)]
        self._steps = {step for question in self.questions for step in question.steps}
        self._done: Counter[tuple[str, str]] = Counter()  # images of a step, and of these the first few
        self._first_done: Counter[tuple[str, str]] = Counter()
        for method in dict.fromkeys((*self.methods, *CONTROLS)):
            for name in STEPS:
                for item in self._places(name):
                    if self.measured.has(method, item, name):
                        self._count(Step(method, name, item))

    def _places(self, name: str) -> Sequence[str]:
        """Where a step is done: images, or trials."""
        return self._trials if name == "black" else self.items

    def _position(self, step: Step) -> int:
        return int(step.item) if step.name == "black" else self._place[step.item]

    def _count(self, step: Step) -> None:
        self._done[step.method, step.name] += 1
        self._first_done[step.method, step.name] += self._position(step) < thresholds.FEWEST

    def _give(self, step: Step) -> None:
        """Take a step as done from now on."""
        self._given.add(step)
        self._count(step)

    def _to_do(self, step: Step) -> bool:
        return step not in self._given and not self.measured.has(step.method, step.item, step.name)

    # What the first round takes

    def first_round(self, method: str, *, scores: bool = True) -> float:
        """Seconds that a method takes on the first images, with its scores or without."""
        names = [*QUICK, "score", "black"] if scores else QUICK
        asked = [n for n in names if n in self._steps and (n != "black" or method in self.with_masks)]
        return thresholds.FEWEST * sum(self.costs.of(method, name) for name in asked)

    def _rest(self, method: str) -> float:
        """What the quick questions of the first round still take of a method."""
        return sum(self._left(method, name) * self.costs.of(method, name) for name in QUICK if name in self._steps)

    def _left(self, method: str, name: str) -> int:
        """How many first images are still to do."""
        if (method, name) in self.measured.reasons:
            return 0
        return min(thresholds.FEWEST, len(self._places(name))) - self._first_done[method, name]

    # What an answer takes

    def _favour(self, method: str) -> float:
        """What the cost of a method counts for."""
        return thresholds.FAVOUR.value if method == FLAGSHIP else 1.0

    def _behind(self, method: str) -> bool:
        """Whether others go first: it cannot be recommended any more, or has had its share of the time."""
        whole = self.workers * (self.deadline - self._started)
        greedy = method != FLAGSHIP and self._spent[method] > thresholds.SHARE.value * whole
        return greedy or method in self.dropped

    def _leaders(self) -> list[str]:
        """The few that may well be recommended: the first of those whose scores are known."""
        known = [m for m in self.standing() if not self._behind(m) and not self._left(m, "score")]
        return known[: thresholds.LEADERS]

    def _asked(self, method: str) -> list[Question]:
        """The questions that a method can be asked."""
        return [
            question
            for question in self.questions
            if not any((method, name) in self.measured.reasons for name in question.steps)
            and (question.name != "black" or method in self.with_masks)
        ]

    def _unclear(self, method: str, question: Question) -> bool:
        return self.sure.get((method, question.name), OPEN).answer == UNKNOWN

    def _seconds_to_tell(self, method: str, question: Question) -> float:
        """How long it would be until a question is told, at best; infinite where no images or no time would do."""
        verdict = self.sure.get((method, question.name), OPEN)
        needed = max(verdict.needed, verdict.n + 1) if verdict.n >= thresholds.FEWEST else thresholds.FEWEST
        if needed > len(self._places(question.steps[-1])):
            return math.inf
        rows = [(method, name) for name in question.steps]
        if "score" in question.steps:
            rows += [(control, "score") for control in CONTROLS]
        seconds = sum(max(0, needed - self._done[row]) * self.costs.of(*row) for row in rows)
        return seconds if self._in_time(seconds) else math.inf

    def _prices(self) -> dict[tuple[str, str], float]:
        """Of each open question about each method, how long until it is told; for those that lead it counts less."""
        leaders = self._leaders()
        return {
            (method, question.name): self._seconds_to_tell(method, question)
            * (thresholds.LEAD.value if method in leaders else self._favour(method))
            for method in self.begun
            for question in self._asked(method)
            if self._unclear(method, question)
        }

    def _soonest(self) -> float:
        """How long until the next answer that comes after the quick questions of the methods that were begun."""
        scored = self._with_scores()
        first, further = list[float](), [math.inf]
        for (method, name), price in self._prices().items():
            if self._behind(method):
                continue
            if self.sure.get((method, name), OPEN).n >= thresholds.FEWEST:
                further.append(price)
            elif name == "black" or (method in scored and "score" in BY_NAME[name].steps):
                first.append(price)
        if not first and scored and (left := self._left(CONTROLS[0], "survey")):
            first.append(left * self.costs.of("", "survey"))
        return min(first or further)

    def _with_scores(self) -> set[str]:
        """The methods, the best first, whose scores on the first images fit into the time beside the controls'."""
        if "score" not in self._steps:
            return set()
        each, needed = self.costs.of("", "score"), self._of_controls()
        found: set[str] = set()
        for method in sorted(self.standing(), key=lambda method: method in self.dropped):
            needed += self._left(method, "score") * each
            if not self._in_time(needed):
                break
            found.add(method)
        return found

    def _of_controls(self) -> float:
        """What the first scores of the controls take."""
        return sum(self._left(control, "score") for control in CONTROLS) * self.costs.of("", "score")

    def _in_time(self, seconds: float, share: float = 1.0) -> bool:
        """Whether so much work fits into a share of the time that is left."""
        return seconds / self.workers <= share * (self.deadline - self.clock())
