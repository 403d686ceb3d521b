"""Damaged image files: whole ones that Pillow wrote, changed chunk by chunk with their checksums put right."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from _fuzz_mutate import NUMBERS, mutate_bytes
from _fuzz_worker import MEBIBYTE, Case
from PIL import Image

from fei.data import read_image

_SIDES = (*(0, 1, 2, 3, 7, 9, 255, 1000) * 2, 3000, 10_954, 65_535, 120_000_000, 2**31 - 1, 2**32 - 1)


class Images:
    """Image files of all formats that are read."""

    name = "images"
    # 120 million pixels of four bytes, twice: decoded, and converted; three times on the way from transparency to white
    max_bytes = 2048 * MEBIBYTE

    def valid(self) -> Sequence[Case]:
        """Each of the whole files."""
        return [Case({"image": content}, "image") for content in seeds()]

    def make(self, rng: Random) -> Case:
        """One of them damaged, or noise that begins like one."""
        content = rng.choice(seeds())
        chance = rng.random()
        if chance < 0.02:
            content = content[: rng.randint(0, 16)] + rng.randbytes(rng.randint(0, 400))
        elif chance < 0.6:
            content = _by_format(rng, content)
        else:
            content = mutate_bytes(rng, content)
        return Case({"image": content}, "image")

    def read(self, folder: Path, ask: tuple[str, ...]) -> None:
        """As `fei explain` and every data set read an image."""
        image = read_image(folder / "image")
        if image.mode != "RGB" or not image.width * image.height:
            raise AssertionError(f"an image of mode {image.mode} and size {image.size}")


@cache
def seeds() -> tuple[bytes, ...]:
    """Small files: every format, and of each the modes, compressions and extras that have code of their own."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (9, 7, 4), dtype=np.uint8)
    rgba, deep = Image.fromarray(noise), Image.fromarray(rng.integers(0, 65536, (9, 7), dtype=np.uint16))
    rgb, grey = rgba.convert("RGB"), rgba.convert("L")
    palette, bits, cmyk = rgb.quantize(8), grey.convert("1"), rgb.convert("CMYK")
    turned = Image.Exif()
    turned[0x0112] = 6
    frames: dict[str, Any] = {"save_all": True, "append_images": [rgb.rotate(90), rgb.rotate(180)], "duration": 40}
    plan: list[tuple[Image.Image, str, dict[str, Any]]] = [
        *((image, "PNG", {}) for image in (rgb, rgba, grey, palette, bits, deep, rgba.convert("LA"))),
        (palette, "PNG", {"transparency": bytes(range(8))}),
        (rgb, "PNG", {"exif": turned, "icc_profile": b"profile" * 9, "dpi": (72, 72), **frames}),
        *((image, "JPEG", {}) for image in (rgb, grey, cmyk)),
        (rgb, "JPEG", {"progressive": True, "exif": turned, "comment": b"words", "subsampling": 2}),
        (palette, "GIF", {"transparency": 0}),
        (rgb, "GIF", {**frames, "loop": 0}),
        (rgb, "WEBP", {"lossless": True}),
        (rgba, "WEBP", {"quality": 50, "exif": turned}),
        (rgb, "WEBP", frames),
        *((image, "BMP", {}) for image in (rgb, rgba, grey, palette, bits)),
        *((image, "TIFF", {}) for image in (rgb, rgba, grey, palette, bits, cmyk, deep, grey.convert("F"))),
        *((rgb, "TIFF", {"compression": name}) for name in ("tiff_lzw", "tiff_deflate", "packbits", "jpeg")),
        (bits, "TIFF", {"compression": "group4"}),
        (rgb, "TIFF", {"exif": turned, "tiffinfo": {270: "words"}, "big_tiff": True}),
        *((image, "PPM", {}) for image in (rgb, grey, bits, deep)),
        *([(rgb, "AVIF", {"speed": 10})] if "AVIF" in Image.registered_extensions().values() else []),
    ]
    return tuple(_saved(*entry) for entry in plan)


def _saved(image: Image.Image, form: str, options: dict[str, Any]) -> bytes:
    if image.mode == "F":
        image = Image.fromarray(np.asarray(image) / np.float32(255))
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def _by_format(rng: Random, content: bytes) -> bytes:
    for start, change in _CHANGES.items():
        if content.startswith(start):
            return change(rng, content)
    return mutate_bytes(rng, content)


def _change_png(rng: Random, content: bytes) -> bytes:
    chunks, place = [], 8
    while place + 8 <= len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + length]))
        place += 12 + length
    for _ in range(rng.randint(1, 3)):
        index = rng.randrange(len(chunks))
        kind, data = chunks[index]
        action = rng.randrange(6)
        if action == 0:
            side = struct.pack(">II", rng.choice(_SIDES), rng.choice(_SIDES))
            chunks[0] = (b"IHDR", side + mutate_bytes(rng, chunks[0][1][8:], 1))
        elif action == 1:
            chunks[index] = (kind, mutate_bytes(rng, data, 3))
        elif action == 2:
            bomb = _bomb(rng.choice((10**3, 3 * 10**7)))
            extra = rng.choice(
                ((b"zTXt", b"k\0\0" + bomb), (b"iCCP", b"k\0\0" + bomb), (b"iTXt", b"k\0\1\0\0\0" + bomb))
            )
            chunks.insert(rng.randint(1, len(chunks)), extra)
        elif action == 3:
            chunks.insert(rng.randint(0, len(chunks)), chunks[index])
        elif action == 4:
            kinds = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"fcTL", b"fdAT", b"acTL", b"eXIf", b"gAMA", b"pHYs", b"cHRM")
            chunks[index] = (rng.choice(kinds), data)
        elif kind in (b"IDAT", b"fdAT"):
            bomb = _bomb(rng.choice((0, 40, 3 * 10**7)))
            chunks[index] = (kind, data[:4] + bomb if kind == b"fdAT" else bomb)
    parts = (struct.pack(">I", len(data)) + kind + data + _crc(kind + data) for kind, data in chunks)
    return content[:8] + b"".join(parts)


@cache
def _bomb(size: int) -> bytes:
    return zlib.compress(bytes(size))


def _crc(data: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(data))


def _change_jpeg(rng: Random, content: bytes) -> bytes:
    """Change a segment and put its length right."""
    segments, place = [], 2
    while content[place + 1 : place + 2] not in (b"", b"\xda"):
        (length,) = struct.unpack(">H", content[place + 2 : place + 4])
        segments.append(content[place : place + 2 + length])
        place += 2 + length
    rest = content[place:]
    index = rng.randrange(len(segments))
    marker, data = segments[index][:2], segments[index][4:]
    action = rng.randrange(5)
    if action == 0 and marker[1] in (0xC0, 0xC2):
        data = data[:1] + struct.pack(">HH", *(rng.choice(_SIDES) % 65536 for _ in range(2))) + data[5:]
    elif action == 1:
        segments.insert(rng.randint(0, len(segments)), segments[index])
    elif action == 2:
        rest = mutate_bytes(rng, rest, 3)
    elif action == 3:
        marker = bytes(
            (0xFF, rng.choice((0xC0, 0xC1, 0xC2, 0xC3, 0xC4, 0xC9, 0xDB, 0xDD, 0xE0, 0xE1, 0xE2, 0xED, 0xEE)))
        )
    else:
        data = mutate_bytes(rng, data, 3)
    segments[index] = marker + struct.pack(">H", (len(data) + 2) % 65536) + data
    return content[:2] + b"".join(segments) + rest


def _change_tiff(rng: Random, content: bytes) -> bytes:
    """Change the type, count or value of entries of the directory."""
    if content[2] != 42 or content[:2] != b"II":  # a BigTIFF
        return mutate_bytes(rng, content)
    data = bytearray(content)
    (place,) = struct.unpack("<I", data[4:8])
    (entries,) = struct.unpack("<H", data[place : place + 2])
    for _ in range(rng.randint(1, 3)):
        entry = place + 2 + 12 * rng.randrange(max(1, entries))
        action = rng.randrange(4)
        if action == 0:
            data[entry : entry + 2] = struct.pack(
                "<H", rng.choice((254, 256, 257, 258, 259, 262, 273, 277, 279, 284, 320, 34665))
            )
        elif action == 1:
            data[entry + 2 : entry + 4] = struct.pack("<H", rng.randint(0, 14))
        elif action == 2:
            data[entry + 4 : entry + 8] = struct.pack("<I", rng.choice(NUMBERS) % 2**32)
        else:
            value = rng.choice((*_SIDES, place, 1, 2, 5, 6, 7, 8, 16, 32773, 32946, 34712, 50000)) % 2**32
            data[entry + 8 : entry + 12] = struct.pack("<I", value)
    return bytes(data)


def _change_riff(rng: Random, content: bytes) -> bytes:
    data = mutate_bytes(rng, content[12:], 4)
    return b"RIFF" + struct.pack("<I", len(data) + 4) + b"WEBP" + data


def _change_gif(rng: Random, content: bytes) -> bytes:
    if rng.random() < 0.5:
        return content[:6] + struct.pack("<HH", *(rng.choice(_SIDES) % 65536 for _ in range(2))) + content[10:]
    return content[:10] + mutate_bytes(rng, content[10:], 4)


def _change_bmp(rng: Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        place = rng.choice((10, 14, 18, 22, 28, 30, 46))
        data[place : place + 4] = struct.pack("<I", rng.choice((*_SIDES, *range(9), 16, 24, 32)) % 2**32)
    return bytes(data)


def _change_ppm(rng: Random, content: bytes) -> bytes:
    words = content.split(None, 3)
    for _ in range(rng.randint(1, 2)):
        place = rng.randrange(1, min(4, len(words)))
        words[place] = rng.choice((str(rng.choice((*_SIDES, *NUMBERS))).encode(), b"#", words[place] * 3))
    return b" ".join((rng.choice((b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"Pf", b"Py", words[0])), *words[1:]))


_CHANGES: dict[bytes, Callable[[Random, bytes], bytes]] = {
    b"\x89PNG": _change_png,
    b"\xff\xd8": _change_jpeg,
    b"II": _change_tiff,
    b"RIFF": _change_riff,
    b"GIF": _change_gif,
    b"BM": _change_bmp,
    b"P": _change_ppm,
}
