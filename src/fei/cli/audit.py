"""``fei audit``: which explanation can be trusted on this network?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fei.cli import _options as opt
from fei.cli._bench_drive import Interrupted, in_words
from fei.cli._common import FAILURE, aside, note, print_json, print_table, say
from fei.errors import InputError

if TYPE_CHECKING:
    from fei.auditing import Audit

_JUNIT = "audit.junit.xml"
_FEW = 3


@opt.told
def audit(
    data: Annotated[str, typer.Option(metavar="SPEC", help="Its images: a folder, imagefolder:DIR, imagenet:DIR …")],
    model: opt.Model = opt.MODEL,
    budget: Annotated[str, typer.Option(metavar="TIME", help="How long it may take: 90s, 10m, 1h.")] = "10m",
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…", help="The methods, or patterns such as 'fei*'; all if not given.", show_default=False
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Audit this method alone, beside the controls.", show_default=False),
    ] = None,
    require: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Ask only these questions (class, weights, seed, controls, score, inside, black); exit with 1 if the "
            "method, or else the recommended one, does not pass.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[str, typer.Option(metavar="NAME", help="Where to compute: local or ray.")] = "local",
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0 to compute in this one.")] = 0,
    out: opt.Out = opt.OUT,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    option: opt.Options = None,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Measure which explanations can be trusted on a network, on a sample of its images, within a time.

    Each method is asked whether its map depends on the class and the weights, stays the same with another seed, is
    better than maps that never look at the network, and so on. The answer is ✓, ✗ or ? (cannot tell).

    Writes a report (audit.html, .json, .md) to a folder of the network; the same command goes on where it stopped.
    """
    started = time.monotonic()  # what is imported below takes its time too
    from fei.auditing import audit as run_audit
    from fei.auditing import junit
    from fei.common.files import write_file
    from fei.service import Request

    if method is not None and methods is not None:
        raise InputError("The options --method and --methods contradict each other; give one of them.")
    names = [method] if method is not None else None if methods is None else methods.split(",")
    if names is None and option:
        raise InputError("Options are for methods that are named; add --methods or --method.")
    asked = None if names is None else Request.of(model, names, {}, option or []).methods
    try:
        with aside():
            found = run_audit(
                model, data, budget=budget, methods=None if asked is None else list(asked), options=asked,
                require=require or (), seed=seed, out=out, engine=engine, workers=workers, device=device,
                started=started,
                tell=lambda text: note(f"{in_words(time.monotonic() - started):>9}  {text}"),
            )  # fmt: skip
    except KeyboardInterrupt as error:
        raise Interrupted("Interrupted; what was measured is kept, and the same command goes on with it.") from error
    subject = None if asked is None or method is None else next(iter(asked))
    files = {"report": found.page, "data": found.page.with_suffix(".json"), "text": found.page.with_suffix(".md")}
    if require is not None:
        files["junit"] = write_file(found.folder / _JUNIT, junit(found, subject), what="JUnit report")
    unmet = found.unmet(subject) if require is not None else {}
    named = {name: str(file) for name, file in files.items()}
    if as_json:
        print_json(found.document() | {"unmet": unmet, "files": named})
    else:
        _say_result(found, unmet, subject or found.recommended, named)
    if unmet:
        raise typer.Exit(FAILURE)


def _say_result(found: Audit, unmet: dict[str, str], subject: str | None, files: dict[str, str]) -> None:
    say(" ".join(found.sentences))
    for remark in found.remarks:
        say(remark.sentence)
    names = [question.name for question in found.questions]
    rows = [
        [
            method,
            *(found.table[method, name].mark for name in names),
            _cost(found, method),
            str(found.images_of(method)),
        ]
        for method in found.methods
    ]
    if rows:
        print_table(["method", *names, "per map", "images"], rows)
    say("✓ passes   ✗ fails   ? cannot tell with this many images   – does not apply")
    for line in _left_out(found.left_out):
        note(line)
    for question, why in unmet.items():
        note(f"not met: {subject or 'the recommended method'}, {question}: {why}")
    say(f"{in_words(found.seconds)}, {found.computed} steps computed")
    for file in files.values():
        say(file)


def _left_out(reasons: dict[str, str]) -> list[str]:
    """A line for each of a few methods; of many only the names, since the report has the reasons."""
    if len(reasons) <= _FEW:
        return [f"{name}: {reason}" for name, reason in reasons.items()]
    return [f"{len(reasons)} methods were not measured, the report says why: {', '.join(reasons)}"]


def _cost(found: Audit, method: str) -> str:
    from fei.auditing.costs import short

    seconds: Any = found.measured.cost(method)
    return "–" if seconds is None else short(seconds)
