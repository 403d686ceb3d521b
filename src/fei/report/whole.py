"""A photograph and the part of it that a network saw; apart from the drawing, which takes long to load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image


class Whole(NamedTuple):
    """All of a photograph of which a network saw a part.

    Attributes:
        photograph: All of it, at any size.
        box: (left, top, right, bottom) of what the network saw, in its pixels.
    """

    photograph: Image.Image
    box: Sequence[float]
