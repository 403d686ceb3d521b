"""What a step of an audit takes: guessed from what is known of a method, then from what its steps took."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from typing import Any

from fei.auditing.measured import Measured
from fei.errors import InputError
from fei.methods import describe
from fei.progress import span

_MAPS = {"map": 2, "class": 2, "weights": 1, "black": 1}  # how many maps of the method are made in a step
_ROWS = {"score": 22, "survey": 18, "weights": 6, "map": 2}  # and the passes besides
_UNKNOWN, _MANY = 100.0, 1000.0  # passes of a method that does not say how many, or one for each channel or place
_BACKWARDS = 1  # a pass backwards, in passes forwards: 0.2 to 1.9 in maps of three networks
_REMEMBERED = 5
_UNITS = ((1e-3, 1e6, "µs"), (0.1, 1e3, "ms"))  # below how many seconds they are used


class Costs:
    """Seconds of each step of each method.

    Args:
        pass_seconds: What one image through the network takes.
        options: Of each method, by name.
        measured: What its maps took is read there.
    """

    def __init__(self, pass_seconds: float, options: dict[str, dict[str, Any]], measured: Measured) -> None:
        self._pass, self._measured = pass_seconds, measured
        self._passes = {name: passes(name, given) for name, given in options.items()}
        self._took: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))
        self._ratios: deque[float] = deque(maxlen=4 * _REMEMBERED)

    def learn(self, method: str, step: str, seconds: float) -> None:
        """Note what a step took; scores take what they take whatever the method."""
        if step in _MAPS:
            self._ratios.append(seconds / max(self._guess(method, step), 1e-9))
        self._took[method if step in _MAPS else "", step].append(seconds)

    def _guess(self, method: str, step: str) -> float:
        maps = self._passes.get(method, _UNKNOWN) if method else 0.0
        return (_MAPS.get(step, 0) * maps + _ROWS.get(step, 0)) * self._pass

    @property
    def _pace(self) -> float:
        """How much longer maps take than was guessed."""
        return sorted(self._ratios)[len(self._ratios) // 2] if self._ratios else 1.0

    def of_map(self, method: str) -> float:
        """Seconds of one map."""
        known = self._measured.cost(method)
        return self._passes.get(method, _UNKNOWN) * self._pass * self._pace if known is None else known

    def of(self, method: str, step: str) -> float:
        """Seconds of a step."""
        if took := self._took.get((method if step in _MAPS else "", step)):
            return sum(took) / len(took)
        # what makes maps slower than guessed need not do so for rows; what makes them quicker does
        return _MAPS.get(step, 0) * self.of_map(method) + _ROWS.get(step, 0) * self._pass * min(1.0, self._pace)

    def known(self, step: str) -> bool:
        """Whether a step that does not depend on the method has been timed."""
        return ("", step) in self._took


def passes(method: str, options: dict[str, Any]) -> float:
    """About how many passes forwards a map takes by the method's own word."""
    try:
        described = describe(method).cost
    except InputError:  # code from elsewhere
        described = ""
    if heads := re.fullmatch(r"(\d+) \+ (?:(\d+) )?heads?", described):  # a head is less than a pass
        return float(heads[1]) + float(heads[2] or 1)
    said = re.fullmatch(r"(\d+) \+ (\d+)", described)
    if said is None:
        return _MANY if re.search("channels|per mask|per point", described) else _UNKNOWN
    forwards, backwards = map(int, said.groups())
    scale = 1.0
    if "steps" in options and forwards > 1:
        scale = float(options["steps"]) / 20
    elif "samples" in options and forwards > 1:
        scale = float(options["samples"]) / forwards
    return max(1.0, (forwards + _BACKWARDS * backwards) * scale)


def short(seconds: float) -> str:
    """A time with its first digits, as it matters for what takes less than a second: "740 µs", "3.4 ms", "1.2 s"."""
    for below, times, unit in _UNITS:
        if seconds < below:
            return f"{float(f'{seconds * times:.2g}'):g} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else span(seconds)
