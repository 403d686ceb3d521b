"""``fei black-image``: does a method find evidence for any class in a black image?"""

from __future__ import annotations

import csv
import io
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fei.cli import _options as opt
from fei.cli._common import aside, command_line, print_json, print_table, say

if TYPE_CHECKING:
    from fei.metrics.black_image import BlackImage
    from fei.service import Inquiry

_NAME = "black-image"
_LIMIT = 0.05  # of the rate: above it for certain, a method makes evidence up


@opt.told
def black_image(
    model: opt.Model = opt.MODEL,
    methods: Annotated[
        str,
        typer.Option("--methods", "--method", metavar="NAMES", help="Optimisation methods, separated by commas."),
    ] = "fei,fei-none",
    trials: Annotated[int, typer.Option(min=1, help="How many classes and colours to try.")] = 20,
    steps: opt.Steps = None,
    preset: opt.Preset = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help=f"Folder for {_NAME}.json and .csv; no files without.", show_default=False),
    ] = None,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    batch_size: opt.BatchSize = None,
    option: opt.Options = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Test whether methods find evidence where there is none: in a black image.

    Each trial asks for a random class that the network sees neither in black nor in a random colour.

    The rate is the share of trials in which a blend of the two came to look like that class: lower is better.
    """
    from fei.common.files import prepare_folder
    from fei.service import Inquiry, Request
    from fei.service.record import versions

    names = _checked_names(methods)
    given = {"steps": steps, "preset": preset}
    rest: dict[str, Any] = {"seed": seed, "device": device, "batch_size": batch_size}
    request = Request.of(model, names, given, option or [], **rest)
    with aside():
        inquiry = Inquiry.of(request)
        notes = inquiry.notes  # for which the network is looked at
    folder = None if out is None else Path(out)
    if folder is not None:
        prepare_folder(folder)
    entries, results = _test(inquiry, trials, progress=not as_json and sys.stderr.isatty())
    options = {
        "--model": model,
        "--methods": ",".join(names),
        "--trials": trials,
        "--steps": steps,
        "--preset": preset,
        "--seed": seed,
        "--device": device,
        "--batch-size": batch_size,
    }
    document: dict[str, Any] = {
        "schema": 1,
        "model": model,
        "trials": trials,
        "seed": seed,
        "notes": notes,
        "results": entries,
        "versions": versions(),
        "command": command_line(["black-image", *(word for text in option or [] for word in ("-o", text))], options),
    }
    files = {} if folder is None else _write(folder, document, force=force)
    if as_json:
        print_json(document | {"files": files})
    else:
        _say_results(names, results, [*(textwrap.fill(f"Note: {text}", 80) for text in notes), *files.values()])


def _checked_names(methods: str) -> list[str]:
    """The methods' names; one that cannot be tested is refused before the long work."""
    from fei.methods import describe
    from fei.metrics.black_image import optimisation_method

    names = list(dict.fromkeys(describe(name.strip()).name for name in methods.split(",")))
    for name in names:
        optimisation_method(name)
    return names


def _test(inquiry: Inquiry, trials: int, *, progress: bool) -> tuple[list[dict[str, Any]], list[BlackImage]]:
    """Each method's record and result, on the same trials."""
    from fei.metrics.black_image import black_image as measure
    from fei.progress import reporter

    entries, results = [], []
    methods: dict[str, Any] = dict(inquiry.methods)
    with reporter(progress, len(methods) * trials) as tick, aside():
        for name, method in methods.items():
            started = time.perf_counter()
            result = measure(
                inquiry.model,
                method,
                trials=trials,
                generator=inquiry.generator,
                batch_size=inquiry.batch_size,
                progress=lambda done, total: tick(),
            )
            results.append(result)
            entries.append(_entry(name, result, inquiry, time.perf_counter() - started))
    return entries, results


def _entry(name: str, result: BlackImage, inquiry: Inquiry, seconds: float) -> dict[str, Any]:
    """A result as plain data."""
    from fei.service.looking import label

    columns = zip(
        result.number.tolist(),
        result.target.tolist(),
        result.reference.flatten(1).tolist(),
        result.success.tolist(),
        result.phi.tolist(),
        result.gains.tolist(),
        strict=True,
    )
    return {
        "method": name,
        "rate": result.rate,
        "interval": list(result.interval),
        "thresholds": {str(level): share for level, share in result.thresholds.items()},
        "gain": result.gain,
        "verdict": verdict(result),
        "trials": result.trials,
        "redrawn": result.redrawn,
        "dropped": result.dropped,
        "seconds": round(seconds, 3),
        "config": dict(result.config),
        "outcomes": [
            {
                "trial": number,
                "target": target,
                "label": label(inquiry.model, target),
                "reference": colour,
                "success": success,
                "phi": phi,
                "gain": gain,
            }
            for number, target, colour, success, phi, gain in columns
        ],
    }


def verdict(result: BlackImage) -> str:
    """What the trials say, in words."""
    hits = round(result.rate * result.trials)
    if not hits:
        return "finds no evidence where there is none"
    return "makes evidence up" if result.interval[0] > _LIMIT else "not clear from these trials"


def _write(folder: Path, document: dict[str, Any], *, force: bool) -> dict[str, str]:
    from fei.common.files import write_files
    from fei.common.words import spreadsheet_cell
    from fei.service.outputs import free_name
    from fei.service.record import record_text

    text = io.StringIO(newline="")
    table = csv.writer(text)
    table.writerow(["method", "trial", "target", "label", "red", "green", "blue", "success", "phi", "gain"])
    for entry in document["results"]:
        for row in entry["outcomes"]:
            what = (row["trial"], row["target"], spreadsheet_cell(row["label"]), *row["reference"])
            table.writerow([spreadsheet_cell(entry["method"]), *what, int(row["success"]), row["phi"], row["gain"]])
    name = _NAME if force else free_name(folder, [_NAME], document, (".csv", ".json"))
    write_files(folder, {f"{name}.csv": text.getvalue(), f"{name}.json": record_text(document)})
    return {"table": str(folder / f"{name}.csv"), "record": str(folder / f"{name}.json")}


def _say_results(names: list[str], results: list[BlackImage], lines: list[str]) -> None:
    """Print the numbers, what they say, and some lines below."""
    from fei.report.comparison import titled

    levels = list(results[0].thresholds)
    rows = [
        [
            titled(name),
            f"{result.rate:.1%}",
            f"{result.interval[0]:.1%} to {result.interval[1]:.1%}",
            *(f"{result.thresholds[level]:.1%}" for level in levels),
            f"{result.gain:+.3f}",
        ]
        for name, result in zip(names, results, strict=True)
    ]
    print_table(["method", "rate", "95 % interval", *(f"φ≥{level:g}" for level in levels), "gain"], rows)
    for name, result in zip(names, results, strict=True):
        say(f"{name} {verdict(result)} ({round(result.rate * result.trials)} of {result.trials}).")
    first = results[0]
    dropped = f", {first.dropped} dropped" if first.dropped else ""
    say(f"{first.trials} trials, {first.redrawn} redrawn{dropped}: the same ones for all methods.")
    for line in lines:
        say(line)
