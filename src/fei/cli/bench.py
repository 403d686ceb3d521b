"""``fei bench``: experiments from plan to report."""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fei.cli import _options as opt
from fei.cli._bench_drive import drive, resume_command, say_damage, say_difference, say_status, status_document
from fei.cli._common import FAILURE, aside, print_json, print_table, say
from fei.common.consent import trusting

if TYPE_CHECKING:
    from fei.bench.store import Store

app = typer.Typer(
    name="bench",
    help="Run experiments that can be interrupted: a plan, its results, tables and figures.",
    epilog="Start with: fei bench preset table-external --quick --out plan.toml",
    no_args_is_help=True,
)

Work = tuple[Path, Callable[..., Any]]
"""The folder of a run, and a function that computes it; see `fei.bench.engine.runner.RunOptions` for its options."""


def _argument(metavar: str, told: str) -> Any:
    return typer.Argument(metavar=metavar, help=told, show_default=False)


def _option(metavar: str | None, told: str, **more: Any) -> Any:
    return typer.Option(metavar=metavar, help=told, show_default=False, **more)


RunArgument = Annotated[str, _argument("RUN", "The folder of a run.")]
OtherArgument = Annotated[str, _argument("OTHER", "The folder of another run.")]
EngineOption = Annotated[str, typer.Option(metavar="NAME", help="Where units are computed: local or ray.")]
WorkersOption = Annotated[int, typer.Option(min=0, help="Processes; 0 to use this one, or with ray as many as fit.")]
ThreadsOption = Annotated[
    int | None, _option(None, "Torch's threads in each; the processors divided if not given, with ray 1.", min=1)
]
AddressOption = Annotated[str | None, _option("HOST:PORT", "A Ray cluster; this machine alone if not given.")]
GpusOption = Annotated[float | None, _option(None, "With ray: GPUs of each worker; 0.5 to share.", min=0)]
TimeoutOption = Annotated[float | None, _option("SECONDS", "End a worker that takes longer for a unit.")]
ReuseOption = Annotated[list[str] | None, _option("RUN|FILE", "Another run or an export to take results from.")]
LinesOption = Annotated[bool, opt.flag("--json", "Print JSON lines: progress, and a summary at the end.")]
PageOption = Annotated[
    bool, opt.flag("--html", "Write report.html as well: one page to sort, filter and look into it all.")
]


def _compute(
    folder: Path,
    work: Callable[..., Any],
    engine: EngineOption = "local",
    workers: WorkersOption = 0,
    threads: ThreadsOption = None,
    device: opt.Device = "auto",
    address: AddressOption = None,
    gpus_per_worker: GpusOption = None,
    unit_timeout: TimeoutOption = None,
    reuse: ReuseOption = None,
    as_json: LinesOption = False,
    debug: opt.Debug = False,
) -> None:
    """Compute a run and tell what came of it."""
    from fei.bench.engine.engines import make_engine
    from fei.errors import InputError

    made = make_engine(engine, workers, threads, address=address, gpus=gpus_per_worker)
    if engine == "ray" and device != "auto":
        raise InputError("With --engine ray the device follows from --gpus-per-worker; leave --device out.")
    options = {"engine": made, "device": device, "unit_timeout": unit_timeout, "reuse": reuse or []}
    drive(folder, as_json, lambda show: work(**options, on_progress=show))


def _computing(command: Callable[..., Work]) -> Callable[..., None]:
    """A command that computes the work it returns, with the options of `_compute` after its own."""
    own = inspect.signature(command, eval_str=True).parameters
    shared = list(inspect.signature(_compute, eval_str=True).parameters.values())[2:]

    @functools.wraps(command)
    def called(**given: Any) -> None:
        folder, work = command(**{name: given.pop(name) for name in own})
        _compute(folder, work, **given)

    parameters = [*own.values(), *shared]
    vars(called)["__signature__"] = inspect.Signature(parameters)
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


@app.command()
@_computing
def run(
    plan: Annotated[str, _argument("PLAN.toml", "What to compute.")],
    out: Annotated[str | None, _option("RUN", "Folder for the results; runs/PLAN if not given.")] = None,
) -> Work:
    """Compute what a plan asks for; in a folder where that was begun, what is missing."""
    from fei.bench.engine import runner
    from fei.bench.plan import load_plan

    chosen, folder = load_plan(plan), Path(out) if out is not None else Path("runs") / Path(plan).stem
    return folder, functools.partial(runner.run, chosen, folder)


@app.command()
@_computing
def resume(
    folder: RunArgument,
    plan: Annotated[str | None, _option("NEW.toml", "A changed plan for the run; shared results are kept.")] = None,
    retry_failed: Annotated[bool, opt.flag("--retry-failed", "Try units that failed again.")] = False,
    trust_code: opt.TrustCode = False,
) -> Work:
    """Go on with a run that was interrupted, or with a changed plan."""
    from fei.bench.engine import runner
    from fei.bench.plan import load_plan

    changed = None if plan is None else load_plan(plan)

    def work(**options: Any) -> Any:
        with trusting(trust_code):
            return runner.resume(Path(folder), changed, retry_failed=retry_failed, **options)

    return Path(folder), work


@app.command()
def status(folder: RunArgument, as_json: opt.Json = False, debug: opt.Debug = False) -> None:
    """Tell how far a run is, also while it goes on."""
    with _opened(folder) as store:
        document = {"schema": 1, "run": folder, **status_document(store)}
    if as_json:
        print_json(document)
    else:
        say_status(document)


@app.command()
def report(
    folder: RunArgument,
    out: Annotated[str | None, _option("DIR", "Folder for tables and figures; RUN/report if not given.")] = None,
    html: PageOption = False,
    trust_code: opt.TrustCode = False,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write the tables and figures of a run, also of one that is not finished."""
    from fei.bench.report import write_report
    from fei.bench.report.numbers import Numbers
    from fei.bench.report.page import write_bench_page
    from fei.common.files import refuse_link

    target = Path(out) if out is not None else Path(folder) / "report"
    if out is None:
        refuse_link(target)
    # a network that is loaded for its pictures may print what is no result
    with _opened(folder) as store, aside(), trusting(trust_code):
        numbers = Numbers(store)
        files = [str(file) for file in write_report(store, target, numbers)]
        page = str(write_bench_page(target / "report.html", store, numbers)) if html else None
    lines = [f"{files[0]}, with {len(files) - 1} files of tables and figures", *([f"Explore: {page}"] if page else [])]
    _tell(as_json, {"run": folder, "report": files[0], "files": files, "page": page}, *lines)


@app.command()
@opt.told
def preset(
    name: Annotated[str | None, _argument("NAME", "A table or figure; without a name they are listed.")] = None,
    quick: Annotated[bool, opt.flag("--quick", "A few photographs, to try it out; maps are kept.")] = False,
    model: Annotated[list[str] | None, _option("SPEC", "A network instead of the paper's.")] = None,
    data: Annotated[list[str] | None, _option("SPEC", "A data set instead of the paper's.")] = None,
    method: Annotated[list[str] | None, _option("NAME", "A method instead of the paper's.")] = None,
    out: Annotated[str | None, _option("FILE", "File for the plan; printed if not given.")] = None,
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
    with aside():  # a network that is looked at may print
        text = presets.preset(name, quick=quick, models=model or [], data=data or [], methods=method or [])
    if out is not None:
        _write(Path(out), text)
    if out is None and not as_json:
        typer.echo(text, nl=False)
        return
    run_it = shlex.join(["fei", "bench", "run", str(out)])
    _tell(as_json, {"preset": name, "file": out, "plan": text}, f"{out}\nRun it:  {run_it}")


@app.command()
def show(
    folder: RunArgument,
    key: Annotated[str, _argument("KEY", "A unit's key, or its first digits.")],
    debug: opt.Debug = False,
) -> None:
    """Print all that a run knows of one unit, as JSON that 'fei reproduce' takes."""
    from fei.cli._bench_unit import unit_document

    with _opened(folder) as store:
        print_json(unit_document(store, key))


@app.command()
def export(
    folder: RunArgument,
    file: Annotated[str, _argument("FILE", "A file that ends in .parquet or .csv.")],
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write the scores of a run as one flat table."""
    from fei.bench.store.exchange import export as write

    with _opened(folder) as store:
        rows = write(store, file)
    _tell(as_json, {"run": folder, "file": file, "rows": rows}, f"{file}: {rows} rows")


@app.command()
def verify(folder: RunArgument, as_json: opt.Json = False, debug: opt.Debug = False) -> None:
    """Tell whether a run is as it was written, down to every score and map; the exit code is 1 if not."""
    from dataclasses import asdict

    with _opened(folder) as store:
        found, units = store.damage(), sum(store.counts().values()) - store.counts()["pending"]
        _ = store.plan  # is parsed, and compared with the one beside the run
    if as_json:
        print_json({"schema": 1, "run": folder, "sound": found.none, "units_there": units, **asdict(found)})
    else:
        say_damage(found, units, Path(folder))
    raise typer.Exit(0 if found.none else FAILURE)


@app.command()
def diff(first: RunArgument, second: OtherArgument, as_json: opt.Json = False, debug: opt.Debug = False) -> None:
    """Tell which numbers of two runs differ, and by how much; the exit code is 1 if any does."""
    from dataclasses import asdict

    from fei.bench.store.exchange import diff as compare

    with _opened(first) as one, _opened(second) as other:
        found = compare(one, other)
    if as_json:
        print_json({"schema": 1, "first": first, "second": second, "same": found.same, **asdict(found)})
    else:
        say_difference(found, first, second)
    raise typer.Exit(0 if found.same else FAILURE)


@app.command()
def merge(
    first: RunArgument,
    second: OtherArgument,
    out: Annotated[str, _option("RUN", "Folder for both together.")],
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Make one run of two: the rows and columns of both, with all that either has computed."""
    from fei.bench.store.exchange import merge as join

    with _opened(first) as one, _opened(second) as other, join(one, other, out) as merged:
        counts = merged.counts()
    told = f"{out}: {counts['done']} units done, {counts['failed']} failed"
    _tell(as_json, {"run": out, **counts}, told, f"Compute what neither has:  {resume_command(Path(out))}")


def _opened(folder: str) -> Store:
    """A run, to be read only."""
    from fei.bench.store import Store

    return Store.open(Path(folder), readonly=True)


def _tell(as_json: bool, document: dict[str, Any], *lines: str) -> None:
    """Print a document for a machine, or lines for a person."""
    if as_json:
        print_json({"schema": 1, **document})
    else:
        say("\n".join(lines))


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
