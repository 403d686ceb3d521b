"""``fei bench``: experiments from plan to report."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fei.cli import _options as opt
from fei.cli._bench_drive import chosen_engine, drive, resume_command, say_difference, say_status, status_document
from fei.cli._common import FAILURE, print_json, print_table, say

app = typer.Typer(
    name="bench",
    help="Run experiments that can be interrupted: a plan, its results, tables and figures.",
    epilog="Start with: fei bench preset table-external --quick --out plan.toml",
    no_args_is_help=True,
)

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run.", show_default=False)]
EngineOption = Annotated[str, typer.Option(metavar="NAME", help="Who computes: local or ray.")]
WorkersOption = Annotated[
    int, typer.Option(min=0, help="Processes; 0 to compute in this one, with ray as many as there is room for.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Of a Ray cluster; this machine alone if not given.", show_default=False),
]
GpusOption = Annotated[
    float | None,
    typer.Option("--gpus-per-worker", min=0, help="With ray: GPUs of each worker, 0.5 to share.", show_default=False),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--unit-timeout", metavar="SECONDS", help="End a worker that takes longer.", show_default=False),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Torch's threads in each; the processors divided if not given, with ray 1.", show_default=False
    ),
]
ReuseOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RUN|FILE", help="Another run, or an export, whose results are taken over.", show_default=False
    ),
]
LinesOption = Annotated[bool, typer.Option("--json", help="Print JSON lines: progress, and a summary at the end.")]


@app.command()
def run(
    plan: Annotated[str, typer.Argument(metavar="PLAN.toml", help="What to compute.", show_default=False)],
    out: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Folder for the results; runs/NAME of the plan's file if not given."),
    ] = None,
    engine: EngineOption = "local",
    workers: WorkersOption = 0,
    threads: ThreadsOption = None,
    device: opt.Device = "auto",
    address: AddressOption = None,
    gpus: GpusOption = None,
    unit_timeout: TimeoutOption = None,
    reuse: ReuseOption = None,
    as_json: LinesOption = False,
    debug: opt.Debug = False,
) -> None:
    """Compute what a plan asks for; in a folder where that was begun, what is missing."""
    from fei.bench.engine import runner
    from fei.bench.plan import load_plan

    chosen, folder = load_plan(plan), Path(out) if out is not None else Path("runs") / Path(plan).stem
    options: dict[str, Any] = {
        "engine": chosen_engine(engine, workers, threads, device, address, gpus),
        "device": device,
        "unit_timeout": unit_timeout,
        "reuse": reuse or [],
    }
    drive(folder, as_json, lambda show: runner.run(chosen, folder, **options, on_progress=show))


@app.command()
def resume(
    folder: RunArgument,
    plan: Annotated[
        str | None,
        typer.Option(
            metavar="NEW.toml", help="A changed plan for the run; shared results are kept.", show_default=False
        ),
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try units that failed again.")] = False,
    engine: EngineOption = "local",
    workers: WorkersOption = 0,
    threads: ThreadsOption = None,
    device: opt.Device = "auto",
    address: AddressOption = None,
    gpus: GpusOption = None,
    unit_timeout: TimeoutOption = None,
    reuse: ReuseOption = None,
    as_json: LinesOption = False,
    debug: opt.Debug = False,
) -> None:
    """Go on with a run that was interrupted, or with a changed plan."""
    from fei.bench.engine import runner
    from fei.bench.plan import load_plan

    changed = None if plan is None else load_plan(plan)
    options: dict[str, Any] = {
        "engine": chosen_engine(engine, workers, threads, device, address, gpus),
        "device": device,
        "unit_timeout": unit_timeout,
        "reuse": reuse or [],
    }
    drive(
        Path(folder),
        as_json,
        lambda show: runner.resume(Path(folder), changed, **options, retry_failed=retry_failed, on_progress=show),
    )


@app.command()
def status(folder: RunArgument, as_json: opt.Json = False, debug: opt.Debug = False) -> None:
    """Tell how far a run is, also while it goes on."""
    from fei.bench.store import Store

    with Store.open(Path(folder), readonly=True) as store:
        document = {"schema": 1, "run": folder, **status_document(store)}
    if as_json:
        print_json(document)
    else:
        say_status(document)


@app.command()
def report(
    folder: RunArgument,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder for tables and figures; RUN/report if not given.", show_default=False),
    ] = None,
    html: Annotated[
        bool, typer.Option("--html", help="Write report.html as well: one page to sort, filter and look into it all.")
    ] = False,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write the tables and figures of a run, also of one that is not finished."""
    from fei.bench.report import write_report
    from fei.bench.report.numbers import Numbers
    from fei.bench.report.page import write_bench_page
    from fei.bench.store import Store

    target = Path(out) if out is not None else Path(folder) / "report"
    # a network that is loaded for its pictures may print what is no result
    with Store.open(Path(folder), readonly=True) as store, contextlib.redirect_stdout(sys.stderr):
        numbers = Numbers(store)
        files = [str(file) for file in write_report(store, target, numbers)]
        page = str(write_bench_page(target / "report.html", store, numbers)) if html else None
    if as_json:
        print_json({"schema": 1, "run": folder, "report": files[0], "files": files, "page": page})
        return
    say(f"{files[0]}, with {len(files) - 1} files of tables and figures")
    if page is not None:
        say(f"Explore: {page}")


@app.command()
def preset(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A table or figure; a list of them without.", show_default=False),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few images and steps, to try it out.")] = False,
    model: Annotated[
        list[str] | None, typer.Option(metavar="SPEC", help="A network instead of the paper's.", show_default=False)
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(metavar="SPEC", help="A data set instead of the paper's.", show_default=False)
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where to; printed if not given.", show_default=False)
    ] = None,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write the plan of one of the paper's tables or figures."""
    from fei.bench.plan import presets

    if name is None:
        known = {each: presets.describe(each) for each in presets.names()}
        if as_json:
            print_json({"presets": known})
        else:
            print_table(["preset", "what it is"], [[*each] for each in known.items()])
        return
    text = presets.preset(name, quick=quick, models=model or [], data=data or [])
    if out is not None:
        _write(Path(out), text)
    if as_json:
        print_json({"schema": 1, "preset": name, "file": out, "plan": text})
    elif out is None:
        typer.echo(text, nl=False)
    else:
        say(f"{out}\nRun it:  {shlex.join(['fei', 'bench', 'run', out])}")


@app.command()
def show(
    folder: RunArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A unit's key, or its first digits.", show_default=False)],
    debug: opt.Debug = False,
) -> None:
    """Print all that a run knows of one unit, as JSON that 'fei reproduce' takes."""
    from fei.bench.store import Store
    from fei.cli._bench_unit import unit_document

    with Store.open(Path(folder), readonly=True) as store:
        print_json(unit_document(store, key))


@app.command()
def export(
    folder: RunArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file that ends in .parquet or .csv.", show_default=False)
    ],
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write the scores of a run as one flat table."""
    from fei.bench.store import Store
    from fei.bench.store.exchange import export as write

    with Store.open(Path(folder), readonly=True) as store:
        rows = write(store, file)
    if as_json:
        print_json({"schema": 1, "run": folder, "file": file, "rows": rows})
    else:
        say(f"{file}: {rows} rows")


@app.command()
def diff(
    first: RunArgument,
    second: Annotated[str, typer.Argument(metavar="OTHER", help="The folder of another.", show_default=False)],
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Tell which numbers of two runs differ, and by how much; the exit code is 1 if any does."""
    from dataclasses import asdict

    from fei.bench.store import Store
    from fei.bench.store.exchange import diff as compare

    with Store.open(Path(first), readonly=True) as one, Store.open(Path(second), readonly=True) as other:
        found = compare(one, other)
    if as_json:
        print_json({"schema": 1, "first": first, "second": second, "same": found.same, **asdict(found)})
    else:
        say_difference(found, first, second)
    raise typer.Exit(0 if found.same else FAILURE)


@app.command()
def merge(
    first: RunArgument,
    second: Annotated[str, typer.Argument(metavar="OTHER", help="The folder of another.", show_default=False)],
    out: Annotated[str, typer.Option(metavar="RUN", help="Folder for both together.", show_default=False)],
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Make one run of two: the rows and columns of both, with all that either has computed."""
    from fei.bench.store import Store
    from fei.bench.store.exchange import merge as join

    with (
        Store.open(Path(first), readonly=True) as one,
        Store.open(Path(second), readonly=True) as other,
        join(one, other, out) as merged,
    ):
        counts = merged.counts()
    if as_json:
        print_json({"schema": 1, "run": out, **counts})
        return
    say(f"{out}: {counts['done']} units done, {counts['failed']} failed")
    say(f"Compute what neither has:  {resume_command(Path(out))}")


def _write(file: Path, text: str) -> None:
    """Write a new file; one that is there may have been edited."""
    from fei.errors import InputError

    try:
        with file.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise InputError(f"'{file}' is there already; give another name with --out.") from error
    except OSError as error:
        raise InputError(f"'{file}' cannot be written ({error.strerror}); choose another place with --out.") from error
