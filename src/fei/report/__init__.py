"""Pictures of what the methods found. The maps themselves are never rescaled; only their pictures are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fei.common.lazy import lazy

if TYPE_CHECKING:
    from fei.report.drawing import colorize, figure, map_image, overlay, panel, photo

__all__ = ["colorize", "figure", "map_image", "overlay", "panel", "photo"]
__getattr__ = lazy(__name__, dict.fromkeys(__all__, "drawing"))
