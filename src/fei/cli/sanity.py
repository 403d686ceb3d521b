"""``fei sanity``: does a method's map depend on what the network learned?"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fei.cli import _options as opt
from fei.cli._common import aside, command_line, print_json, print_table, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from fei.metrics.randomization import Randomization

_COLUMNS = {"ssim": "SSIM", "spearman": "Spearman", "spearman_abs": "|Spearman|", "hog": "HOG"}
_PER_ROW, _CELL, _TITLE = 8, 1.5, 0.42  # pictures a row; their sides in inches
_MOST_OF_NAME = 26  # what fits over a picture


def sanity(
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="An image file.", show_default=False)],
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
    batch_size: opt.BatchSize = None,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Test whether a method's map changes as a network loses its weights, layer by layer from the logits down.

    Prints how similar each map is to the original one, where lower is better, and writes the maps side by side
    (.sanity.png) and all numbers (.sanity.json).
    """
    from fei.common.files import prepare_folder, write_files
    from fei.metrics.randomization import cascading_randomization
    from fei.report.drawing import figure_bytes
    from fei.service import Inquiry, Request, look
    from fei.service.looking import label
    from fei.service.record import digest, record_text, versions

    given = {"steps": steps, "preset": preset}
    request = Request.of(model, [method], given, target=target, seed=seed, device=device, batch_size=batch_size)
    folder = Path(out)
    with aside():
        inquiry = Inquiry.of(request)
        tested: Any = inquiry.methods[request.method]
        seen = look(inquiry.model, image)
        prepare_folder(folder)
        started = time.perf_counter()
        result = cascading_randomization(
            inquiry.model,
            tested,
            seen.inputs,
            target=inquiry.target,
            layers=int(layers) if layers.strip().isdecimal() else [name.strip() for name in layers.split(",")],
            mode=mode,
            generator=inquiry.generator,
            batch_size=batch_size,
            progress=not as_json and sys.stderr.isatty(),
        )
        seconds = time.perf_counter() - started
    options = {
        "--model": model,
        "--method": request.method,
        "--layers": layers,
        "--mode": mode,
        "--target": inquiry.target,
        "--seed": seed,
        "--steps": steps,
        "--preset": preset,
        "--device": device,
        "--batch-size": batch_size,
    }
    explained = int(result.targets[0])
    document: dict[str, Any] = {
        "schema": 1,
        "image": {"path": image, "sha256": digest(Path(image))},
        "model": model,
        "method": request.method,
        "target": {"index": explained, "label": label(inquiry.model, explained)},
        "mode": mode,
        "layers": result.layers,
        "similarity": {name: values[:, 0].tolist() for name, values in result.similarity.items()},
        "seed": seed,
        "seconds": round(seconds, 3),
        "versions": versions(),
        "command": command_line(["sanity", image], options),
    }
    names = {"picture": f"{Path(image).stem}.sanity.png", "record": f"{Path(image).stem}.sanity.json"}
    figure = _strip(seen.inputs[0], result)
    write_files(folder, {names["picture"]: figure_bytes(figure), names["record"]: record_text(document)})
    files = {kind: str(folder / name) for kind, name in names.items()}
    if as_json:
        print_json(document | {"files": files})
    else:
        _say_result(document, files)


def _say_result(document: dict[str, Any], files: dict[str, str]) -> None:
    target, similarity = document["target"], document["similarity"]
    say(f"{document['image']['path']}: {target['label']} ({target['index']}), {document['method']}, {document['mode']}")
    rows = [
        [layer, *(f"{similarity[name][stage]:.3f}" for name in _COLUMNS)]
        for stage, layer in enumerate(document["layers"])
    ]
    print_table(["re-initialised", *_COLUMNS.values()], rows)
    say("Similarity to the original map: 1 is the same map, 0 another one.")
    for file in files.values():
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
