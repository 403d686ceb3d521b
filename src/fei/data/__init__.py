"""Images: read from files, or taken from those that came with the install."""

from fei.data.images import demo_image, read_image

__all__ = ["demo_image", "read_image"]
