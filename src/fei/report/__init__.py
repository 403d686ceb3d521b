"""Pictures of what the methods found. The maps themselves are never rescaled; only their pictures are."""

from fei.report.overlay import colorize, figure, map_image, overlay, panel, photo

__all__ = ["colorize", "figure", "map_image", "overlay", "panel", "photo"]
