"""Comparisons and explanations as a notebook shows them."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fei.core.settings import FLAGSHIP, PREVIEW
from fei.errors import InputError
from fei.report.drawing import figure_bytes, opened
from fei.report.explorer._figure import comparison_figure
from fei.report.explorer.shown import Panel, Shown, single, some

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fei.core.explanation import Explanation

_MOST = 4  # images of a result in a notebook's cell: each takes about half a megabyte


class Comparison(list[Shown]):
    """Methods compared on images: shows itself in a notebook.

    Examples:
        >>> from fei.service import collect
        >>> comparison = collect(model, images[:1], ["gradcam", "random"], names=["noise"])
        >>> comparison
        Comparison(Shown('noise', 'striped', gradcam, random))
        >>> comparison.save("explorer.html").name
        'explorer.html'
    """

    def __repr__(self) -> str:
        return f"Comparison({', '.join(map(repr, self[:5]))}{', …' if len(self) > 5 else ''})"

    def show(self, image: int = 0) -> Figure:
        """A figure of one image under each method, with curves and layers (matplotlib).

        Args:
            image: Which one, counted from 0.

        Raises:
            InputError: If there is no such image.
        """
        if not 0 <= image < len(self):
            raise InputError(f"There is no image {image}; the comparison has {len(self)}, counted from 0.")
        return opened(comparison_figure(self[image]))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the explorer of all images to one HTML file."""
        from fei.report.explorer._html import write_explorer

        return write_explorer(path, self)

    def _repr_html_(self) -> str:
        return notebook_html(comparison_figure(self[0]), self[:_MOST], len(self))


def notebook_html(picture: Figure, shown: Sequence[Shown], images: int) -> str:
    """A picture that any viewer of notebooks shows, and the explorer below it, closed, for those that run scripts."""
    from fei.report.explorer._html import explorer_html

    encoded = base64.b64encode(figure_bytes(picture)).decode()
    names = html.escape(", ".join(one.name for one in shown))
    page = html.escape(explorer_html(shown), quote=True)
    left_out = f" the first {len(shown)} of {images} images" if len(shown) < images else ""
    return (
        f'<img alt="{names}" style="max-width:100%" src="data:image/png;base64,{encoded}">'
        f'<details><summary style="cursor:pointer">Explore{left_out}</summary>'
        f'<iframe title="Explorer of {names}" sandbox="allow-scripts" loading="lazy" srcdoc="{page}" '
        'style="width:100%;height:820px;border:1px solid #8884;border-radius:8px"></iframe></details>'
    )


def explanation_html(explanation: Explanation) -> str:
    """What `fei.Explanation` shows in a notebook: it has no network at hand, so nothing is measured."""
    first = some(explanation, slice(_MOST))
    return notebook_html(first.show(), explained(first), len(explanation.maps))


def _method(settings: Mapping[str, Any]) -> str:
    variant = str(settings["variant"])
    return "fei" if settings["preset"] in (FLAGSHIP, PREVIEW) else variant if variant == "fgvis" else f"fei-{variant}"


def explained(explanation: Explanation) -> list[Shown]:
    """What an explorer shows of an explanation alone."""
    settings = explanation.config["settings"]
    images = []
    for i in range(len(explanation.maps)):
        target = int(explanation.target[i])
        one = single(explanation, i)
        facts = {
            "target": f"class {target}, {explanation.config['target']}" if target >= 0 else "a callable on the output",
            "reference R": explanation.config["reference"]["kind"],
            "seed": settings["seed"],
            "versions": ", ".join(f"{name} {version}" for name, version in explanation.config["versions"].items()),
        }
        images.append(
            Shown(
                name=f"image {i + 1}",
                image=explanation.inputs[i].detach().cpu().contiguous(),
                target=target,
                label=f"class {target}" if target >= 0 else "score",
                panels=[
                    Panel(
                        _method(settings),
                        one.maps[0, 0].detach().cpu(),
                        explanation=one,
                        config=settings,
                    )
                ],
                reference=explanation.reference[i].detach().cpu(),
                seed=settings["seed"],
                provenance=facts,
            )
        )
    return images
