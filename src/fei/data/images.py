"""Reading images that anyone may have made: right colours, right way up, and never more memory than promised."""

import contextlib
import functools
import importlib
import os
import stat
import warnings
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image
from PIL.TiffImagePlugin import TiffImageFile

from fei.data._costly import Jpeg, cost_before, cost_of, unfolds
from fei.errors import DataError, InputError

MAX_PIXELS = 120_000_000
"""Larger images are refused before they are decoded; the 108 megapixels of today's phones are read."""

MAX_FILE_BYTES = 500_000_000
"""Larger files are refused before they are opened."""

# Only formats that Pillow decodes in process, as its modules spell them: it hands EPS, for one, to another program.
_FORMATS = ("Jpeg", "Png", "WebP", "Gif", "Bmp", "Tiff", "Ppm", "Avif")

_PHOTOGRAPHS = Path(__file__).parent / "photographs"

# Tags of a TIFF file, by the numbers of its specification.
_TIFF_BITS, _TIFF_PHOTOMETRIC, _TIFF_PLANAR = 258, 262, 284

_EXIF_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def read_image(path: str | os.PathLike[str], *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Read an image file as 8-bit RGB, as a person would see it.

    The EXIF orientation is applied, transparency is composited on white, 16 bits are scaled to 8, and of an animation
    the first frame is taken. Colour profiles are not applied, as in the training of the usual networks.

    Args:
        path: The file: JPEG, PNG, WebP, GIF, BMP, TIFF, PPM or AVIF.
        max_pixels: Larger images are refused before they are decoded.

    Returns:
        The image in mode "RGB".

    Raises:
        InputError: If there is no such file, or it may not be read.
        DataError: If the file is not an image, is damaged, or is larger than `MAX_FILE_BYTES` or `max_pixels`.

    Examples:
        >>> picture = fei.data.read_image("photos/a.png")
        >>> picture.mode, picture.size
        ('RGB', (20, 20))
    """
    file = Path(path)
    with _open_file(file) as stream:
        return to_rgb(_decode(stream, file, max_pixels), what=f"'{file}'")


def demo_image(name: str = "chelsea") -> Image.Image:
    """One of the photographs that come with the install.

    Args:
        name: "astronaut", "chelsea" (a cat), "coffee" or "rocket".

    Returns:
        The image in mode "RGB".

    Raises:
        InputError: If there is no image of that name.

    Examples:
        >>> fei.data.demo_image("chelsea").size
        (451, 300)
    """
    files = {file.stem: file for file in sorted(_PHOTOGRAPHS.iterdir()) if file.suffix in (".png", ".jpg")}
    if name not in files:
        raise InputError(f"There is no demo image '{name}'; choose one of {', '.join(files)}.")
    return read_image(files[name])


def to_rgb(image: Image.Image, *, what: str = "The image") -> Image.Image:
    """Convert a decoded image of any mode to upright 8-bit RGB, on white where it is transparent.

    Raises:
        DataError: If its pixel values have no agreed meaning as colours; it calls the image `what`.
    """
    image = _upright(image)
    if image.mode in ("P", "PA") and image.palette is None:
        raise DataError(f"{what} takes its colours from a palette that is missing; save it as RGB.")
    if image.mode.startswith("I") or image.mode == "F":
        image = _wide_to_8_bit(image, what)
    try:
        rgb = image.convert("RGBA" if image.has_transparency_data else "RGB")
    except ValueError as error:
        raise DataError(f"{what} has the colour mode {image.mode}, which is not read; save it as RGB.") from error
    if rgb.mode == "RGBA":
        transparent, rgb = rgb, Image.new("RGB", rgb.size, "white")
        rgb.paste(transparent, mask=transparent.getchannel("A"))
    rgb.info.clear()  # the orientation has been applied and must not be applied again
    return rgb


def _open_file(file: Path) -> BinaryIO:
    """Open a regular file of acceptable size for reading."""
    try:
        status = file.stat()
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have, such as one with a zero byte
        raise InputError(f"There is no image file '{file}'; check the path.") from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise InputError(f"'{file}' is {kind}; give the path of an image file.")
    if status.st_size > MAX_FILE_BYTES:
        size, most = status.st_size / 1e6, MAX_FILE_BYTES / 1e6
        raise DataError(f"'{file}' has {size:,.0f} MB and at most {most:,.0f} MB are read; save it smaller.")
    try:
        return file.open("rb")
    except OSError as error:
        raise InputError(f"'{file}' cannot be opened ({error.strerror}); check its permissions.") from error


def _decode(stream: BinaryIO, file: Path, max_pixels: int) -> Image.Image:
    """Decode the first frame, after a look at the size that the header declares."""
    formats = _formats()
    try:
        with warnings.catch_warnings():
            # Pillow's size warning starts below our limit; what libtiff finds odd is not the caller's concern.
            warnings.simplefilter("ignore")
            _refuse(cost_before(stream), file)
            is_jpeg = stream.read(3) == b"\xff\xd8\xff"
            stream.seek(0)
            image = Jpeg(stream) if is_jpeg else Image.open(stream, formats=formats)
            if image.width * image.height > max_pixels:
                raise Image.DecompressionBombError
            _refuse(cost_of(image, os.fstat(stream.fileno()).st_size), file)
            image.load()
            return _as_tiff_means_it(image, file) if isinstance(image, TiffImageFile) else image
    except (DataError, MemoryError):
        raise
    except Image.DecompressionBombError as error:
        raise DataError(f"'{file}' has more than {max_pixels / 1e6:,.3g} million pixels; save it smaller.") from error
    except Exception as error:  # on a damaged file decoders raise nearly anything
        why = f"it is damaged, cut short, or in a format other than {', '.join(formats)}"
        raise DataError(f"'{file}' cannot be read as an image: {why}; save it again in one of these.") from error


@functools.cache
def _formats() -> list[str]:
    """Those that this Pillow decodes. Their modules are loaded and no others, which takes less than half as long."""
    for name in _FORMATS:
        with contextlib.suppress(ImportError):  # older ones know no AVIF
            importlib.import_module(f"PIL.{name}ImagePlugin")
    return [name.upper() for name in _FORMATS if name.upper() in Image.OPEN]


def _refuse(cost: str | None, file: Path) -> None:
    if cost is not None:
        raise DataError(f"'{file}' {cost}; save it again, as PNG or JPEG.")


def _as_tiff_means_it(image: TiffImageFile, file: Path) -> Image.Image:
    """Put right, or refuse, what Pillow decodes to other pixels than those that were saved."""
    deep = max(image.tag_v2.get(_TIFF_BITS, (8,))) > 8
    if deep and image.tag_v2.get(_TIFF_PLANAR) == 2 and len(image.getbands()) > 1:
        raise DataError(f"'{file}' is a 16-bit TIFF with one plane per colour, which is not read; save it interleaved.")
    if image.mode.startswith("I;16") and image.tag_v2.get(_TIFF_PHOTOMETRIC) == 0:  # zero is white
        return Image.fromarray(65535 - np.asarray(_upright(image)).astype(np.uint16))
    return image


def _upright(image: Image.Image) -> Image.Image:
    """Apply the EXIF orientation, if there is a readable one."""
    try:
        if _metadata_unfold(image):
            return image
        orientation = image.getexif().get(_EXIF_ORIENTATION)
    except Exception:  # damaged metadata does not make the pixels worse
        return image
    return image.transpose(_UPRIGHT[orientation]) if orientation in _UPRIGHT else image


def _metadata_unfold(image: Image.Image) -> bool:
    """Whether an image's metadata would take far more memory than they have bytes."""
    found = image.info.get("exif")
    if found is None and isinstance(text := image.info.get("Raw profile type exif"), str):
        found = bytes.fromhex("".join(text.split("\n")[3:]))
    while isinstance(found, bytes) and found.startswith(b"Exif\0\0"):
        found = found[6:]
    return isinstance(found, bytes) and unfolds(found)


def _wide_to_8_bit(image: Image.Image, what: str) -> Image.Image:
    """Scale 16-bit greyscale from [0, 65535], or floating point from [0, 1], to 8-bit greyscale."""
    pixels = np.asarray(image)
    lowest, highest = pixels.min(), pixels.max()
    if image.mode == "F":
        if not (lowest >= 0 and highest <= 1):
            raise DataError(f"{what} has floating-point pixels outside [0, 1]; scale them to [0, 1] or save 8 bits.")
        return Image.fromarray((pixels * 255 + 0.5).astype(np.uint8))
    if lowest < 0 or highest > 65535:
        raise DataError(f"{what} has integer pixels outside [0, 65535]; save it with 8 or 16 bits per channel.")
    if isinstance(clear := image.info.get("transparency"), int):
        pixels = np.where(pixels == clear, 65535, pixels)
    # 65535 = 255 · 257, so white stays white and 128 is half a step of rounding.
    return Image.fromarray(((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8))
