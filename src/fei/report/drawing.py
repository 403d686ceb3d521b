"""Maps as colours, over the photograph, beside it, and as figures."""

from __future__ import annotations

import io
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image

from fei.errors import InputError
from fei.report.whole import Whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor

    from fei.core.explanation import Explanation

Pixels = NDArray[np.uint8]
"""RGB of shape (H, W, 3)."""

FRAMED = "photograph, framed: what the network saw"
"""What stands below or above all of a photograph."""

# Perceptually uniform: equal differences of the map look equally large, also in grey and to colour-blind eyes.
_COLORMAP = "inferno"
_INK, _FAINT = "#1a1a1a", "#6b6b6b"
_OPACITY = 0.6
QUIET: dict[str, Any] = {"span": (0.0, 1.0), "opacity": 0.25}
"""How a map is drawn in which nothing was found: on the scale of masks, so that noise is not stretched, and faint."""

# Sizes in inches, of a panel that is read at the width of a web page.
_CELL, _GAP, _MARGIN, _BAR, _TICKS = 2.9, 0.12, 0.16, 0.1, 0.62
_HEAD, _NAMES = 0.54, 0.28
_FRAME_SIDE, _FRAME_TITLE = 1.5, 0.42
_NOTE, _NOTE_LETTERS = 0.17, 140
# The backends of matplotlib that open windows.
_WINDOWS = {"macosx", "qtagg", "qt5agg", "tkagg", "gtk3agg", "gtk4agg", "wxagg"}


def colorize(attribution: NDArray[Any], span: tuple[float, float] | None = None) -> Pixels:
    """A map as colours, from the lowest of its values to the highest.

    Args:
        attribution: A map (H, W). Where all its values are equal, all pixels get the lowest colour.
        span: The values that get the lowest and the highest colour, if not the map's own.

    Returns:
        RGB of shape (H, W, 3).

    Raises:
        InputError: If it is no map, or holds values that are not finite.

    Examples:
        >>> fei.report.colorize(maps[0, 0].numpy()).shape
        (16, 16, 3)
    """
    values = _checked_map(attribution)
    places = _stretched(values) if span is None else ((values - span[0]) / (span[1] - span[0])).clip(0, 1)
    colours: Pixels = matplotlib.colormaps[_COLORMAP](places, bytes=True)[..., :3]
    return colours


def map_image(attribution: NDArray[Any]) -> Image.Image:
    """The colours of a map as an image to save.

    Examples:
        >>> fei.report.map_image(maps[0, 0].numpy()).size
        (16, 16)
    """
    return Image.fromarray(colorize(attribution))


def overlay(
    image: Pixels,
    attribution: NDArray[Any],
    opacity: float = _OPACITY,
    *,
    span: tuple[float, float] | None = None,
) -> Pixels:
    """A map's colours laid over its photograph.

    Args:
        image: The photograph (H, W, 3), 8-bit RGB.
        attribution: The map (H, W) of the same size.
        opacity: 0 gives the photograph, 1 the colours of the map.
        span: As for `colorize`.

    Returns:
        (1 − opacity) · photograph + opacity · colours, 8-bit RGB.

    Raises:
        InputError: If the two do not fit, or the opacity is outside [0, 1].

    Examples:
        >>> picture = fei.report.photo(images[0])
        >>> bool((fei.report.overlay(picture, maps[0, 0].numpy(), opacity=0) == picture).all())
        True
    """
    if not 0 <= opacity <= 1:
        raise InputError(f"The opacity is {opacity}; give a number from 0 (the photograph) to 1 (the map).")
    colours = colorize(attribution, span)
    if image.shape != colours.shape or image.dtype != np.uint8:
        raise InputError(
            f"The image is {image.dtype} of shape {image.shape} and the map has the shape {colours.shape[:2]}; give "
            "8-bit RGB (H, W, 3) and a map (H, W) of the same size."
        )
    blend = (1 - opacity) * image.astype(np.float64) + opacity * colours.astype(np.float64)
    return np.rint(blend).astype(np.uint8)


def place(
    photograph: Image.Image,
    box: Sequence[float],
    attribution: NDArray[Any],
    opacity: float = _OPACITY,
    *,
    span: tuple[float, float] | None = None,
) -> Pixels:
    """A map laid over the part of a photograph that the network saw; the rest stays as it is.

    Args:
        photograph: All of it, at any size.
        box: (left, top, right, bottom) of that part, in its pixels.
        attribution: The map (H, W) of that part.
        opacity: As for `overlay`.
        span: As for `colorize`.

    Returns:
        8-bit RGB of the photograph's size.
    """
    left, top, right, bottom = (round(value) for value in box)
    size = max(1, right - left), max(1, bottom - top)
    colours = Image.fromarray(colorize(attribution, span)).resize(size, Image.Resampling.BILINEAR)
    result = photograph.convert("RGB")
    result.paste(Image.blend(result.crop((left, top, left + size[0], top + size[1])), colours, opacity), (left, top))
    return np.asarray(result)


def photo(image: Tensor) -> Pixels:
    """A network's input as a picture.

    Args:
        image: (C, H, W). Values in [0, 1] are colours; where some lie outside, as after normalisation, the image is
            stretched to its own range. With other than three channels their mean is shown in grey.

    Returns:
        8-bit RGB (H, W, 3).

    Raises:
        InputError: If it has another shape.

    Examples:
        >>> picture = fei.report.photo(images[0])
        >>> picture.shape, str(picture.dtype)
        ((16, 16, 3), 'uint8')
    """
    if image.ndim != 3 or not image.numel():
        raise InputError(f"The image has the shape {tuple(image.shape)}; give one image (C, H, W).")
    values = image.detach().cpu().double().numpy()
    if not np.isfinite(values).all():
        raise InputError("The image holds NaN or infinite values; replace them first.")
    if values.min() < 0 or values.max() > 1:
        values = _stretched(values)
    if len(values) != 3:
        values = np.repeat(values.mean(0, keepdims=True), 3, axis=0)
    pixels: Pixels = np.rint(values.transpose(1, 2, 0) * 255).astype(np.uint8)
    return pixels


def panel(
    image: Pixels,
    attribution: NDArray[Any],
    *,
    headline: str,
    details: str,
    notes: Sequence[str] = (),
    whole: Whole | None = None,
    unit: str = "value of the map",
    span: tuple[float, float] | None = None,
    opacity: float = _OPACITY,
) -> Figure:
    """Photograph, overlay and map side by side, with the scale of the map's values.

    Args:
        image: The photograph (H, W, 3), 8-bit RGB.
        attribution: The map (H, W).
        headline: What was found, in one short line.
        details: How it was found, in one line.
        notes: What a reader should know before believing it, below the pictures.
        whole: All of the photograph, if the network saw only a part.
        unit: What the map's values are.
        span: The ends of the scale, if not the lowest and the highest value of the map.
        opacity: Of the overlay.

    Returns:
        A figure to save; it belongs to no window and needs no closing.

    Examples:
        >>> photograph = fei.report.photo(images[0])
        >>> fei.report.panel(photograph, maps[0, 0].numpy(), headline="A map", details="of noise").savefig("map.png")
    """
    blended = overlay(image, attribution, opacity, span=span)
    cell_height = _CELL * image.shape[0] / image.shape[1]
    width = 2 * _MARGIN + 3 * _CELL + 3 * _GAP + _BAR + _TICKS
    below = [line for note in notes for line in textwrap.wrap(note, _NOTE_LETTERS)]
    names = _NAMES + _NOTE * len(below)
    height = _MARGIN + _HEAD + cell_height + names
    result = _Picture(figsize=(width, height), dpi=160, facecolor="white")

    def axes(left: float, bottom: float, box_width: float, box_height: float) -> Axes:
        return result.add_axes((left / width, bottom / height, box_width / width, box_height / height))

    cells = [axes(_MARGIN + i * (_CELL + _GAP), names, _CELL, cell_height) for i in range(3)]
    names_below = ["photograph", "overlay", "map"]
    if whole is None:
        cells[0].imshow(image, interpolation="lanczos")
    else:
        show_whole(cells[0], whole)
        names_below[0] = FRAMED
    cells[1].imshow(blended, interpolation="lanczos")
    # The map is shown pixel by pixel: smoothing would show an evenness that it does not have.
    cells[2].imshow(colorize(attribution, span), interpolation="nearest")
    for cell, name in zip(cells, names_below, strict=True):
        bare(cell)
        cell.text(0.5, -0.03, name, transform=cell.transAxes, ha="center", va="top", fontsize=9, color=_FAINT)
    bar = result.colorbar(scale(attribution, span), cax=axes(_MARGIN + 3 * (_CELL + _GAP), names, _BAR, cell_height))
    bar.set_label(unit, fontsize=8, color=_FAINT)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2, width=0.6, color=_FAINT, labelcolor=_FAINT, pad=2)
    bar.ax.yaxis.get_offset_text().set(fontsize=8, color=_FAINT)
    told = [(line, height - _NOTE * (len(below) - number), 8.5, "normal", _INK) for number, line in enumerate(below)]
    for text, top, size, weight, colour in (
        (shortened(headline, 75), 0.13, 12.5, "bold", _INK),
        (shortened(details, 130), 0.39, 9, "normal", _FAINT),
        *told,
    ):
        result.text(
            _MARGIN / width,
            1 - top / height,
            text,
            va="top",
            fontsize=size,
            fontweight=weight,
            color=colour,
            parse_math=False,  # a class may be called anything
        )
    return result


def show_whole(axes: Axes, whole: Whole) -> None:
    """Draw all of a photograph with a frame around what the network saw of it."""
    axes.imshow(whole.photograph, interpolation="lanczos")
    left, top, right, bottom = (value - 0.5 for value in whole.box)
    frame = Rectangle((left, top), right - left, bottom - top, fill=False, clip_on=False)
    frame.set(edgecolor="white", linewidth=1.2, linestyle=(0, (4, 3)))
    axes.add_patch(frame)


def figure(explanation: Explanation, labels: Sequence[str] | None = None) -> Figure:
    """One row per image: the photograph, the map over it, and the mask α of each quantile as a film strip.

    Args:
        explanation: What an optimisation method found.
        labels: The names of the network's classes, in order.

    Returns:
        A figure to save or, as the last value of a notebook's cell, to see.

    Examples:
        >>> result = fei.FEI(model, "vm", steps=2).explain(images[:1])
        >>> fei.report.figure(result, model.labels).savefig("result.png")
    """
    rows, masks = explanation.alphas.shape[:2]
    image_height, image_width = explanation.maps.shape[-2:]
    side = _FRAME_SIDE * image_height / image_width
    result = _Picture(figsize=(_FRAME_SIDE * (masks + 2), (side + _FRAME_TITLE) * rows), layout="compressed", dpi=150)
    grid: NDArray[Any] = result.subplots(rows, masks + 2, squeeze=False)
    for row, axes in enumerate(grid):
        picture = photo(explanation.inputs[row])
        axes[0].imshow(picture)
        axes[0].set_title("input", fontsize=8)
        evidence = explanation.evidence
        quiet = QUIET if evidence is not None and not evidence.found[row] else {}
        axes[1].imshow(overlay(picture, _numpy(explanation.maps[row, 0]), **quiet))
        name = _class_name(int(explanation.target[row]), labels)
        axes[1].set_title(f"{name}\npreview" if explanation.preview else name, fontsize=8, parse_math=False)
        for mask, axis in enumerate(axes[2:]):
            # White is what the mask keeps; all frames share one scale, so that they can be compared.
            axis.imshow(_numpy(explanation.alphas[row, mask]).mean(0), cmap="gray", vmin=0, vmax=1)
            axis.set_title(_mask_title(explanation, row, mask), fontsize=8)
        for axis in axes:
            bare(axis)
    return result


def notebook_figure(**options: Any) -> Figure:
    """A figure that belongs to no window, needs no closing, and shows itself as the last value of a notebook's cell."""
    return _Picture(**options)


def opened(figure: Figure) -> Figure:
    """A figure, in a window where a script has a desktop; a notebook shows it itself."""
    if "ipykernel" not in sys.modules and matplotlib.get_backend().lower() in _WINDOWS:
        from matplotlib import pyplot

        manager: Any = pyplot.figure(figsize=figure.get_size_inches()).canvas.manager
        manager.canvas.figure = figure
        figure.set_canvas(manager.canvas)
        pyplot.show()
    return figure


class _Picture(Figure):
    """A figure that shows itself in a notebook, although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        return figure_bytes(self)


def figure_bytes(figure: Figure, form: str = "png") -> bytes:
    """A figure as the bytes of a file of that form."""
    file = io.BytesIO()
    # half the time for a sixth more bytes
    quickly: Any = {"pil_kwargs": {"compress_level": 2}} if form == "png" else {}
    figure.savefig(file, format=form, **quickly)
    return file.getvalue()


def _class_name(index: int, labels: Sequence[str] | None) -> str:
    if index < 0:
        return "map"  # a callable score was explained, and no class
    return shortened(labels[index], 22) if labels is not None and index < len(labels) else f"class {index}"


def _mask_title(explanation: Explanation, row: int, mask: int) -> str:
    settings, trace = explanation.config["settings"], explanation.trace
    name = "α" if settings["constraint"] in {"l1", "none"} else f"q = {settings['quantiles'][mask]:g}"
    return f"{name}\nφ {trace.phi[row, mask, -1]:.2f}, area {trace.area[row, mask, -1]:.2f}"


def scale(attribution: NDArray[Any], span: tuple[float, float] | None) -> ScalarMappable:
    """From a map's values to the colours that `colorize` gives them, for a colour bar."""
    values = _checked_map(attribution)
    low, high = (values.min(), values.max()) if span is None else span
    return ScalarMappable(Normalize(low, high if high > low else low + 1), _COLORMAP)


def shortened(text: str, most: int) -> str:
    """Text on one line that fits its place."""
    line = " ".join(text.splitlines())
    return line if len(line) <= most else line[: most - 1] + "…"


def bare(axes: Axes) -> None:
    """Take ticks and frame off."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _numpy(tensor: Tensor) -> NDArray[Any]:
    values: NDArray[Any] = tensor.detach().cpu().double().numpy()
    return values


def _stretched(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values from 0, the lowest, to 1, the highest; 0 where all are equal."""
    if max(abs(values.min()), abs(values.max())) > np.finfo(np.float64).max / 2:
        values = values / 2  # the extremes may be further apart than the largest number
    low, span = values.min(), values.max() - values.min()
    return (values - low) / span if span > 0 else np.zeros_like(values)


def _checked_map(attribution: NDArray[Any]) -> NDArray[np.float64]:
    try:
        values = np.asarray(attribution)
        values = values if np.iscomplexobj(values) else values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"The map is a {type(attribution).__name__}; give an array of numbers (H, W).") from error
    if np.iscomplexobj(values):
        raise InputError("The map holds complex numbers; give an array of real numbers (H, W).")
    if values.ndim != 2 or not values.size:
        raise InputError(f"The map has the shape {values.shape}; give one map (H, W).")
    if not np.isfinite(values).all():
        raise InputError("The map holds NaN or infinite values; a map of finite numbers is needed.")
    return values
