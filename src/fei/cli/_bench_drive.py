"""What the commands of ``fei bench`` tell: a run as it goes and as it ended, how far it is, how it differs.

Progress is a bar on a terminal, a line now and then elsewhere, and JSON lines for machines.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from fei.cli._common import FAILURE, INTERRUPTED, aside, note, print_table, say

if TYPE_CHECKING:
    from fei.bench.engine.runner import OnProgress, Pace, RunSummary
    from fei.bench.store import Damage, Store
    from fei.bench.store.exchange import Difference

_JSON_SECONDS, _LINE_SECONDS = 1.0, 30.0
_REASONS = 3
_end = os._exit  # while units are computed it is another, see `fei.common.exits`
_STATUS = ("method", "units", "done", "failed")


class Interrupted(Exception):  # noqa: N818
    """Ctrl-C, with a sentence on how to go on; typer would swallow what a KeyboardInterrupt says."""


def drive(folder: Path, as_json: bool, work: Callable[[OnProgress], RunSummary]) -> None:
    """Do the work of a run and tell what came of it; the exit code is 1 if units failed.

    Args:
        folder: The run's folder.
        as_json: Whether to print JSON lines.
        work: What to do; it is given a function to call with the progress.
    """
    from fei.bench.store import Store

    try:
        # what a user's own network prints is not our result
        with (
            shown_progress(as_json) as show,
            aside(),
            ended_by_a_second_interrupt(folder, as_json),
        ):
            summary = work(show)
    except KeyboardInterrupt as error:
        raise Interrupted(f"Interrupted; what is computed is kept, go on with: {resume_command(folder)}") from error
    reasons: list[dict[str, Any]] = []
    if summary.failed:
        with Store.open(folder, readonly=True) as store:
            reasons = _reasons(store)
    if as_json:
        told = {"computed": summary.done, "skipped": summary.skipped, "failed": summary.failed}
        seconds = round(summary.seconds, 3)
        print_line({"schema": 1, "run": str(folder), **told, "seconds": seconds, "reasons": reasons})
    else:
        _say(folder, summary, reasons)
    if summary.failed:
        raise typer.Exit(FAILURE)


@contextlib.contextmanager
def ended_by_a_second_interrupt(folder: Path, as_json: bool) -> Iterator[None]:
    """Within the block the first Ctrl-C is a KeyboardInterrupt, and a second one ends the process at once.

    A commit is whole or not there, so nothing that was committed is lost.
    """
    deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as a shell starts jobs in the background of a script
    if deaf or threading.current_thread() is not threading.main_thread():
        yield
        return
    out = sys.__stdout__
    line = f"Interrupted twice; what was committed is kept, go on with: {resume_command(folder)}"

    def second(*_: object) -> None:
        note(line)
        if as_json and out is not None:
            print_line({"error": line}, out)
            out.flush()
        _end(INTERRUPTED)

    def first(*_: object) -> None:
        signal.signal(signal.SIGINT, second)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def resume_command(folder: Path, *words: str) -> str:
    """The command that goes on with a run."""
    return _command("resume", folder, *words)


def _command(name: str, folder: Path, *words: str) -> str:
    return shlex.join(["fei", "bench", name, str(folder), *words])


def status_document(store: Store) -> dict[str, Any]:
    """How far a run is, as plain data."""
    methods = store.rows(
        "SELECT m.label, count(DISTINCT p.unit), count(DISTINCT CASE WHEN u.status = 'done' THEN p.unit END), "
        "count(DISTINCT CASE WHEN u.status = 'failed' THEN p.unit END) FROM plan_units p "
        "JOIN methods m USING (method) LEFT JOIN units u ON u.key = p.unit GROUP BY p.method ORDER BY p.method"
    )
    return {
        "name": store.plan.name,
        **store.counts(),
        "complete": bool(store.meta("complete")),  # a unit that other runs had in part is there without all its scores
        "methods": [dict(zip(_STATUS, row, strict=True)) for row in methods],
        "reasons": _reasons(store),
    }


def say_status(document: dict[str, Any]) -> None:
    """Tell a person how far a run is."""
    total = sum(document[state] for state in ("done", "failed", "pending"))
    say(f"{document['name']}: {document['done']} of {total} units done, {document['failed']} failed")
    print_table(_STATUS, [[str(method[name]) for name in _STATUS] for method in document["methods"]])
    for reason in document["reasons"]:
        say(f"{reason['units']} × {reason['error']}")
    if not document["complete"]:
        say("" if document["pending"] else "Some of them may lack scores that the plan asks for.\n", end="")
        say(f"Go on with:  {resume_command(Path(document['run']))}")


def say_damage(found: Damage, units: int, folder: Path) -> None:
    """Tell a person what of a run is damaged."""
    if found.none:
        say(f"All that is known of {found.covered} units and {found.kept} maps is as it was written.")
    else:
        say("" if found.plan else "The plan, or the list of its units, is damaged.\n", end="")
        for what, keys in {"unit": found.units, "map": found.maps}.items():
            say("".join(f"The {what} {key} is damaged.\n" for key in keys), end="")
        say("".join(f"The map {key} is missing.\n" for key in found.missing), end="")
        say(f"Compute them again with:  {resume_command(folder)}")
    if units > found.covered:
        say(f"Of {units - found.covered} units nothing is known, since an earlier version wrote them.")


def say_difference(found: Difference, first: str, second: str) -> None:
    """Tell a person how two runs differ."""
    if found.same:
        say(f"The runs agree in all {found.common} scores.")
        return
    say(f"{found.common} scores in both, {found.differing} of them differ.")
    for count, run in ((found.only_first, first), (found.only_second, second)):
        if count:
            say(f"{count} scores are only in {run}.")
    if found.means:
        columns = ["mean over what both have", "first", "second", "difference", "largest"]
        numbers = (("first", ".4g"), ("second", ".4g"), ("difference", "+.2g"), ("largest", ".2g"))
        print_table(columns, [[_name(row), *(_number(row[key], form) for key, form in numbers)] for row in found.means])
        worst = found.largest[0]
        what = "the same computation" if worst["same_unit"] else "another computation by the same names"
        where = f"{_name(worst)}, {worst['item']}, seed {worst['seed']}"
        values = f"{_number(worst['first'], '.6g')} and {_number(worst['second'], '.6g')}"
        say(f"The largest: {where}: {values}, from {what}.")


def _number(value: float | None, form: str) -> str:
    return "none" if value is None else format(value, form)


def _name(row: dict[str, Any]) -> str:
    return ", ".join(str(row[name]) for name in ("pair", "method", "metric", "protocol", "layer") if row[name])


def _reasons(store: Store) -> list[dict[str, Any]]:
    """Why units failed, the most frequent reason first."""
    return [{"error": error, "units": units} for error, units in Counter(store.failed().values()).most_common()]


def _say(folder: Path, summary: RunSummary, reasons: list[dict[str, Any]]) -> None:
    there = f", {summary.skipped} there already" if summary.skipped else ""
    say(f"{folder}: {summary.done} units computed{there}, {in_words(summary.seconds)}")
    if summary.failed:
        note(f"{summary.failed} units failed:")
        for reason in reasons[:_REASONS]:
            note(f"  {reason['units']} × {reason['error']}")
        if len(reasons) > _REASONS:
            note(f"  and {len(reasons) - _REASONS} other reasons: {_command('status', folder)}")
        note(f"Try them again with: {resume_command(folder, '--retry-failed')}")
    say(f"Tables and figures:  {_command('report', folder)}")


@contextlib.contextmanager
def shown_progress(as_json: bool) -> Iterator[OnProgress]:
    """A function to give to a run as `on_progress`."""
    if not as_json and sys.stderr.isatty():
        with _bar() as show:
            yield show
        return
    out, last = sys.stdout, time.monotonic()  # the former is redirected later

    def tell(done: int, failed: int, total: int, pace: Pace) -> None:
        """Tell now and then; the end of short work is left to the summary."""
        nonlocal last
        if time.monotonic() - last < (_JSON_SECONDS if as_json else _LINE_SECONDS):
            return
        last = time.monotonic()
        if as_json:
            left = None if pace.left is None else round(pace.left, 1)
            line = {"done": done, "failed": failed, "total": total, "rate": round(pace.rate, 4), "seconds_left": left}
            print_line(line, out)
        else:
            note(f"{done} of {total} units, {_words(failed, pace)}")

    yield tell


def print_line(document: Any, stream: TextIO | None = None) -> None:
    """Print a JSON document on a line of its own, on standard output if not told otherwise."""
    typer.echo(json.dumps(document, allow_nan=False), file=stream)


def in_words(seconds: float) -> str:
    """A time as people say it, in at most two parts."""
    left = round(seconds)
    words: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count or (unit == "s" and not words):
            words.append(f"{count} {unit}")
    return " ".join(words[:2])


def _words(failed: int, pace: Pace) -> str:
    failures = f"{failed} failed, " if failed else ""
    left = f", {in_words(pace.left)} left" if pace.left is not None else ""
    slow = f"one in {in_words(1 / pace.rate)}" if pace.rate else "no pace yet"
    return f"{failures}{f'{pace.rate:.3g} per second' if pace.rate >= 1 else slow}{left}"


@contextlib.contextmanager
def _bar() -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("looking at networks and images", total=None)

        def show(done: int, failed: int, total: int, pace: Pace) -> None:
            bar.update(task, completed=done + failed, total=total, description=_words(failed, pace))

        yield show
