"""``fei compare``: methods side by side on images, with scores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fei.cli._common import (
    FAILURE,
    DebugOption,
    HtmlOption,
    JsonOption,
    MethodOption,
    OutOption,
    SeedOption,
    complain,
    note,
    print_json,
    say,
    sentence,
)
from fei.cli._images import ImagesArgument, SampleOption, find_images
from fei.errors import DataError, InputError

if TYPE_CHECKING:
    from fei.cli._comparison import Row
    from fei.report.explorer import Shown

_METHODS = "fei-vm,fei-ibm,fei-none,gradcam,saliency,random"


def compare(
    images: ImagesArgument,
    methods: Annotated[
        str, typer.Option(metavar="NAMES", help="Methods, comma-separated; wildcards and 'all' work.")
    ] = _METHODS,
    model: Annotated[str, typer.Option(metavar="SPEC", help="The network; see 'fei models'.")] = "efficientnet_lite0",
    target: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="Class to explain; the predicted one if not given.", show_default=False),
    ] = None,
    protocol: Annotated[str, typer.Option(metavar="ID", help="How insertion and deletion are measured.")] = "fei-paper",
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Layers to look into, comma-separated; the network's stages.", show_default=False
        ),
    ] = None,
    out: OutOption = "fei-out",
    seed: SeedOption = 0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps, for methods that take them.", show_default=False)
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Preset, for methods that have them.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, mps or auto.")] = "auto",
    batch_size: Annotated[int | None, typer.Option(min=1, help="Rows in one forward pass.", show_default=False)] = None,
    option: MethodOption = None,
    sample: SampleOption = None,
    html: HtmlOption = False,
    black_image: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Trials of the black-image test for the optimisation methods."),
    ] = 0,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Compare methods on images: insertion and deletion, and what happens inside the network.

    Prints a table and writes for each image a figure (.comparison.png) and all numbers (.comparison.json).

    With --html all of it is in one page, explorer.html, that opens from disk.
    """
    from fei.cli._comparison import Comparison
    from fei.service.outputs import result_names, write_page

    comparison = Comparison(
        model, methods.split(","), target, protocol, layers.split(",") if layers else None, seed, steps, preset, device,
        batch_size, option or [],
    )  # fmt: skip
    files = find_images(images, sample, seed)
    missing = [image for image in files if not image.is_file()]
    if missing:
        raise InputError(f"There is no image file '{missing[0]}'; check the path.")
    everything: list[Row] = []
    documents = []
    pages: list[Shown] = []
    show = not as_json and sys.stderr.isatty()
    tell = note if show else None
    tests = comparison.black_images(black_image, tell=tell)
    failures: list[DataError] = []
    for image, name in zip(files, result_names(files, Path(out)), strict=True):
        try:
            rows, document, shown = comparison.run(image, Path(out), name, progress=show, tell=tell, tests=tests)
        except DataError as error:  # an image that cannot be read does not stop the others
            complain(error, debug=debug)
            failures.append(error)
            continue
        everything += rows
        documents.append(document)
        pages += [shown] if html else []
        if not as_json:
            say(f"{image}: {document['headline']}")
            _table(rows)
            say(f"  {document['figure']}\n")
    if failures and len(files) > 1:
        note(f"{len(failures)} of {len(files)} images could not be read.")
    page = write_page(Path(out), pages) if pages else None
    if as_json:
        failed = {"error": " ".join(sentence(error) for error in failures)} if failures else {}
        print_json({"schema": 1, "results": documents, "page": page} | failed)
    else:
        if len(documents) > 1:
            say(f"Means over {len(documents)} images")
            _table(_means(everything))
        if page is not None:
            say(f"Explore: {page}")
    raise typer.Exit(FAILURE if failures else 0)


def _table(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("method", no_wrap=True, min_width=max(len(row.method) for row in rows))
    for column in ("insertion ↑", "deletion ↓", "MSE ↓", "cosine ↑", "passes", "seconds"):
        table.add_column(column, justify="right")
    for row in rows:
        inside = (f"{row.mse:.4g}", f"{row.cosine:.3f}")
        table.add_row(
            row.method,
            f"{row.insertion:.3f}",
            f"{row.deletion:.3f}",
            *inside,
            f"{row.forwards:.0f}+{row.backwards:.0f}",
            f"{row.seconds:.1f}",
        )
    Console(width=max(100, Console().width)).print(table)


def _means(rows: list[Row]) -> list[Row]:
    from dataclasses import replace

    means = []
    for method in dict.fromkeys(row.method for row in rows):
        same: list[Any] = [row for row in rows if row.method == method]
        numbers = ("insertion", "deletion", "mse", "cosine", "forwards", "backwards", "seconds")
        means.append(replace(same[0], **{n: sum(getattr(row, n) for row in same) / len(same) for n in numbers}))
    return means
