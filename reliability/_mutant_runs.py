"""Running tests against a mutant, in a fork of a process that has everything imported.

A change inside a function is made by giving the function, wherever it is referred to, the code object compiled from
the changed source: the fork starts where pytest has collected the tests, and pays for nothing but the tests it runs. A
change elsewhere (a table, a decorator, a default) happens when the module is imported: the fork starts where the
package is not imported yet, and imports the changed source in place of the file.

What is measured is processor time, so that a busy machine makes no timeouts.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import itertools
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _mutants import Mutant
from hypothesis import Phase, settings

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "src" / "fei"
_MEMORY = 6 * 2**30  # bytes that a mutant may take beyond what the process has already
_BUDGET = 3.0  # processor seconds for the quick tests together; the others are tried on who survives these
_PATIENCE = 1800  # seconds for a mutant that waits for something, using no processor
# real networks are not what a small fault needs to be seen by; assertions of plugins that were imported before pytest
# started are not rewritten, which is no matter here
_OPTIONS = ["-q", "-p", "no:cacheprovider", "-m", "not needs_assets"]
_OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]


@dataclass(frozen=True)
class Outcome:
    """How tests ended: "passed", "failed" or "timeout"; by which test; processor seconds in all and for each test."""

    end: str
    by: str = ""
    seconds: float = 0.0
    durations: dict[str, float] = field(default_factory=dict)


Report = Callable[[Mutant, Outcome], None]
Result = tuple[str, str, dict[str, float]]  # the first, second and last of an outcome


def module_name(file: str) -> str:
    """fei.core.clipgrad for core/clipgrad.py."""
    return ".".join(["fei", *Path(file).with_suffix("").parts])


def warm_up(tests: Sequence[str]) -> None:
    """Import what the tests import, then forget the package and the tests: a fork imports these anew, changed."""
    sys.path[:0] = [str(PROJECT / "src"), str(PROJECT / "tests")]
    for test in sorted(set(tests)):
        spec = importlib.util.spec_from_file_location(f"_warm_{Path(test).stem}", PROJECT / test)
        if spec is None or spec.loader is None:
            raise SystemExit(f"{test} is no Python file")
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    own = {"fei", *(path.stem for path in (PROJECT / "tests").glob("*.py"))}
    for name in list(sys.modules):
        if name.split(".")[0] in own:
            del sys.modules[name]


def run_all(tests: Sequence[str], mutants: Sequence[Mutant], report: Report) -> Outcome:
    """Run the tests on the unchanged source, then, if they pass, on each mutant; what the first run came to.

    Who survives with the code of a function exchanged is tried once more with its whole module imported: a function
    that was called while the module was imported has done its work before.
    """
    to_import = [mutant for mutant in mutants if not mutant.in_function]

    def hear(mutant: Mutant, outcome: Outcome) -> None:
        if outcome.end == "passed":
            to_import.append(mutant)
        else:
            report(mutant, outcome)

    baseline = _forked_session(tests, [m for m in mutants if m.in_function], hear)
    if baseline.end == "passed" and baseline.durations:
        for mutant in to_import:
            for part in _parts(list(baseline.durations), baseline.durations):
                outcome = _forked(lambda: _session(tests, part, mutant), _limit_of(part))  # noqa: B023
                if outcome.end != "passed":
                    break
            report(mutant, outcome)
    return baseline


class _Items:
    """A pytest plugin: some tests, in their order, with reproducible examples, until one fails; and notes."""

    def __init__(self, chosen: dict[str, float]) -> None:
        self.chosen, self.durations, self.failed = chosen, dict[str, float](), ""

    def pytest_collection(self) -> None:
        phases = [Phase.explicit, Phase.generate]
        settings.register_profile(
            "mutation", max_examples=30, deadline=None, derandomize=True, database=None, phases=phases
        )
        settings.load_profile("mutation")  # before the tests are imported, which is when they take their settings

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not session.testsfailed:
            self.run(session.items)
        return True

    def run(self, items: list[pytest.Item]) -> None:
        by_name = {item.nodeid: item for item in items}
        self.try_all([by_name[name] for name in self.chosen])

    def try_all(self, items: list[pytest.Item]) -> None:
        for item, following in zip(items, [*items[1:], None], strict=True):
            start = _processor_seconds()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self.durations[item.nodeid] = _processor_seconds() - start
            if self.failed:
                break

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def result(self, code: int = 0) -> Result:
        if code == pytest.ExitCode.OK and not self.failed:
            return "passed", "", self.durations
        return "failed", self.failed or f"collection, pytest's exit code {code}", self.durations


def _parts(names: list[str], known: dict[str, float]) -> list[dict[str, float]]:
    """Tests with the time they take, the quickest first: as many as fit the budget, and the others."""
    ordered = sorted(names, key=lambda name: known[name])
    taken = itertools.accumulate(known[name] for name in ordered)
    quick = sum(seconds <= _BUDGET for seconds in taken)
    return [{name: known[name] for name in part} for part in (ordered[:quick], ordered[quick:]) if part]


def _limit_of(part: dict[str, float]) -> float:
    """Processor seconds after which a mutant is given up."""
    return 4 + 3 * max(_BUDGET, sum(part.values()))


def _session(tests: Sequence[str], chosen: dict[str, float], mutant: Mutant) -> Result:
    """Import a mutant, collect and run: all within a fork."""
    sys.meta_path.insert(0, _Swapped(mutant))
    plugin = _Items(chosen)
    code = pytest.main([*_OPTIONS, *tests], plugins=[plugin])
    return plugin.result(int(code))


class _Mutating(_Items):
    """Collects once, and forks where the tests would be run: for the unchanged source, and for each mutant."""

    def __init__(self, mutants: Sequence[Mutant], writing: int) -> None:
        super().__init__({})
        self.mutants, self.writing = mutants, writing

    def run(self, items: list[pytest.Item]) -> None:
        gc.collect()
        gc.freeze()  # or a fork would copy all of the memory as soon as it looks for garbage
        baseline = _forked(lambda: self._try(None, items), _PATIENCE)
        self._tell(baseline)
        if baseline.end == "passed" and baseline.durations:
            by_name = {item.nodeid: item for item in items}
            parts = _parts(list(by_name), baseline.durations)
            for mutant in self.mutants:
                for part in parts:
                    outcome = _forked(lambda: self._try(mutant, [by_name[n] for n in part]), _limit_of(part))  # noqa: B023
                    if outcome.end != "passed":
                        break
                self._tell(outcome)

    def _try(self, mutant: Mutant | None, items: list[pytest.Item]) -> Result:
        if mutant is not None:
            swap_code(mutant)
        self.try_all(items)
        return self.result()

    def _tell(self, outcome: Outcome) -> None:
        with os.fdopen(os.dup(self.writing), "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps(vars(outcome)) + "\n")


def _forked_session(tests: Sequence[str], mutants: Sequence[Mutant], report: Report) -> Outcome:
    """A session of pytest in a fork, which forks for each mutant, and tells as it goes."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with _last_act():
            _silence()
            pytest.main([*_OPTIONS, *tests], plugins=[_Mutating(mutants, writing)])
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        lines = (Outcome(**json.loads(line)) for line in pipe)
        baseline = next(lines, Outcome("failed", "collection"))
        told = 0
        for mutant, outcome in zip(mutants, lines, strict=False):
            report(mutant, outcome)
            told += 1
    os.waitpid(child, 0)
    if baseline.end == "passed" and told != len(mutants):
        raise SystemExit(f"the run of {', '.join(tests)} ended after {told} of {len(mutants)} mutants")
    return baseline


def swap_code(mutant: Mutant) -> None:
    """Give a function of an imported module the code that the mutant's source has for it."""
    module = sys.modules[module_name(mutant.file)]
    code = compile(mutant.source, module.__file__ or "", "exec", dont_inherit=True)
    owner: Any = module
    for name in mutant.scope.split("."):
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)
        owner = inspect.getattr_static(owner, name)
        bare: Any = owner.fget if isinstance(owner, property) else owner
        function = inspect.unwrap(bare)
        if isinstance(function, FunctionType):  # what is inside it, is inside its code
            function.__code__ = code
            return
    raise LookupError(f"{mutant.file} has no function {mutant.scope}")


class _Swapped(importlib.abc.MetaPathFinder):
    """Imports one module from a mutant's source instead of its file."""

    def __init__(self, mutant: Mutant) -> None:
        self.name, self.path, self.source = module_name(mutant.file), PACKAGE / mutant.file, mutant.source

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = _TextLoader(fullname, str(self.path))
        loader.source = self.source
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader)


class _TextLoader(importlib.machinery.SourceFileLoader):
    source: str

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, self.path, "exec", dont_inherit=True)


def _forked(act: Callable[[], Result], limit: float) -> Outcome:
    """What `act` says in a fork, if it does so within the limit of processor seconds."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with _last_act():
            os.setpgid(0, 0)
            _limit(limit)
            _silence()
            os.write(writing, json.dumps(act()).encode())
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        if not select.select([pipe], [], [], _PATIENCE)[0]:
            os.killpg(child, signal.SIGKILL)
        said = pipe.read()
    _, status, usage = os.wait4(child, 0)
    seconds = usage.ru_utime + usage.ru_stime
    if said:
        end, by, durations = json.loads(said)
        return Outcome(end, by, seconds, durations)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return Outcome("timeout", "", seconds)
    return Outcome("failed", "crash", seconds)


@contextlib.contextmanager
def _last_act() -> Any:
    """A fork never returns to what its parent was doing."""
    try:
        yield
    finally:
        os._exit(0)


def _limit(seconds: float) -> None:
    used = _processor_seconds()
    soft = int(used + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 5))
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _MEMORY,) * 2)


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _silence() -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
