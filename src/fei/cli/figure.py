"""``fei figure``: maps on paper, in the style of the paper's Figure 1 and of its visual comparison."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fei.cli import _options as opt
from fei.cli._common import aside, find_images, note, print_json, say
from fei.common.consent import trusting
from fei.errors import DataError, InputError

if TYPE_CHECKING:
    from fei.bench.report.grids import MapGrid
    from fei.bench.report.numbers import Numbers
    from fei.report.explorer import Shown
    from fei.service import Request

_METHODS = {
    "figure-1": "fei-none,extremal-perturbation,fei-vm",
    "visual-comparison": "fei-ibm,fei-ivm,fei-avm,fei-vm,fei-none,extremal-perturbation,rise,iia,liftcam,fgvce",
}
_FORMS = ("svg", "pdf", "png")
_PROTOCOL = "fei-paper"


@opt.told
def figure(
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGE|RUN",
            help="Image files, folders, patterns or data sets; or the folder of a run that kept its maps.",
            show_default=False,
        ),
    ],
    layout: Annotated[str, typer.Option(metavar="NAME", help="figure-1 or visual-comparison.")] = "visual-comparison",
    methods: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Methods, comma-separated; the paper's, or all of a run's, if not given."),
    ] = None,
    out: Annotated[str, typer.Option(metavar="FILE", help="A file that ends in .svg, .pdf or .png.")] = "figure.svg",
    model: Annotated[str | None, typer.Option(metavar="SPEC", help=f"The network; {opt.MODEL} if not given.")] = None,
    target: opt.Target = None,
    seed: opt.Seed = 0,
    steps: opt.Steps = None,
    preset: opt.Preset = None,
    device: opt.Device = "auto",
    reference: opt.Reference = None,
    batch_size: opt.BatchSize = None,
    option: opt.Options = None,
    sample: opt.Sample = None,
    trust_code: opt.TrustCode = False,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Draw maps over their photographs, one row per image, one column per method.

    figure-1 puts letters below, and under each map its insertion and the MSE that it leaves inside the network.
    """
    from fei.bench.report.grids import figure_1, visual_comparison
    from fei.bench.report.style import picture
    from fei.bench.store import Store
    from fei.common.files import write_file
    from fei.service import Request

    file = Path(out)
    form = file.suffix.lower().removeprefix(".")
    draw = {"figure-1": figure_1, "visual-comparison": visual_comparison}.get(layout)
    if draw is None:
        raise InputError(f"There is no layout '{layout}'; choose one of {', '.join(_METHODS)}.")
    if form not in _FORMS:
        raise InputError(f"The figure's file '{out}' ends in none of {', '.join(_FORMS)}; give one that does.")
    if not file.parent.is_dir():
        raise InputError(f"There is no folder '{file.parent}' for the figure; make it first.")
    asked = {"model": model, "target": target, "steps": steps, "preset": preset, "option": option, "sample": sample}
    asked |= {"reference": reference}
    if len(images) == 1 and Store.exists(Path(images[0])):
        given = [f"--{name}" for name, value in asked.items() if value is not None]
        if given:
            raise InputError(f"The maps of a run are there already; leave {', '.join(given)} away.")
        with trusting(trust_code):
            panels = _panels_of_run(Path(images[0]), methods)
    else:
        show = not as_json and sys.stderr.isatty()
        names = (methods or _METHODS[layout]).split(",")
        request = Request.of(
            model or opt.MODEL,
            names,
            {"steps": steps, "preset": preset},
            option or [],
            lenient=True,
            target=target,
            seed=seed,
            device=device,
            reference=reference,
            batch_size=batch_size,
            protocol=_PROTOCOL,
        )
        panels = [_panel_of_images(request, find_images(images, sample, seed), show=show)]
    write_file(file, picture(draw(panels), form), what="figure")
    if as_json:
        print_json({"schema": 1, "figure": out, "layout": layout, "methods": list(panels[0].names)})
    else:
        say(out)


def _panel_of_images(request: Request, files: list[Path], *, show: bool) -> MapGrid:
    """Compute the maps of some images."""
    from fei.bench.report.grids import MapGrid
    from fei.report.comparison import titled
    from fei.report.drawing import photo
    from fei.service import Inquiry, look

    with aside():
        inquiry = Inquiry.of(request, progress=show, tell=note if show else None)
        seen = [look(inquiry.model, image) for image in files]  # what cannot be read is told before the work
        shown = [inquiry.compare(one, {}) for one in seen]
    return MapGrid(
        title="",
        names=[titled(panel.called) for panel in shown[0].panels],
        photographs=[photo(one.image) for one in shown],
        maps=[[panel.map.numpy() for panel in one.panels] for one in shown],
        scores=[_reached(one) for one in shown],
        foot=f"{request.model}, {inquiry.protocol.id}",
        wholes=[one.whole for one in shown],
    )


def _reached(shown: Shown) -> list[str]:
    """Insertion, and MSE at the last layer, of each map."""
    words = []
    for panel in shown.panels:
        evaluation = panel.evaluation
        if evaluation is None:
            words.append("")
            continue
        inside = [f"MSE {list(evaluation.internal.values())[-1].mse.item():.2g}"] if evaluation.internal else []
        words.append("\n".join([f"insertion {evaluation.insertion.auc.item():.2f}", *inside]))
    return words


def _panels_of_run(folder: Path, methods: str | None) -> list[MapGrid]:
    """The maps that a run kept: a panel for each of its pairs that has any."""
    from dataclasses import replace

    from fei.bench.report.grids import MapGrid
    from fei.bench.report.numbers import Numbers
    from fei.bench.report.pictures import kept_grid
    from fei.bench.store import Store

    panels: list[MapGrid] = []
    reasons: list[str] = []
    # a network that is loaded for its pictures may print what is no result
    with Store.open(folder, readonly=True) as store, aside():
        numbers = Numbers(store)
        rows = None if methods is None else _rows(numbers, methods.split(","))
        for pair, each in enumerate(numbers.plan.pairs):
            made = kept_grid(store, numbers, pair, rows)
            if isinstance(made, MapGrid):
                panels.append(replace(made, title=each.name if len(numbers.plan.pairs) > 1 else ""))
            elif made is not None:
                reasons.append(made)
    if not panels:
        raise DataError(reasons[0] if reasons else f"The run in '{folder}' makes no maps; give one that does.")
    for reason in reasons:
        note(f"warning: {reason}")
    return panels


def _rows(numbers: Numbers, names: list[str]) -> list[int]:
    """The methods of a run by their labels or names, in this order."""
    chosen: dict[int, None] = {}
    for name in names:
        wanted = name.strip().casefold()
        found = [
            row
            for row, method in enumerate(numbers.plan.methods)
            if wanted in (method.label.casefold(), method.name.casefold())
        ]
        if not found:
            labels = ", ".join(method.label for method in numbers.plan.methods)
            raise InputError(f"The run has no method '{name.strip()}'; it has {labels}.")
        chosen |= dict.fromkeys(found)
    return list(chosen)
