"""Options that several commands share, each declared once: ``model: opt.Model = opt.MODEL``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from fei.errors import InputError


def flag(name: str, told: str, **more: Any) -> Any:
    """An option without a value, which its help does not ask for."""
    return typer.Option(name, metavar="", help=told, **more)


Json = Annotated[bool, flag("--json", "Print one JSON document instead of text.")]
# Declared by each command so that it is accepted after it; `run` is who reads it.
Debug = Annotated[bool, flag("--debug", "Show the traceback of an error.")]
TrustCode = Annotated[
    bool, flag("--trust-code", "Run the Python code that is named there; it is remembered by its SHA-256.")
]
Seed = Annotated[int, typer.Option(help="Seed of whatever is random: the same seed gives the same result.")]
Out = Annotated[str, typer.Option(metavar="DIR", help="Folder for the results; made if it is not there.")]
Force = Annotated[bool, flag("--force", "Replace results of another question that have the same name.")]
Html = Annotated[bool, flag("--html", "Write explorer.html as well: one page to look into it all, without a server.")]
Model = Annotated[str, typer.Option(metavar="SPEC", help="The network; see 'fei models'.")]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="CLASS", help="Class to explain, by name or index; the predicted one if not given.", show_default=False
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="CLASS",
        help="Class to explain, by name or index; the predicted one if not given. Repeat it for several classes.",
        show_default=False,
    ),
]
Reference = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="What stands in for removed pixels: color, black, white, mean, blur, noise, clouds or photo; "
        "KIND:resample draws afresh at each step, also from mixtures such as color+blur:resample.",
        show_default=False,
    ),
]
Steps = Annotated[
    int | None, typer.Option(min=1, help="Optimisation steps; the preset's if not given.", show_default=False)
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="Settings of an optimisation method: fei, preview, fast or paper.", metavar="NAME", show_default=False
    ),
]
Device = Annotated[
    str, typer.Option(metavar="NAME", help="cpu, cuda, mps, or auto: CUDA where there is one, else the CPU.")
]
BatchSize = Annotated[
    int | None, typer.Option(min=1, help="Rows in one forward pass; fewer need less memory.", show_default=False)
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="An option of the method, see 'fei methods NAME'; METHOD.NAME=VALUE for one of several methods.",
        show_default=False,
    ),
]
Images = Annotated[
    list[str],
    typer.Argument(
        metavar="IMAGE", help="Image files, folders, patterns, or data sets such as imagenet:DIR.", show_default=False
    ),
]
Sample = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Take N of each folder's or data set's images at random.", show_default=False
    ),
]
# What a network is told of its images: each goes into the model's specification, see `fei.models.preprocessing`.
_TOLD = {
    "mean": (
        "R,G,B",
        "The mean it was trained with: three numbers; 'imagenet' for its mean and std; or 'none'.",
    ),
    "std": ("R,G,B", "The standard deviation it was trained with."),
    "input_size": ("N", "The side of the square it takes, in pixels."),
    "resize": ("N", "What a photograph's short side is resized to before the central square is cut out."),
    "labels": ("FILE", "The names of its classes: a line for each, or a JSON list."),
}


def told(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command whose ``model`` can be told what images the network was trained on, with options after its own."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                str | None,
                typer.Option(metavar=metavar, help=text, show_default=False, rich_help_panel="The network's images"),
            ],
        )
        for name, (metavar, text) in _TOLD.items()
    ]

    @functools.wraps(command)
    def called(**given: Any) -> Any:
        said = {name: given.pop(name) for name in _TOLD}
        if any(value is not None for value in said.values()):
            from fei.models.preprocessing import join_spec

            if (model := given["model"]) is None:
                raise InputError("The images are told of no network; name it with --model.")
            given["model"] = join_spec(model, said) if isinstance(model, str) else [join_spec(m, said) for m in model]
        return command(**given)

    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    vars(called)["__signature__"] = inspect.Signature([*keywords, *added])
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *added]}
    return called


MODEL = "efficientnet_lite0"
"""The network that comes with the install."""

OUT = "fei-out"
"""Where results go if nothing is said."""
