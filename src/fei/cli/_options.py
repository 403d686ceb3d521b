"""Options that several commands share, each declared once: ``model: opt.Model = opt.MODEL``."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
# Declared by each command so that it is accepted after it; `run` is who reads it.
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Seed = Annotated[int, typer.Option(help="Seed of whatever is random: the same seed gives the same result.")]
Out = Annotated[str, typer.Option(metavar="DIR", help="Folder for the results; made if it is not there.")]
Html = Annotated[
    bool, typer.Option("--html", help="Write explorer.html as well: one page to look into it all, without a server.")
]
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
Steps = Annotated[
    int | None, typer.Option(min=1, help="Optimisation steps; the preset's if not given.", show_default=False)
]
Preset = Annotated[
    str | None,
    typer.Option(help="Settings of an optimisation method: paper or fast.", metavar="NAME", show_default=False),
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
MODEL = "efficientnet_lite0"
"""The network that comes with the install."""

OUT = "fei-out"
"""Where results go if nothing is said."""
