"""Workers and the units they have: each computes what it is given, and is replaced if it dies, hangs or is lost."""

from __future__ import annotations

import abc
import math
import time
import warnings
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from fei.bench.context import WorkerContext
from fei.bench.units import Outcome, Unit
from fei.errors import InputError

_AHEAD = 2  # units that a worker has: the one it computes, and the next one, so that it never waits
_STARTS = 3  # workers that may die in a row before they have started
_NODES = 5  # machines that may be lost under a unit before it is taken for the cause


Said = Outcome | int | None
"""What a worker says: that it runs (None), that the network of a pair is loaded, what came of a unit."""


@dataclass(frozen=True)
class Ending:
    """How a worker came to its end, and whether its machine was lost with it."""

    reason: str
    lost: bool = False


def checked_count(name: str, value: int, least: int, meaning: str | None = None) -> int:
    """A number of workers or threads that was asked for; InputError if it cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"`{name}` is {value!r}; give a whole number, {meaning or f'at least {least}'}.")
    return value


class Member(abc.ABC):
    """A worker as the driver sees it.

    Attributes:
        units: What it has to do, in order.
        started: Whether it has said that it runs.
        loaded: The pairs whose network it has loaded, or found not to load.
        dead: Whether nothing more will come of it.
        lacks: What its machine lacks and this one has, in one sentence; then it says no more.
        since: When it was last heard of, or given something to do.
        orderly: Whether what it said is there before it begins the next unit, so that it is known which one it died of.
    """

    orderly = True

    def __init__(self) -> None:
        self.units: deque[Unit] = deque()
        self.started = self.dead = False
        self.loaded: set[int] = set()
        self.lacks: str | None = None
        self.since = time.monotonic()

    def take(self, unit: Unit) -> bool:
        """Give it a unit; False if it is no longer there to take it."""
        if not self.send(unit):
            return False
        if not self.units:
            self.since = time.monotonic()
        self.units.append(unit)
        return True

    def outcomes(self) -> Iterator[Outcome]:
        """What has come of its units so far; it computes them in order."""
        for said in self.said():
            self.since = time.monotonic()
            if isinstance(said, Outcome):
                self.units.popleft()
                yield said
            elif said is None:
                self.started = True
            else:
                self.loaded.add(said)

    @abc.abstractmethod
    def send(self, unit: Unit) -> bool:
        """Send it a unit; False if it is no longer there."""

    @abc.abstractmethod
    def said(self) -> Iterator[Said]:
        """What it has said since it was last asked; `dead` where it will say no more."""

    def dismiss(self) -> None:
        """Let it go: at once if it is at work or not yet there, else when it has time."""
        self.kill()

    @abc.abstractmethod
    def kill(self) -> None:
        """End it, whatever it does. One that has ended already stays as it is."""

    @abc.abstractmethod
    def end(self) -> Ending:
        """Wait for its end, and tell how it ended. Asked again, it tells the same at once."""


class Crew(Protocol):
    """Where workers come from.

    Attributes:
        advice: What to do where they do not start.
    """

    advice: str

    def recruit(self) -> Member:
        """A new worker."""
        ...

    def listen(self, members: Sequence[Member], seconds: float | None) -> Iterable[Member]:
        """Wait until some say something or die, for that many seconds at most; without a limit if None."""
        ...


class Pool:
    """So many workers of a crew, and the units they have."""

    def __init__(self, count: int, context: WorkerContext, crew: Crew) -> None:
        self._count, self._context, self._crew = count, context, crew
        self._members: list[Member] = []
        self._again: deque[Unit] = deque()  # units of workers that are gone
        self._alone: set[Unit] = set()  # units of which a worker may have died: whoever has one has no other
        self._deaths: Counter[Unit | int] = Counter()  # of workers at a unit, or while loading the network of a pair
        self._losses: Counter[Unit] = Counter()  # of machines
        self._broken: dict[int, str] = {}  # pairs whose network kills workers
        self._starts = 0
        self._exhausted = False

    def run(self, units: Iterable[Unit]) -> Iterator[Outcome]:
        """Compute units.

        Args:
            units: The units, taken as there is room.

        Yields:
            The outcome of each, in the order in which they are ready.
        """
        source = iter(units)
        try:
            while True:
                yield from self._hand_out(source)
                if self._exhausted and not self._again and not any(member.units for member in self._members):
                    return
                yield from self._collect()
        except KeyboardInterrupt:
            for member in self._members:  # what has been computed and not been collected
                yield from member.outcomes()
            raise
        finally:
            self._end()

    def _hand_out(self, source: Iterator[Unit]) -> Iterator[Outcome]:
        """Give the workers that run their share, and start others while there is something for them to do."""
        for depth in range(1, _AHEAD + 1):
            for member in self._members:
                if member.started and len(member.units) < depth and self._alone.isdisjoint(member.units):
                    unit = yield from self._next(source)
                    if unit is None:
                        return
                    if (unit in self._alone and member.units) or not member.take(unit):
                        self._again.appendleft(unit)
        ahead: list[Unit] = []
        while len(self._members) < self._count:
            unit = yield from self._next(source)
            if unit is None:
                break
            ahead.append(unit)
            self._members.append(self._crew.recruit())
        self._again.extendleft(reversed(ahead))

    def _next(self, source: Iterator[Unit]) -> Generator[Outcome, None, Unit | None]:
        """The next unit; those of a broken pair that come before it have failed."""
        while True:
            unit = self._again.popleft() if self._again else next(source, None)
            if unit is None:
                self._exhausted = True
            if unit is None or unit.pair not in self._broken:
                return unit
            yield self._context.failure(unit, self._broken[unit.pair])

    def _collect(self) -> Iterator[Outcome]:
        """Wait for workers to say something, to die, or to take too long."""
        patience = max(0.0, min(map(self._due, self._members), default=math.inf) - time.monotonic())
        for member in self._crew.listen(self._members, None if patience == math.inf else patience):
            yield from self._hear(member)
        for member in [member for member in self._members if time.monotonic() >= self._due(member)]:
            yield from self._hear(member)  # it may have answered while others were heard
            if member in self._members and time.monotonic() >= self._due(member):
                member.kill()
                yield from self._replace(member, overdue=True)

    def _hear(self, member: Member) -> Iterator[Outcome]:
        yield from member.outcomes()
        if member.lacks is not None:
            self._do_without(member)
        elif member.dead:
            yield from self._replace(member)
        elif member.started:
            self._starts = 0

    def _due(self, member: Member) -> float:
        """When a worker's time for what it does now is over."""
        limit = self._context.unit_timeout
        return member.since + limit if limit is not None and member.units else math.inf

    def _do_without(self, member: Member) -> None:
        """A machine that lacks something gets no more work: the others have it, or the run ends."""
        self._retire(member)
        self._count -= 1
        if not self._count:
            raise InputError(member.lacks)
        warnings.warn(f"{member.lacks} The run goes on without this worker.", stacklevel=2)

    def _retire(self, member: Member) -> Ending:
        """Take a worker's units back."""
        self._members.remove(member)
        self._again.extendleft(reversed(member.units))
        return member.end()

    def _replace(self, member: Member, overdue: bool = False) -> Iterator[Outcome]:
        """Take a dead worker's units back. The first is the one it died of, where results come in order."""
        ending = self._retire(member)
        if not member.started and not ending.lost:
            self._starts += 1
            if self._starts >= _STARTS:
                raise InputError(f"The workers end before they start ({ending.reason}); {self._crew.advice}.")
            return
        if not member.units:
            return
        unit = self._again[0]
        if ending.lost:
            self._losses[unit] += 1
            if self._losses[unit] > _NODES:
                yield self._failed(f"Machines were lost while they computed this ({ending.reason}).", _NODES + 1)
        elif not member.orderly and not overdue and unit.pair in member.loaded and len(member.units) > 1:
            self._alone.update(member.units)
        elif unit.pair not in member.loaded:
            self._deaths[unit.pair] += 1
            if self._deaths[unit.pair] > self._context.retries:
                self._broken[unit.pair] = self._in_words(ending, overdue, self._context.networks[unit.pair].model)
        else:
            self._deaths[unit] += 1
            if self._deaths[unit] > self._context.retries:
                yield self._failed(self._in_words(ending, overdue), self._deaths[unit])

    def _failed(self, reason: str, attempts: int) -> Outcome:
        """The first of the units that wait has failed for good."""
        return self._context.failure(self._again.popleft(), reason, attempts)

    def _in_words(self, ending: Ending, overdue: bool, model: str | None = None) -> str:
        reason, advice = ending.reason, "see that there is enough memory, or use fewer workers"
        if overdue:
            reason = f"it took longer than {self._context.unit_timeout:g} s, the time-out of a unit"
            advice = "allow more with --unit-timeout"
        what = "computed this" if model is None else f"loaded the network '{model}'"
        return f"A worker process ended while it {what} ({reason}); {advice}."

    def _end(self) -> None:
        try:
            for member in self._members:
                member.dismiss()
            for member in self._members:
                member.end()
        except BaseException:  # Ctrl-C while they end: whoever is still there ends now
            for member in self._members:
                member.kill()
            for member in self._members:
                member.end()
            raise
