"""``fei compare``: methods side by side on images, with scores."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fei.cli import _options as opt
from fei.cli._common import FAILURE, aside, complain, find_images, note, print_json, print_table, say, sentence
from fei.errors import DataError, InputError

if TYPE_CHECKING:
    from fei.report.explorer import Panel, Shown
    from fei.service import Inquiry, Request

_ENDINGS = (".comparison.png", ".comparison.json")
_FEWEST = 5  # images that an interval is given for
_INTERVALS = ", with 95 % bootstrap intervals"
_METHODS = "fei,fei-vm,fei-none,gradcam,saliency,random"


@opt.told
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
    reference: opt.Reference = None,
    batch_size: opt.BatchSize = None,
    option: opt.Options = None,
    sample: opt.Sample = None,
    html: opt.Html = False,
    keep_maps: Annotated[bool, opt.flag("--keep-maps", "Write the map of each method too (.METHOD.map.npy).")] = False,
    black_image: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Trials of the black-image test for the optimisation methods."),
    ] = 0,
    force: opt.Force = False,
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
    from fei.service.outputs import page_name, result_names

    request = Request.of(
        model,
        methods.split(","),
        {"steps": steps, "preset": preset},
        option or [],
        lenient=True,
        target=target,
        seed=seed,
        device=device,
        reference=reference,
        batch_size=batch_size,
        protocol=protocol,
        layers=layers.split(",") if layers else None,
    )
    files = find_images(images, sample, seed)
    missing = [image for image in files if not image.is_file()]
    if missing:
        raise InputError(f"There is no image file '{missing[0]}'; check the path.")
    show = not as_json and sys.stderr.isatty()
    if show:
        note(f"Loading {model}")
    with aside():
        inquiry = Inquiry.of(request, progress=show, tell=note if show else None)
        tests = inquiry.black_images(black_image)
    everything: list[_Numbers] = []
    documents: list[dict[str, Any]] = []
    pages: list[Shown] = []
    failures: list[DataError] = []
    for image, name in zip(files, result_names(files, Path(out)), strict=True):
        try:
            shown, document = _compare(inquiry, request, image, Path(out), name, tests, _Wish(keep_maps, force))
        except DataError as error:  # an image that cannot be read does not stop the others
            complain(error, debug=debug)
            failures.append(error)
            continue
        rows = [_numbers(panel) for panel in shown.panels]
        everything += rows
        documents.append(document)
        pages += [shown] if html else []
        if not as_json:
            say(f"{image}: {document['headline']}")
            _table(rows)
            for text in document["notes"]:
                say(f"Note: {text}")
            say(f"  {document['figure']}\n")
    if failures and len(files) > 1:
        note(f"{len(failures)} of {len(files)} images could not be read.")
    page = None
    if pages:
        name = page_name(Path(out), (one.command for one in pages), force=force)
        page = str(write_explorer(Path(out) / name, pages))
    if as_json:
        failed = {"error": " ".join(sentence(error) for error in failures)} if failures else {}
        print_json({"schema": 1, "results": documents, "page": page} | failed)
    else:
        if len(documents) > 1:
            told = _INTERVALS if len(documents) >= _FEWEST else f"; intervals from {_FEWEST} on"
            say(f"Means over {len(documents)} images{told}")
            _table(_means(everything), everything if len(documents) >= _FEWEST else [])
        if documents:
            say("Passes: forward + backward rows as counted, those to look at the network included.")
        if page is not None:
            say(f"Explore: {page}")
    raise typer.Exit(FAILURE if failures else 0)


@dataclass(frozen=True)
class _Wish:
    """What is written besides, and whether it may replace results of another question."""

    keep_maps: bool
    force: bool


@dataclass(frozen=True)
class _Numbers:
    """One method's numbers on one image; MSE and cosine are those of the last layer, if the protocol looks inside."""

    method: str
    insertion: float
    deletion: float
    mse: float | None
    cosine: float | None
    relevant_cosine: float | None
    forwards: float
    backwards: float
    seconds: float
    ties: float


def _numbers(panel: Panel) -> _Numbers:
    evaluation, cost = panel.evaluation, panel.cost
    assert evaluation is not None and cost is not None, "a comparison measures every map"  # noqa: S101, PT018
    layers = list(evaluation.internal.values())
    last = {name: values.item() for name, values in layers[-1].numbers.items()} if layers else {}
    return _Numbers(
        panel.called,
        evaluation.insertion.auc.item(),
        evaluation.deletion.auc.item(),
        last.get("mse"),
        last.get("cosine"),
        last.get("relevant_cosine"),
        cost.forwards,
        cost.backwards,
        cost.seconds,
        evaluation.insertion.ties.item(),
    )


def _compare(
    inquiry: Inquiry, request: Request, image: Path, folder: Path, name: str, tests: dict[str, Any], wish: _Wish
) -> tuple[Shown, dict[str, Any]]:
    """Compare on one image, and write the figure and the numbers; what a page shows, and the numbers as written."""
    from fei import protocols
    from fei.common.files import prepare_folder, write_files
    from fei.report.comparison import comparison as draw
    from fei.report.drawing import figure_bytes, photo
    from fei.service import look
    from fei.service.outputs import MAP, free_name, in_file_name
    from fei.service.record import array_bytes, digest, versions

    with aside():
        seen = look(inquiry.model, image)  # what cannot be read is told before a folder is made
        prepare_folder(folder)
        shown, notes = inquiry.compare(seen, tests), inquiry.notes
    headline = f"{shown.label}, {shown.probability:.1%} ({inquiry.spec}, {inquiry.protocol.id})"
    evaluations = {panel.called: panel.evaluation for panel in shown.panels if panel.evaluation is not None}
    maps_shown = {panel.called: panel.map.numpy() for panel in shown.panels}
    picture = draw(photo(shown.image), maps_shown, evaluations, headline, shown.whole)
    document = {
        "schema": 1,
        "image": str(image),
        "sha256": digest(image),
        "model": inquiry.spec,
        "network": inquiry.identity,
        "notes": notes,
        "target": {"index": shown.target, "label": shown.label},
        "headline": headline,
        "protocol": protocols.describe(inquiry.protocol),
        "seed": inquiry.seed,
        "request": request.model_dump(mode="json"),
        "versions": {name: versions()[name] for name in ("fei", "torch")},
        "methods": [
            asdict(_numbers(panel))
            | {"method": panel.method, "preview": panel.preview, "config": dict(panel.config)}
            | _curves(panel)
            for panel in shown.panels
        ],
    }
    name = name if wish.force else free_name(folder, [name], document, _ENDINGS)
    figure = folder / f"{name}{_ENDINGS[0]}"
    document["figure"] = str(figure)
    text = json.dumps(document, indent=2) + "\n"
    maps = {f"{name}.{in_file_name(p.method)}{MAP}": array_bytes(p.map.float().numpy()) for p in shown.panels}
    files: dict[str, bytes | str] = {figure.name: figure_bytes(picture), **(maps if wish.keep_maps else {})}
    write_files(folder, files | {f"{name}{_ENDINGS[1]}": text})
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
    } | ({"attention": _attention(panel)} if panel.attention else {})


def _attention(panel: Panel) -> dict[str, Any]:
    """By the module that attends, the divergence of each head."""
    return {
        module: {
            rows: heads[0].tolist() for rows, heads in vars(one).items() if heads is not None and heads.isfinite().all()
        }
        for module, one in panel.attention.items()
    }


def _table(rows: list[_Numbers], each: Sequence[_Numbers] = ()) -> None:
    """Print numbers of methods, with intervals where those of each image are given."""
    from fei.metrics import bootstrap_interval, describe
    from fei.report.comparison import titled

    def cell(row: _Numbers, score: Any) -> str:
        text = format(getattr(row, score.name), score.format)
        values = [getattr(one, score.name) for one in each if one.method == row.method]
        ends = [format(end, score.format) for end in bootstrap_interval(values)] if values else []
        return f"{text} [{', '.join(ends)}]" if ends else text

    names = ("insertion", "deletion", "mse", "cosine", "relevant_cosine")
    scores = [describe(name) for name in names if getattr(rows[0], name) is not None]
    told = [
        [
            titled(row.method),
            *(cell(row, score) for score in scores),
            f"{row.forwards:.0f} + {row.backwards:.0f}",
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
        numbers: dict[str, Any] = {
            name: None if value is None else sum(row[name] for row in same) / len(same)
            for name, value in same[0].items()
            if name != "method"
        }
        means.append(_Numbers(method, **numbers))
    return means
