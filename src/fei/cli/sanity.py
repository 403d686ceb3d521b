"""``fei sanity``: does a method's map depend on what the network learned?"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fei.cli import _options as opt
from fei.cli._common import aside, command_line, find_images, print_json, print_table, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from fei.metrics.randomization import Randomization
    from fei.service import Inquiry, Look, Request

_ENDINGS = (".sanity.png", ".sanity.json")
_COLUMNS = {"ssim": "SSIM", "spearman": "Spearman", "spearman_abs": "|Spearman|", "hog": "HOG"}
_PER_ROW, _CELL, _TITLE = 8, 1.5, 0.42  # pictures a row; their sides in inches
_MOST_OF_NAME = 26  # what fits over a picture


@opt.told
def sanity(
    images: opt.Images,
    model: opt.Model = opt.MODEL,
    method: Annotated[str, typer.Option(metavar="NAME", help="The method; see 'fei methods'.")] = "fei",
    layers: Annotated[
        str,
        typer.Option(metavar="N", help="How many layers from the logits down, or names separated by commas."),
    ] = "6",
    mode: Annotated[
        str, typer.Option(metavar="NAME", help="cascading: all layers so far, or independent: each alone.")
    ] = "cascading",
    target: opt.Target = None,
    out: opt.Out = opt.OUT,
    seed: opt.Seed = 0,
    steps: opt.Steps = None,
    preset: opt.Preset = None,
    device: opt.Device = "auto",
    reference: opt.Reference = None,
    batch_size: opt.BatchSize = None,
    option: opt.Options = None,
    sample: opt.Sample = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Test whether a method's map changes as a network loses its weights, layer by layer from the logits down.

    Prints how similar each map is to the original one, where lower is better, and writes the maps side by side
    (.sanity.png) and all numbers (.sanity.json); a verdict in words comes last.
    """
    from fei.common.files import prepare_folder
    from fei.service import Inquiry, Request, look

    rest: dict[str, Any] = {"target": target, "seed": seed, "device": device, "reference": reference}
    request = Request.of(
        model, [method], {"steps": steps, "preset": preset}, option or [], batch_size=batch_size, **rest
    )
    folder, asked = Path(out), _Asked(layers, mode, option or [], force, not as_json and sys.stderr.isatty())
    with aside():
        inquiry = Inquiry.of(request)
        seen = [look(inquiry.model, file) for file in find_images(images, sample, seed)]
        prepare_folder(folder)
    documents = []
    for one in seen:
        documents.append(_test(inquiry, request, one, folder, asked))
        if not as_json:
            _say_result(documents[-1])
    if as_json:
        print_json(documents[0] if len(documents) == 1 else {"schema": 1, "results": documents})


@dataclass(frozen=True)
class _Asked:
    """How an image is tested."""

    layers: str
    mode: str
    option: list[str]
    force: bool
    show: bool


def _test(inquiry: Inquiry, request: Request, seen: Look, folder: Path, asked: _Asked) -> dict[str, Any]:
    """Test on one image and write what came out; the record as it was written, with its files."""
    from fei.common.files import write_files
    from fei.metrics.criteria import criterion
    from fei.metrics.randomization import cascading_randomization
    from fei.report.drawing import figure_bytes
    from fei.service.looking import label
    from fei.service.outputs import free_name, in_file_name
    from fei.service.record import digest, record_text, versions

    tested: Any = inquiry.methods[request.method]
    layers, image = asked.layers, str(seen.source)
    started = time.perf_counter()
    with aside():
        result = cascading_randomization(
            inquiry.model,
            tested,
            seen.inputs,
            target=inquiry.target,
            layers=int(layers) if layers.strip().isdecimal() else [name.strip() for name in layers.split(",")],
            mode=asked.mode,
            reference=inquiry.reference,
            generator=inquiry.generator,
            batch_size=inquiry.batch_size,
            progress=asked.show,
        )
        notes = inquiry.notes
    seconds = time.perf_counter() - started
    given = request.methods[request.method]
    options = {
        "--model": request.model,
        "--method": request.method,
        "--layers": layers,
        "--mode": asked.mode,
        "--target": inquiry.target,
        "--seed": request.seed,
        "--steps": given.get("steps"),
        "--preset": given.get("preset"),
        "--device": request.device,
        "--reference": request.reference,
        "--batch-size": request.batch_size,
    }
    explained = int(result.targets[0])
    mean = result.similarity["spearman"][:, 0].mean().item()
    words = ["sanity", image, *(word for text in asked.option for word in ("--option", text))]
    document: dict[str, Any] = {
        "schema": 1,
        "image": {"path": image, "sha256": digest(Path(image))},
        "model": request.model,
        "notes": notes,
        "method": request.method,
        "target": {"index": explained, "label": label(inquiry.model, explained)},
        "mode": asked.mode,
        "layers": result.layers,
        "similarity": {name: values[:, 0].tolist() for name, values in result.similarity.items()},
        "mean": mean,
        "verdict": criterion("cascade").verdict(mean),
        "seed": request.seed,
        "seconds": round(seconds, 3),
        "versions": versions(),
        "command": command_line(words, options),
    }
    stems = [Path(image).stem, f"{Path(image).stem}.{in_file_name(request.method)}"]
    stem = stems[0] if asked.force else free_name(folder, stems, document, _ENDINGS)
    names = {kind: stem + ending for kind, ending in zip(("picture", "record"), _ENDINGS, strict=True)}
    figure = _strip(seen.inputs[0], result)
    write_files(folder, {names["picture"]: figure_bytes(figure), names["record"]: record_text(document)})
    return document | {"files": {kind: str(folder / name) for kind, name in names.items()}}


def _say_result(document: dict[str, Any]) -> None:
    target, similarity = document["target"], document["similarity"]
    say(f"{document['image']['path']}: {target['label']} ({target['index']}), {document['method']}, {document['mode']}")
    rows = [
        [layer, *(f"{similarity[name][stage]:.3f}" for name in _COLUMNS)]
        for stage, layer in enumerate(document["layers"])
    ]
    print_table(["re-initialised", *_COLUMNS.values()], rows)
    say("Similarity to the original map: 1 is the same map, 0 another one.")
    say(f"The map {document['verdict']}: its mean rank correlation with the original is {document['mean']:.2f}.")
    for text in document["notes"]:
        say(f"Note: {text}")
    for file in document["files"].values():
        say(file)


def _strip(image: Tensor, result: Randomization) -> Figure:
    """The input, the original map and the map of each stage, as in the paper's figure."""
    import numpy as np
    from matplotlib.figure import Figure

    from fei.report import colorize, photo

    stages = zip(result.layers, result.similarity["ssim"][:, 0], result.similarity["spearman"][:, 0], strict=True)
    titles = ["input", "original"]
    titles += [f"{_short(layer)}\nSSIM {ssim:.2f}, ρ {rank:.2f}" for layer, ssim, rank in stages]
    pictures = [photo(image), *(colorize(m.cpu().double().numpy()) for m in result.maps[:, 0, 0])]
    columns = min(len(pictures), _PER_ROW)
    rows = -(-len(pictures) // columns)
    height = _CELL * image.shape[1] / image.shape[2] + _TITLE
    figure = Figure(figsize=(columns * _CELL, rows * height), layout="compressed", dpi=160)
    grid: Any = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, picture, title in zip(grid.flat, pictures, titles, strict=False):
        axes.imshow(np.asarray(picture), interpolation="nearest")
        axes.set_title(title, fontsize=7, parse_math=False)
    return figure


def _short(layer: str) -> str:
    """A layer's name as it fits over a picture: its end tells layers apart."""
    name = layer.removeprefix("network.")
    return name if len(name) <= _MOST_OF_NAME else f"…{name[1 - _MOST_OF_NAME :]}"
