"""A visitor's photo: bytes that anyone may have made, and what the network sees in them."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from fei.app.limits import Limits
from fei.data.images import read_image
from fei.errors import DataError, InputError

_ENDINGS = {"JPEG": ".jpg", "TIFF": ".tif"}
_PREVIEW = 480


@dataclass(frozen=True)
class Photo:
    """A photo that could be read. Its pixels are read again whenever they are needed: there may be many photos.

    Attributes:
        file: Where its bytes are, unchanged, under a name of ours.
        preview: A small version of it as a data: address.
    """

    file: Path
    preview: str

    def read(self) -> Image.Image:
        """Its pixels."""
        return read_image(self.file)


def keep_photo(content: bytes, folder: Path, limits: Limits) -> Photo:
    """Read a photo from bytes, and keep them in a folder.

    Args:
        content: The bytes of an image file.
        folder: Where to keep them, as "photo" with the ending of what they are.
        limits: How large it may be.

    Raises:
        DataError: If it is too large or no image; nothing is kept then.
    """
    if len(content) > limits.upload_bytes:
        raise DataError(too_large(limits))
    file = folder / "photo"
    file.write_bytes(content)
    try:
        image = read_image(file, max_pixels=limits.pixels)
        with Image.open(file) as header:
            kind = header.format or "PNG"
        return Photo(file.rename(folder / ("photo" + _ENDINGS.get(kind, f".{kind.lower()}"))), preview(image))
    except (InputError, DataError) as error:
        file.unlink()
        raise DataError(str(error).replace(f"'{file}'", "The photo")) from error  # a visitor knows no such file


def too_large(limits: Limits) -> str:
    """What a visitor with too large a file is told."""
    return f"The photo has more than {limits.upload_bytes / 1e6:g} MB; save it smaller."


def preview(image: Image.Image) -> str:
    """A small version of an image as a data: address."""
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg(image, _PREVIEW)).decode()}"


def jpeg(image: Image.Image, most: int | None = None) -> bytes:
    """An image as the bytes of a JPEG file.

    Args:
        image: The image.
        most: Its longer side, where it shall be smaller than it is.
    """
    file = io.BytesIO()
    if most is not None:
        image = image.copy()
        image.thumbnail((most, most))
    image.save(file, "JPEG", quality=85)
    return file.getvalue()
