"""``fei compare``: methods side by side on images, with scores."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fei.cli import _options as opt
from fei.cli._common import FAILURE, aside, complain, find_images, note, print_json, print_table, say, sentence
from fei.errors import DataError, InputError

if TYPE_CHECKING:
    from fei.report.explorer import Panel, Shown
    from fei.service import Inquiry

_METHODS = "fei,fei-vm,fei-none,gradcam,saliency,random"


def compare(
    images: opt.Images,
    methods: Annotated[
        str, typer.Option(metavar="NAMES", help="Methods, comma-separated; wildcards and 'all' work.")
    ] = _METHODS,
    model: opt.Model = opt.MODEL,
    target: opt.Target = None,
    protocol: Annotated[str, typer.Option(metavar="ID", help="How insertion and deletion are measured.")] = "held-out",
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Layers to look into, comma-separated; the network's stages.", show_default=False
        ),
    ] = None,
    out: opt.Out = opt.OUT,
    seed: opt.Seed = 0,
    steps: opt.Steps = None,
    preset: opt.Preset = None,
    device: opt.Device = "auto",
    batch_size: opt.BatchSize = None,
    option: opt.Options = None,
    sample: opt.Sample = None,
    html: opt.Html = False,
    black_image: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Trials of the black-image test for the optimisation methods."),
    ] = 0,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Compare methods on images: insertion and deletion, and what happens inside the network.

    Prints a table and writes for each image a figure (.comparison.png) and all numbers (.comparison.json).

    With --html all of it is in one page, explorer.html, that opens from disk. Steps and preset go to the methods that
    have them.
    """
    from fei.report.explorer import write_explorer
    from fei.service import Inquiry, Request
    from fei.service.outputs import PAGE, result_names

    request = Request.of(
        model,
        methods.split(","),
        {"steps": steps, "preset": preset},
        option or [],
        lenient=True,
        target=target,
        seed=seed,
        device=device,
        batch_size=batch_size,
        protocol=protocol,
        layers=layers.split(",") if layers else None,
    )
    files = find_images(images, sample, seed)
    missing = [image for image in files if not image.is_file()]
    if missing:
        raise InputError(f"There is no image file '{missing[0]}'; check the path.")
    show = not as_json and sys.stderr.isatty()
    with aside():
        inquiry = Inquiry.of(request, progress=show, tell=note if show else None)
        tests = inquiry.black_images(black_image)
    everything: list[_Numbers] = []
    documents: list[dict[str, Any]] = []
    pages: list[Shown] = []
    failures: list[DataError] = []
    for image, name in zip(files, result_names(files, Path(out)), strict=True):
        try:
            shown, document = _compare(inquiry, image, Path(out), name, tests)
        except DataError as error:  # an image that cannot be read does not stop the others
            complain(error, debug=debug)
            failures.append(error)
            continue
        rows = [_numbers(panel) for panel in shown.panels]
        everything += rows
        documents.append(document | {"request": request.model_dump(mode="json")})
        pages += [shown] if html else []
        if not as_json:
            say(f"{image}: {document['headline']}")
            _table(rows)
            say(f"  {document['figure']}\n")
    if failures and len(files) > 1:
        note(f"{len(failures)} of {len(files)} images could not be read.")
    page = str(write_explorer(Path(out) / PAGE, pages)) if pages else None
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


@dataclass(frozen=True)
class _Numbers:
    """One method's numbers on one image; MSE and cosine are those of the last layer."""

    method: str
    insertion: float
    deletion: float
    mse: float
    cosine: float
    relevant_cosine: float
    forwards: float
    backwards: float
    seconds: float
    ties: float


def _numbers(panel: Panel) -> _Numbers:
    evaluation, cost = panel.evaluation, panel.cost
    assert evaluation is not None and cost is not None, "a comparison measures every map"  # noqa: S101, PT018
    last = list(evaluation.internal.values())[-1]
    return _Numbers(
        panel.method,
        evaluation.insertion.auc.item(),
        evaluation.deletion.auc.item(),
        last.mse.item(),
        last.cosine.item(),
        last.numbers["relevant_cosine"].item(),
        cost.forwards,
        cost.backwards,
        cost.seconds,
        evaluation.insertion.ties.item(),
    )


def _compare(
    inquiry: Inquiry, image: Path, folder: Path, name: str, tests: dict[str, Any]
) -> tuple[Shown, dict[str, Any]]:
    """Compare on one image, and write the figure and the numbers; what a page shows, and the numbers as written."""
    from fei import protocols
    from fei.common.files import prepare_folder, write_files
    from fei.report.comparison import comparison as draw
    from fei.report.drawing import figure_bytes, photo
    from fei.service import look
    from fei.service.record import versions

    with aside():
        seen = look(inquiry.model, image)  # what cannot be read is told before a folder is made
        prepare_folder(folder)
        shown = inquiry.compare(seen, tests)
    headline = f"{shown.label}, {shown.probability:.1%} ({inquiry.spec}, {inquiry.protocol.id})"
    figure = folder / f"{name}.comparison.png"
    evaluations = {panel.method: panel.evaluation for panel in shown.panels if panel.evaluation is not None}
    picture = draw(photo(shown.image), {p.method: p.map.numpy() for p in shown.panels}, evaluations, headline)
    document = {
        "schema": 1,
        "image": str(image),
        "model": inquiry.spec,
        "target": {"index": shown.target, "label": shown.label},
        "headline": headline,
        "protocol": protocols.describe(inquiry.protocol),
        "seed": inquiry.seed,
        "figure": str(figure),
        "versions": {name: versions()[name] for name in ("fei", "torch")},
        "methods": [
            asdict(_numbers(panel)) | {"config": dict(panel.config)} | _curves(panel) for panel in shown.panels
        ],
    }
    text = json.dumps(document, indent=2) + "\n"
    write_files(folder, {figure.name: figure_bytes(picture), f"{name}.comparison.json": text})
    return shown, document


def _curves(panel: Panel) -> dict[str, Any]:
    evaluation: Any = panel.evaluation
    return {
        "curves": {
            "fractions": evaluation.insertion.fractions.tolist(),
            "insertion": evaluation.insertion.scores[0].tolist(),
            "deletion": evaluation.deletion.scores[0].tolist(),
        },
        "layers": {
            layer: {metric: values[0].item() for metric, values in similar.numbers.items()}
            for layer, similar in evaluation.internal.items()
        },
    }


def _table(rows: list[_Numbers]) -> None:
    from fei.metrics import describe

    scores = [describe(name) for name in ("insertion", "deletion", "mse", "cosine", "relevant_cosine")]
    told = [
        [
            row.method,
            *(format(getattr(row, score.name), score.format) for score in scores),
            f"{row.forwards:.0f}+{row.backwards:.0f}",
            f"{row.seconds:.1f}",
        ]
        for row in rows
    ]
    print_table(["method", *(score.heading for score in scores), "passes", "seconds"], told)


def _means(rows: list[_Numbers]) -> list[_Numbers]:
    """The means of each method's numbers."""
    means = []
    for method in dict.fromkeys(row.method for row in rows):
        same = [asdict(row) for row in rows if row.method == method]
        numbers = {name: sum(row[name] for row in same) / len(same) for name in same[0] if name != "method"}
        means.append(_Numbers(method, **numbers))
    return means
