"""Image files that cost far more time or memory than their pixels, told before the decoder meets them."""

import mmap
import re
from typing import Any, BinaryIO

import numpy as np
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import TiffImageFile

MAX_SCANS = 64
"""A progressive JPEG with more scans is refused; common programs write ten."""

_PLAIN_PIXELS = 1_000_000  # that Pillow reads number by number, in Python
_PACKED_BYTES = 16_000_000  # of a BMP file likewise
_MOST_WORDS, _MOST_BEFORE = 1 << 20, 1 << 24  # bytes of comments, and of anything, before a GIF's first image
_EACH = 16  # bytes that a comment counts besides its own: to read an empty one takes time too
_TILE_PIXELS = 1 << 24  # of a tile that is larger than its image
_HEADERS = 16  # what may be the head of a directory in an AVIF file
# What follows 0xFF in a JPEG, but for stuffed bytes and fill bytes. Without a length are restarts, the start, and 0x01
# to 0xBF, which libjpeg skips where it looks for its way after damage.
_MARKER = re.compile(rb"\xff([^\x00\xff])", re.DOTALL)
_BARE = frozenset([*range(0x01, 0xC0), *range(0xD0, 0xD9)])
# A directory of tags, as TIFF files and EXIF data begin: the order of bytes, and whether lengths have 64 bits.
_DIRECTORY = {b"II*\0": ("<", False), b"MM\0*": (">", False), b"II+\0": ("<", True), b"MM\0+": (">", True)}
_TIFF = re.compile(rb"II[*+]\0|MM\0[*+]")
_BYTES = np.zeros(1 << 16)  # of a value of each type
_BYTES[1:19] = (1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)


class Jpeg(JpegImageFile):
    """A JPEG file whose metadata are read by nobody but us."""

    def _read_dpi_from_exif(self) -> None:
        """Pillow would read all of them for this."""


def cost_before(stream: BinaryIO) -> str | None:
    """What is wrong with a file that costs too much even to open, in a few words; None where nothing is."""
    head = stream.read(12)
    stream.seek(0)
    if not head:
        return None
    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if head[:3] == b"\xff\xd8\xff":
            scans = _scans(content)
            return None if scans <= MAX_SCANS else f"has {scans} scans or more, of which at most {MAX_SCANS} are read"
        if head[:4] in _DIRECTORY:
            places = [0]
        elif head[4:8] == b"ftyp":
            places = [found.start() for found, _ in zip(_TIFF.finditer(content), range(_HEADERS), strict=False)]
        else:
            places = []
        if len(places) == _HEADERS or any(unfolds(content, place) for place in places):
            return "has metadata that are far larger than the file"
        if head[:4] == b"GIF8" and not _is_short(content):
            return "has more comments than picture"
    return None


def cost_of(image: Image.Image, size: int) -> str | None:
    """What is wrong with an image, in a file of that size, that costs too much to decode; None where nothing is."""
    decoders = {tile[0] for tile in image.tile} if hasattr(image, "tile") else set()
    if decoders & {"ppm", "ppm_plain"} and image.width * image.height > _PLAIN_PIXELS:
        return "has pixels as text, or of an odd range, which are read one by one, and is large"
    if "bmp_rle" in decoders and size > _PACKED_BYTES:
        return "is a packed BMP, which is read byte by byte, and is large"
    if isinstance(image, TiffImageFile):
        sides = [image.tag_v2.get(tag, 1) for tag in (322, 323)]
        area = np.prod([side if isinstance(side, int) else 1 for side in sides], dtype=float)
        if area > max(_TILE_PIXELS, 4 * image.width * image.height):
            return "has tiles that are far larger than the image"
    return None


def unfolds(content: Any, start: int = 0) -> bool:
    """Whether a directory of tags gives more bytes than it has, since many tags share them."""
    order, wide = _DIRECTORY.get(bytes(content[start : start + 4]), ("", False))
    if not order:
        return False
    number, offset, length = (8, 8, 20) if wide else (2, 4, 12)
    place = start + _whole(content[start + offset : start + 2 * offset], order)
    count = _whole(content[place : place + number], order)
    table = content[place + number : place + number + min(count * length, len(content))]
    parts = {"tag": 2, "type": 2, "count": offset, "at": offset}
    entry = np.dtype([(name, f"{order}u{width}") for name, width in parts.items()])
    entries = np.frombuffer(bytes(table), entry, count=len(table) // length)
    sizes = entries["count"].astype(float) * _BYTES[entries["type"]]
    apart = sizes > offset
    beyond = apart & (entries["at"].astype(float) + sizes > len(content) - start)  # where Pillow stops
    last = int(beyond.argmax()) if beyond.any() else len(entries)
    return bool(sizes[:last][apart[:last]].sum() > 2 * (len(content) - start))


def _whole(content: bytes, order: str) -> int:
    return int.from_bytes(content, "little" if order == "<" else "big")


def _scans(content: Any) -> int:
    """How often a JPEG goes over its pixels; counted up to the first that is one too many."""
    count, place = 0, 2
    while count <= MAX_SCANS:
        found = _MARKER.search(content, place)
        if found is None or found[1] == b"\xd9":
            break
        place = found.end()
        if found[1][0] not in _BARE:
            count += found[1] == b"\xda"
            place += max(2, int.from_bytes(content[place : place + 2], "big"))
    return count


def _is_short(content: Any) -> bool:
    """Whether what stands before a GIF's first image is of a size that can be read: Pillow adds blocks one by one."""
    place = 13 + (3 << (content[10] % 8 + 1) if len(content) > 10 and content[10] & 0x80 else 0)
    words = 0
    while place < len(content) and content[place] not in b",;":
        comment = content[place : place + 2] == b"!\xfe"
        words += _EACH * comment
        if content[place : place + 1] == b"!":
            place += 2
            while place < len(content) and content[place]:
                words += (content[place] + 1) * comment
                place += content[place] + 1
                if words > _MOST_WORDS or place > _MOST_BEFORE:
                    return False
        place += 1
    return words <= _MOST_WORDS and place <= _MOST_BEFORE
