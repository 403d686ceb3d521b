"""What is measured next: within a budget, by what it costs and what it can still decide.

It is a race, and what is told soonest comes first. Methods are begun in the order of their cost, each on the same few
images, where that takes less time than the next answer about those that were begun; these go on to more images with the
questions that are still open. A method is dropped where it fails an essential question and another one fails none, or
where another one is better and no slower; what is left of the time in the end goes to those too. No step is begun that
would not be ready in time. Where nothing more can be decided, the rest of the time goes to steps that a later audit has
no need to take.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Sequence

from fei.auditing import thresholds
from fei.auditing.costs import short
from fei.auditing.prices import QUICK, Prices, Step
from fei.auditing.questions import CONTROLS, STEPS, Question
from fei.bench.units import BLACK_IMAGE, Outcome
from fei.progress import span

_LOOK_AGAIN = (1.0, 0.002)  # seconds between two looks at what is decided, and share of the time; whichever is more
UNFINISHED = "not finished"
"""How the reason begins for a method that has too few images for any answer."""


class Race(Prices):
    """The methods of an audit and how far they are, and what is measured next."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._under_way: dict[Step, float] = {}
        self._arrivals: list[float] = []
        self._failures: Counter[tuple[str, str]] = Counter()
        self._reached: Counter[tuple[str, str]] = Counter()
        # what is there from before is taken as begun: it costs nothing
        self._begun = [
            method for method in self.methods if any(self.measured.groups.get((method, item)) for item in self.items)
        ]
        self._waiting = sorted((method for method in self.methods if method not in self._begun), key=self._turn)
        self._warm = False
        self.look()

    def _turn(self, method: str) -> float:
        """Methods are begun in the order of this."""
        return self.costs.of_map(method) * self._favour(method)

    # What comes next

    def next(self) -> Step | None:
        """The next step; None where nothing can be decided any more in the time that is left."""
        least, share = _LOOK_AGAIN
        if self.clock() - self._looked >= max(least, share * (self.deadline - self._started)):
            self.look()
        step = self._choose()
        if step is not None:
            self._give(step)
            self._under_way[step] = self.clock()
        return step

    def came(self, outcome: Outcome) -> None:
        """A step is ready; its numbers are in `measured` already."""
        now, trial = self.clock(), outcome.kind == BLACK_IMAGE
        fitting = [
            step
            for step in self._under_way
            if (step.method, step.item, step.name == "black") == (outcome.method, outcome.item, trial)
        ]
        ready = [step for step in fitting if set(STEPS[step.name]) <= set(outcome.groups)]
        if not fitting:
            return
        step = (ready or fitting)[0]
        begun = self._under_way.pop(step)
        if len(self._arrivals) >= self.workers:  # it began when a worker became free
            begun = max(begun, self._arrivals[-self.workers])
        self._arrivals.append(now)
        self._spent[step.method] += now - begun
        if ready and self._warm:  # the first one also loads the network
            self.costs.learn(step.method, step.name, now - begun)
        self._warm = True
        if not ready:
            self._fail(step, outcome.error or "it failed")

    def forget(self, step: Step) -> None:
        """Nothing will come of a step."""
        self._under_way.pop(step, None)

    def _fail(self, step: Step, reason: str) -> None:
        """One image may be at fault, two are not: then the step is not tried again."""
        self._failures[step.method, step.name] += 1
        done = any(self.measured.has(step.method, item, step.name) for item in self.items)
        if self._failures[step.method, step.name] > 1 and not done:
            self.measured.reasons[step.method, step.name] = reason
            if step.name == "map" and step.method in self.methods:
                self.left_out.setdefault(step.method, f"it cannot be used here: {reason}")

    def _choose(self) -> Step | None:
        self._admit()
        scored = self._with_scores()
        step = self._probe() or self._best(scored)
        if step is None and self._admit_one():
            step = self._best(scored)
        return step or self._best(set(self.begun))

    def _probe(self) -> Step | None:
        """One score, once a first method has its quick answers, so that it is known whether the others fit."""
        if "score" not in self._steps or self.costs.known("score") or all(map(self._rest, self.begun)):
            return None
        step = self._first(CONTROLS[0], "score", len(self.items))
        if step is None or any(each.name == "score" for each in self._under_way):
            return None
        return step if self._fits([(step.method, step.name)]) else None

    def _best(self, scored: set[str]) -> Step | None:
        """The most urgent step that would be ready in time, with scores of some methods."""
        found: list[tuple[tuple[float, ...], Step]] = []
        prices = self._prices()
        order = {method: place for place, method in enumerate(self.standing())}
        survey = self._first(CONTROLS[0], "survey", thresholds.FEWEST) if scored else None
        if survey is not None:
            found.append(((0, 0, 3), survey))  # after the first scores
        for method in self.begun:
            found += [(self._urgency(step, order, prices), step) for step in self._wanted(method, scored)]
        for _, step in sorted(found, key=lambda one: one[0]):
            needed = self._with_controls(step)
            if self._fits([(each.method, each.name) for each in needed]):
                return needed[0]
        return None

    def _wanted(self, method: str, with_scores: set[str]) -> list[Step]:
        """The next steps that can still decide something: for each open question, the first that is missing."""
        found: dict[Step, None] = {}  # in the order of the questions, so that a race can be run again
        for question in self._asked(method):
            if (step := self._next_of(method, question)) is None:
                continue
            level, scored = self._level(step), "score" in question.steps
            if level == 0:
                if not scored or method in with_scores or step.name == "map":
                    found[step] = None
            elif scored and self._left(method, "score"):  # nothing is won with a few
                continue
            elif self._unclear(method, question) or (scored and method not in self.dropped and self._racing()):
                found[step] = None
        return list(found)

    def _racing(self) -> bool:
        """Whether more than one method can still be recommended, one that will not be ready in time aside."""
        return sum(each not in self.dropped and self._in_time(self._rest(each)) for each in self.begun) > 1

    def _next_of(self, method: str, question: Question) -> Step | None:
        """The first step of a question that is missing, image by image."""
        places, cell = self._places(question.steps[-1]), (method, question.name)
        for place in range(self._reached[cell], len(places)):
            for name in question.steps:
                if self._to_do(step := Step(method, name, places[place])):
                    self._reached[cell] = place  # what is done stays done
                    return step
        return None

    def _first(self, method: str, name: str, most: int) -> Step | None:
        for item in self._places(name)[:most]:
            if self._to_do(step := Step(method, name, item)):
                return step
        return None

    def _level(self, step: Step) -> int:
        return bisect.bisect_right(thresholds.LADDER, self._position(step))

    def _urgency(self, step: Step, order: dict[str, int], prices: dict[tuple[str, str], float]) -> tuple[float, ...]:
        """First steps first; then what is told soonest of those that can still be recommended; the dropped ones last.

        Where no answer is in sight, all go on together to more images, the best first.
        """
        level, place = self._level(step), self._position(step)
        scored = 2 * int(step.name in ("score", "black"))
        late = int(self._behind(step.method) if level else self._late(step.method, bool(scored)))
        if level == 0:
            # all images of a method, so that it has answers where time runs short; the scores of the best first
            turn = order[step.method] if scored else self._begun.index(step.method)
            return (late, 0, scored, turn, place)
        asked = [(step.method, question.name) for question in self.questions if step.name in question.steps]
        unclear = [prices[cell] for cell in asked if cell in prices]
        price = min(unclear, default=math.inf)
        return (late, 1 if unclear else 2, price, level, order[step.method], place, scored)

    def _late(self, method: str, scored: bool) -> bool:
        """Whether a method is dropped, or its quick questions would not be ready or crowd out the best one's scores."""
        if method in self.dropped:
            return True
        rest = self._rest(method)
        ready = [each for each in self.standing() if each not in self.dropped and not self._rest(each)]
        return not self._in_time(rest) or bool(not scored and ready and not self._leaves_scores(rest, 0.0, ready[:1]))

    def _with_controls(self, step: Step) -> list[Step]:
        """A score is worth something beside those of the controls on the same image, which come first."""
        if step.name != "score":
            return [step]
        needed = [Step(control, "score", step.item) for control in CONTROLS if control != step.method]
        missing = [
            each for each in needed if self._to_do(each) and (each.method, "score") not in self.measured.reasons
        ]  # fmt: skip
        return [*missing, step]

    # The budget

    def _fits(self, steps: Sequence[tuple[str, str]]) -> bool:
        seconds = sum(self.costs.of(*step) for step in steps)
        waiting = max((self.costs.of(step.method, step.name) for step in self._under_way), default=0.0)
        return self.clock() + seconds + waiting <= self.deadline

    def _admit(self) -> None:
        """Begin methods whose quick questions are told sooner than what is open, fit, and leave time for scores."""
        for method in tuple(self._waiting):
            own = self.first_round(method, scores=False)
            without, with_it = sum(self._rest(each) for each in self.begun), [*self.begun, method]
            quick = own + without
            if not self._begun and self._in_time(quick):
                self._begin(method)
            elif own * self._favour(method) > self._soonest():
                break  # the others cost more
            elif self._in_time(quick, thresholds.BREADTH.value) and self._leaves_scores(quick, without, with_it):
                self._begin(method)

    def _begin(self, method: str) -> None:
        self._waiting.remove(method)
        self._begun.append(method)
        self.tell(f"{method} begins, about {short(self.costs.of_map(method))} per map")

    def _leaves_scores(self, quick: float, without: float, methods: Sequence[str]) -> bool:
        """Whether so many seconds leave time for the first scores of methods, or one's would not fit without them."""
        if "score" not in self._steps:
            return True
        score = self.costs.of("", "score")
        besides = self._of_controls() + self._left(CONTROLS[0], "survey") * self.costs.of("", "survey")
        of_all = sum(self._left(each, "score") for each in methods) * score
        return self._in_time(quick + besides + of_all) or not self._in_time(
            without + besides + thresholds.FEWEST * score
        )

    def _admit_one(self) -> bool:
        """Where nothing else is left to do, begin one more method; whether one was begun.

        It is the first whose quick questions fit, or else the cheapest, for a later audit to go on with.
        """
        fitting = [method for method in self._waiting if self._in_time(self.first_round(method, scores=False))]
        ahead = [method for method in self._waiting if self._fits([(method, "map")])]
        for method in (*fitting, *sorted(ahead, key=self.costs.of_map)):
            self._begin(method)
            return True
        return False

    def leave_out(self) -> None:
        """Say why methods were not begun, or not finished, once the race is over."""
        for method in self._waiting:
            self.left_out[method] = f"not begun: {self._needs(method)}"
        quick = [name for name in QUICK if name in self._steps]
        for method in self.begun if quick else ():
            done = sum(self.measured.has(method, item, "map") for item in self.items)
            if done < thresholds.FEWEST:
                self.left_out[method] = f"{UNFINISHED}, {done} of {thresholds.FEWEST} images: {self._needs(method)}"

    def _needs(self, method: str) -> str:
        seconds = span(self.first_round(method))
        return f"about {short(self.costs.of_map(method))} per map, so {seconds} more would be needed"
