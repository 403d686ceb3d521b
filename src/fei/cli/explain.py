"""``fei explain`` and ``fei demo``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fei.cli._common import (
    FAILURE,
    USAGE,
    DebugOption,
    JsonOption,
    OutOption,
    SeedOption,
    complain,
    exit_code,
    note,
    print_json,
    say,
    sentence,
)
from fei.errors import InputError

if TYPE_CHECKING:
    from fei.cli._job import Job, Request

_MODEL, _METHOD, _OUT = "efficientnet_lite0", "fei-vm", "fei-out"

StepsOption = Annotated[
    int | None, typer.Option(min=1, help="Optimisation steps; the preset's if not given.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(explain)
    app.command()(demo)


def explain(
    images: Annotated[list[str], typer.Argument(metavar="IMAGE...", help="Image files.", show_default=False)],
    model: Annotated[str, typer.Option(metavar="SPEC", help="The network; see 'fei models'.")] = _MODEL,
    method: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"The method; see 'fei methods'. Default: {_METHOD}.", show_default=False),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Short for --method fei-NAME: vm, ivm, avm, ibm, bm, abm or none.", show_default=False
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="CLASS", help="Class to explain, by name or index; the predicted one if not given.", show_default=False
        ),
    ] = None,
    out: OutOption = _OUT,
    seed: SeedOption = 0,
    steps: StepsOption = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Settings of an optimisation method: paper or fast.", metavar="NAME", show_default=False),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="cpu, cuda, mps, or auto: CUDA where there is one, else the CPU.")
    ] = "auto",
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="What stands in for removed pixels: color (random, the default), black, white, mean, blur or noise.",
            show_default=False,
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Rows in one forward pass; fewer need less memory.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    debug: DebugOption = False,
) -> None:
    """Explain why a network sees what it sees in images.

    For each image, DIR gets a picture (.overlay.png), the map (.map.npy), the whole result
    (.explanation.safetensors) and a record of how it was made (.json).
    """
    name = _method_name(method, variant)
    files = [Path(image) for image in images]
    failures = _missing(files)
    for _, error in failures:
        complain(error, debug=debug)
    usable = [file for file in files if file not in {failed for failed, _ in failures}]
    results: list[dict[str, Any]] = []
    if usable:
        from fei.cli._job import Job, Request
        from fei.cli._outputs import prepare_folder

        folder = Path(out)
        prepare_folder(folder)
        job = Job(Request(model, name, target, seed, steps, preset, device, reference, batch_size))
        progress = not (quiet or as_json) and sys.stderr.isatty()
        for number, (file, result_name) in enumerate(_named(usable, folder), 1):
            if progress:
                note(f"{file} ({number} of {len(usable)})")
            try:
                results.append(job.explain(file, folder, result_name, progress=progress))
            except Exception as error:  # the other images are still worth explaining
                failures.append((file, error))
                complain(error, debug=debug)
                continue
            if not (quiet or as_json):
                say(_summary(results[-1]))
    if as_json:
        print_json(_document(results, failures))
    if failures:
        usage = not results and all(exit_code(error) == USAGE for _, error in failures)
        raise typer.Exit(USAGE if usage else FAILURE)
