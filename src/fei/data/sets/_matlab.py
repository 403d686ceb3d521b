"""A table from MATLAB's files of version 5: just enough of the format, and nothing that a damaged file can lead astray.

scipy reads the whole format, and ends the process on some damaged files. The format is described in "MAT-File Format",
The MathWorks: a file is a row of elements, each with a type, a length and its data; arrays are elements of elements.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from itertools import islice

Value = int | float | str | None
"""What a cell of the table holds; None where it is neither a number nor a text."""

_MATRIX, _COMPRESSED = 14, 15
_STRUCTURE, _TEXT = 2, 4
_NUMBERS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
_TEXTS = {1: "latin-1", 2: "utf-8", 4: "utf-16", 16: "utf-8", 17: "utf-16"}
_HEADER = 128
_MOST = 100_000  # rows, or fields, of a table: ImageNet's has 1860


def read_table(content: bytes, name: str, largest: int) -> list[dict[str, Value]]:
    """Read the array of structures of that name: a dictionary for each; it may unpack to `largest` bytes.

    Raises:
        ValueError: If there is no such table, or the file is damaged.
    """
    if len(content) < _HEADER or content[126:128] not in (b"IM", b"MI"):
        raise ValueError("this is no MAT-file of version 5")
    order = "<" if content[126:128] == b"IM" else ">"
    for kind, data in _elements(content[_HEADER:], order):
        if kind == _COMPRESSED:
            unpacked = _unpacked(data, largest)
            largest -= len(unpacked)  # of all together
            kind, data = next(_elements(unpacked, order), (0, b""))
        if kind == _MATRIX and (rows := _structures(data, order, name)) is not None:
            return rows
    raise ValueError(f"there is no table '{name}'")


def _unpacked(data: bytes, largest: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(data, largest)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if unpacker.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {largest} bytes")
    return unpacked


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """The types and contents of elements that lie one behind the other."""
    place = 0
    while place < len(data):
        kind, length = _ints(data[place : place + 8], order, 2)
        begin, end = place + 8, place + 8 + length
        if kind >> 16:  # a small one: the length beside the type, and the data in the place of the length
            kind, length = kind & 0xFFFF, kind >> 16
            begin, end = place + 4, place + 4 + min(length, 4)
        if end > len(data):
            raise ValueError("an element is longer than the file")
        yield kind, data[begin:end]
        place = end if kind == _COMPRESSED else -(-end // 8) * 8


def _structures(data: bytes, order: str, wanted: str) -> list[dict[str, Value]] | None:
    """The rows of an array of structures, if it is that and has the name."""
    parts = _elements(data, order)
    kind, name, sizes = _head(parts, order)
    if kind != _STRUCTURE or name != wanted:
        return None
    (width,) = _ints(_next(parts), order, 1)
    names = _next(parts)
    if not 0 < width <= len(names):
        raise ValueError("a structure without names")
    if max(sizes, len(names) // width) > _MOST:
        raise ValueError("a table without end")
    fields = [names[i : i + width].split(b"\0")[0].decode("latin-1") for i in range(0, len(names), width)]
    values = (_value(cell, order) for _, cell in parts)
    cells = islice(zip(*[values] * len(fields), strict=False), sizes + 1)
    rows = [dict(zip(fields, row, strict=True)) for row in cells]
    if len(rows) != sizes:
        raise ValueError(f"a table of {sizes} rows has {len(rows)}")
    return rows


def _value(data: bytes, order: str) -> Value:
    """A single number, or a text; None for anything else."""
    if not data:
        return None
    parts = _elements(data, order)
    kind, _, _ = _head(parts, order)
    form, content = next(parts, (0, b""))
    if kind == _TEXT:
        code = _TEXTS.get(form, "latin-1")
        return content.decode(code if code != "utf-16" else f"utf-16-{'le' if order == '<' else 'be'}")
    number = _NUMBERS.get(form)
    if number is None or len(content) != struct.calcsize(number):
        return None
    found: int | float = struct.unpack(order + number, content)[0]
    return found


def _head(parts: Iterator[tuple[int, bytes]], order: str) -> tuple[int, str, int]:
    """The kind of an array, its name, and how many things are in it."""
    flags, sizes = _next(parts), _next(parts)
    number = math.prod(_ints(sizes, order, len(sizes) // 4))
    return _ints(flags, order, 1)[0] & 0xFF, _next(parts).decode("latin-1"), number


def _next(parts: Iterator[tuple[int, bytes]]) -> bytes:
    part = next(parts, None)
    if part is None:
        raise ValueError("an array without its parts")
    return part[1]


def _ints(data: bytes, order: str, count: int) -> tuple[int, ...]:
    if len(data) < 4 * count:
        raise ValueError("the file is cut short")
    return struct.unpack(f"{order}{count}I", data[: 4 * count])
