"""Small pictures inside a page: photographs and maps as addresses that hold them."""

from __future__ import annotations

import base64
import io

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fei.report.drawing import Pixels

_COLOURS = 64  # steps that the eye takes for none, in half the bytes of 256
_QUALITY = 85


def photograph_address(pixels: Pixels) -> str:
    """A photograph as an address that holds it."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=_QUALITY)
    return _address(file, "jpeg")


def map_address(values: NDArray[np.float32]) -> str:
    """A map in colours from its 1st to its 99th percentile, as the explorer has it, as an address that holds it."""
    low, high = np.percentile(values, (1, 99))
    share = (values.clip(low, high) - low) / ((high - low) or 1)
    picture = Image.fromarray(np.rint(share * (_COLOURS - 1)).astype(np.uint8))
    palette = matplotlib.colormaps["inferno"](np.linspace(0, 1, _COLOURS), bytes=True)[:, :3]
    picture.putpalette(np.ascontiguousarray(palette).tobytes())
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return _address(file, "png")


def _address(file: io.BytesIO, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
