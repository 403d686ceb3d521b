"""The process in which the fuzzer's cases run, and what is asked of each: the oracle.

A case passes if the public function returns, or refuses with an `FEIError` of one line; if nothing was run, connected
to or written outside the case's folder; and if it stayed within its memory and its time. Whoever started the process
watches it for hanging and for dying, see `fuzz.py`.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Protocol

from fei.errors import FEIError

MEBIBYTE = 1 << 20
ADDRESS_SPACE = 6 << 30
"""Of the whole process; what goes beyond is refused by the system, so that a bomb hurts the fuzzer alone."""

MAX_CPU_SECONDS = 10.0
"""Of one case."""

PRECIOUS = "precious.npy"
"""A file above the folder of a case, which must stay as it is."""

_DEPTH = "a/b/c"  # how far the folder of a case lies below what is searched for strays
# What there is around the folder of a case, by the folder it is in.
_SKELETON: dict[str, set[str]] = {
    "": {"a", "config", "cwd", "tmp", "torch"}, "a": {"b"}, "a/b": {"c", PRECIOUS}, "a/b/c": {"case"}, "cwd": set(),
    "tmp": set(),
}  # fmt: skip
_MINIMISER_TRIES = 150
_RUNS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "subprocess.Popen", "pty.spawn")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Case:
    """What is given to a reader.

    Attributes:
        files: Content by path, inside the folder of the case.
        victim: The file that was damaged, which is made small where something was found.
        ask: What the target's `read` is told.
        links: Where links lead, by path.
    """

    files: Mapping[str, bytes]
    victim: str
    ask: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)


class Target(Protocol):
    """A kind of file.

    Attributes:
        name: What it is called.
        max_bytes: Memory that one case may take beside what the process has.
    """

    name: str
    max_bytes: int

    def valid(self) -> Sequence[Case]:
        """Cases that must be accepted."""

    def make(self, rng: Random) -> Case:
        """A damaged case."""

    def read(self, folder: Path, ask: tuple[str, ...]) -> None:
        """Give the files in a folder to the public functions that read such files."""


@dataclass
class Verdict:
    """What came of a case.

    Attributes:
        number: Which one.
        accepted: Whether it was read; otherwise it was refused with a sentence.
        seconds: Processor time.
        peak: Bytes it took at most.
        finding: What is wrong, if anything, in one line.
        details: A traceback, where there is one.
        files: The files of a finding, the victim made small.
    """

    number: int
    accepted: bool
    seconds: float
    peak: int
    finding: str | None = None
    details: str = ""
    files: dict[str, bytes] = field(default_factory=dict)


class Watch:
    """An audit hook that notes programs being run, connections, and files opened for writing outside some folders."""

    def __init__(self) -> None:
        self.folders: tuple[str, ...] | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folders is None:
            return
        if event in _RUNS or event == "socket.connect":
            self.seen.append(f"{event} {arguments[:2]!r}"[:200])
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES:
            path = arguments[0]
            if isinstance(path, (str, bytes, os.PathLike)):
                real = os.path.realpath(os.fsdecode(path))
                if not real.startswith(self.folders) and real != os.devnull:
                    self.seen.append(f"'{real}' was opened for writing")


class Judge:
    """Runs cases of one target in a folder of its own."""

    def __init__(self, target: Target, root: Path, watch: Watch, max_seconds: float = MAX_CPU_SECONDS) -> None:
        self._target, self._root, self._watch, self._max_seconds = target, root, watch, max_seconds
        self._folder = root / _DEPTH / "case"
        self._folder.mkdir(parents=True)
        self._precious = root / "a" / "b" / PRECIOUS
        self._precious.write_bytes(b"precious")
        (root / "tmp").mkdir()
        (root / "cwd").mkdir()
        os.environ["FEI_CONFIG"] = str(root / "config")
        own = (self._folder, root / "tmp", root / "config")
        self._own = tuple(os.path.realpath(place) + os.sep for place in own)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(root / "torch")  # else torch makes one among the temporary files
        tempfile.tempdir = str(root / "tmp")
        os.chdir(root / "cwd")

    def accept_valid(self) -> None:
        """See that what is damaged later is accepted whole, and so import all that is needed."""
        for case in self._target.valid():
            self._lay_out(case)
            self._target.read(self._folder, case.ask)

    def judge(self, seed: int, number: int) -> Verdict:
        """Run one case."""
        case = make_case(self._target, seed, number)
        verdict = self._run(case, number)
        if verdict.finding is not None:
            verdict.files = dict(self._smallest(case, verdict).files)
        return verdict

    def _run(self, case: Case, number: int) -> Verdict:
        self._lay_out(case)
        self._watch.seen.clear()
        before, start = _reset_peak(), time.process_time()
        self._watch.folders = self._own
        accepted, finding, details = False, None, ""
        try:
            self._target.read(self._folder, case.ask)
            accepted = True
        except FEIError as error:
            finding = wrong_words(str(error))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            finding = f"{type(error).__name__} at {_place(error)}: {str(error)[:200]}"
            details = traceback.format_exc(limit=-12)
        finally:
            self._watch.folders = None
        verdict = Verdict(number, accepted, time.process_time() - start, max(0, _peak() - before), finding, details)
        verdict.finding = self._outside() or self._excess(verdict) or finding
        return verdict

    def _outside(self) -> str | None:
        """What the case did besides reading; what it left is removed."""
        found = [f"the file made the process act: {what}" for what in self._watch.seen]
        if not self._precious.is_file() or self._precious.read_bytes() != b"precious":
            found.append("a file outside the case's folder was changed or deleted")
            self._precious.write_bytes(b"precious")
        for place, own in _SKELETON.items():
            for stray in sorted(set(os.listdir(self._root / place)) - own):
                path = self._root / place / stray
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                what = (
                    "a temporary file was left" if place == "tmp" else "something was written outside the case's folder"
                )
                found.append(f"{what}: {place}/{stray}")
        return found[0] if found else None

    def _excess(self, verdict: Verdict) -> str | None:
        if verdict.peak > self._target.max_bytes:
            return f"it took {verdict.peak // MEBIBYTE} MiB of memory, more than {self._target.max_bytes // MEBIBYTE}"
        if verdict.seconds > self._max_seconds:
            return f"it took {verdict.seconds:.1f} s of processor time, more than {self._max_seconds:g}"
        return None

    def _lay_out(self, case: Case) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        for name, content in case.files.items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self._folder.mkdir(exist_ok=True)
        for name, target in case.links.items():
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / name).symlink_to(target)

    def _smallest(self, case: Case, verdict: Verdict) -> Case:
        """The case with as little of its victim as still shows the same finding; what is slow stays as it is."""
        kind = (verdict.finding or "").partition(":")[0]
        tries, step = _MINIMISER_TRIES, max(1, len(case.files.get(case.victim, b"")) // 2)
        while case.victim in case.files and tries and step and verdict.seconds < 0.05 and verdict.peak < 64 * MEBIBYTE:
            content, place, shrunk = case.files[case.victim], 0, False
            while tries and place < len(content):
                smaller = content[:place] + content[place + step :]
                candidate = replace(case, files={**case.files, case.victim: smaller})
                tries -= 1
                if (self._run(candidate, verdict.number).finding or "").partition(":")[0] == kind:
                    case, content, shrunk = candidate, smaller, True
                else:
                    place += step
            step = step if shrunk else step // 2
        return case


def make_case(target: Target, seed: int, number: int) -> Case:
    """The case of a number: the same for the same target and seed, always."""
    return target.make(Random(f"{target.name} {seed} {number}"))


def wrong_words(message: str) -> str | None:
    """What is wrong with the message of an error: it must be one line of printable text, and no traceback."""
    if not message.strip():
        return "an error without words"
    if "Traceback" in message:
        return f"a traceback in a message: {message[:200]!r}"
    if not message.isprintable():
        return f"a message that is not one line of printable text: {message[:200]!r}"
    return f"a message of {len(message)} characters: {message[:200]!r}" if len(message) > 1500 else None


def work(connection: Connection, target: Target, seed: int, root: str, max_seconds: float) -> None:
    """Judge cases, whose numbers come through a pipe, until None comes; the verdicts go back."""
    sys.dont_write_bytecode = True
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    judge = Judge(target, Path(root), Watch(), max_seconds)
    judge.accept_valid()
    _limit_memory()
    connection.send(None)
    os.dup2(nowhere, 2)  # what C libraries say of damaged files is not for the terminal
    while (numbers := connection.recv()) is not None:
        for number in numbers:
            connection.send(judge.judge(seed, number))


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _reset_peak() -> int:
    """Forget the most memory that the process had (Linux), and tell what it has."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
        file.write("5")
    return _status("VmRSS:")


def _peak() -> int:
    return _status("VmHWM:")


def _status(name: str) -> int:
    with contextlib.suppress(OSError), open("/proc/self/status", "rb") as file:
        content = file.read()
        return int(content[content.index(name.encode()) + len(name) :].split(None, 1)[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _place(error: BaseException) -> str:
    """Where in fei an exception came from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if f"{os.sep}fei{os.sep}" in frame.filename] or frames
    return f"{Path(own[-1].filename).name} {own[-1].name}"
