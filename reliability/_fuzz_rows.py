"""Images whose tags, tiles or comments cost more than they are, and databases whose rows lead elsewhere or multiply.

A second attack, by reading the code, found these where damage to bytes and cells had not.
"""

from __future__ import annotations

import io
import sqlite3
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random

from _fuzz_runs import run_files
from _fuzz_worker import PRECIOUS, Case
from PIL import Image

from fei.bench.units import KEPT

_MANY = (1, 20, 400, 3000)
_MAGIC = bytes.fromhex("d9d505f920a163d7")  # of a rollback journal


def costly_image(rng: Random) -> Case:
    """An image of a kind whose metadata, tiles, comments or scans can be grown."""
    content = rng.choice((_tiff, _tiff, _exif, _gif, _ppm, _hidden_scans))(rng)
    return Case({"image.bin": content}, "image.bin", ("image",))


def costly_rows(rng: Random) -> Case:
    """A run with rows that name files elsewhere or refer to each other, or columns that are computed."""
    content = dict(run_files())
    if rng.random() < 0.15:
        pages = rng.choice((0, 1, 14, 1 << 18, (1 << 32) - 1))
        head = _MAGIC + struct.pack(">IIIII", 0, 0, pages, 512, rng.choice((0, 512, 4096, 65536)))
        content["run.sqlite-journal"] = head.ljust(512, b"\0")
    else:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.sqlite"
            file.write_bytes(content["run.sqlite"])
            connection = sqlite3.connect(file)
            for _ in range(rng.randint(1, 2)):
                rng.choice(_CHANGES)(rng, connection)
            connection.commit()
            connection.close()
            content["run.sqlite"] = file.read_bytes()
    files = {f"run/{name}": each for name, each in content.items()}
    return Case(files, "run/run.sqlite", ("run",))


def _directory(rng: Random, picture: bool) -> bytes:
    """A TIFF file, of which many tags may share their bytes, and whose tiles may be of any size."""
    order, size, tags = rng.choice("<>"), rng.choice((1, 1000, 100_000)), rng.choice(_MANY)
    known = {256: 4, 257: 4, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 4, 279: 16} if picture else {0x0112: 6}
    if picture and rng.random() < 0.3:
        known |= {322: rng.choice((16, 4096, 40_000, 2**31)), 323: rng.choice((16, 40_000)), 324: 8, 325: 16}
    kinds = rng.choices((1, 2, 3, 4, 5, 7, 12, 99), k=tags)
    end = 24 + 2 + 12 * (len(known) + tags) + 4
    entries = b"".join(struct.pack(f"{order}HHII", tag, 4, 1, value) for tag, value in known.items())
    for i, kind in enumerate(kinds):
        count = size // (8 if kind in (5, 12) else 4 if kind == 4 else 2 if kind == 3 else 1)
        entries += struct.pack(f"{order}HHII", 40_000 + i, kind, count, end)
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 24)
    return head.ljust(24, b"\x80") + struct.pack(f"{order}H", len(known) + tags) + entries + bytes(4 + size)


def _tiff(rng: Random) -> bytes:
    return _directory(rng, picture=True)


def _exif(rng: Random) -> bytes:
    kind, told = rng.choice(("JPEG", "PNG", "WEBP", "AVIF")), _directory(rng, picture=False)
    if kind == "JPEG":
        plain, parts = _plain("JPEG"), [told[i : i + 60_000] for i in range(0, len(told), 60_000)]
        name, marker = rng.choice(((b"Exif\0\0", b"\xff\xe1"), (b"MPF\0", b"\xff\xe2")))
        segments = b"".join(marker + struct.pack(">H", len(part) + len(name) + 2) + name + part for part in parts)
        return plain[:2] + segments + plain[2:]
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), "teal").save(stream, "PNG" if kind == "AVIF" else kind, exif=told)
    if kind == "AVIF":  # Pillow would read what it writes, so that the directory is put where it may be found
        return b"\0\0\0\x1cftypavif\0\0\0\0" + told * rng.choice((1, 3, 20))
    return stream.getvalue()


def _gif(rng: Random) -> bytes:
    plain, count = _plain("GIF"), rng.choice((1, 100, 30_000))
    place = plain.index(b",")
    comments = rng.choice(
        (b"!\xfe" + (b"\xff" + b"a" * 255) * count + b"\0", b"!\xfe\0" * count, b"!\xfe\1a\0" * count)
    )
    return plain[:place] + comments + plain[place:]


def _ppm(rng: Random) -> bytes:
    side, most = rng.choice((3, 500, 1200)), rng.choice((1, 254, 255, 256, 65534, 65535))
    kind = rng.choice((b"P5", b"P6"))
    return b"%s %d %d %d\n" % (kind, side, side, most) + bytes(min(2_000_000, 6 * side * side))


def _hidden_scans(rng: Random) -> bytes:
    """Scans of a JPEG behind something that looks like a segment."""
    plain = _plain("JPEG")
    first = plain.index(b"\xff\xda")
    head = plain[first : first + 2 + struct.unpack(">H", plain[first + 2 : first + 4])[0]]
    last = plain[plain.rindex(b"\xff\xda") : -2]
    cover = bytes([0xFF, rng.choice((0x01, 0x02, 0xBF, 0xD0, 0xDC, 0xE0, 0xF0, 0xFE))]) + b"\xff\xff"
    restarts = b"\xff\xdd\0\4\0\1" if rng.random() < 0.8 else b""
    return plain[:first] + restarts + head + b"\0\0" + cover + last * rng.choice((1, 60, 5000)) + b"\xff\xd9"


@cache
def _plain(kind: str) -> bytes:
    content = io.BytesIO()
    size, how = ((1000, 1000), {"progressive": True}) if kind == "JPEG" else ((8, 8), {})
    Image.new("L", size, 128).save(content, kind, **how)
    return content.getvalue()


def _key(rng: Random, sql: sqlite3.Connection) -> None:
    """A key that is a path; it leads to a file that the fuzzer watches, and to none beside that."""
    precious = PRECIOUS.removesuffix(".npy")
    name = rng.choice(("../" * 4 + precious, "../maps/../../../../" + precious, "a\0b", "x" * 300, "", ".."))
    table = rng.choice(("groups", "digests", "plan_units", "units"))
    if table == "digests":
        with suppress(sqlite3.OperationalError):  # `_computed` may have made another table of it
            sql.execute("INSERT OR REPLACE INTO digests VALUES (?, '0', '0')", (name,))
    elif table == "groups":
        sql.execute("INSERT OR REPLACE INTO groups VALUES (?, ?)", (name, KEPT))
    elif table == "plan_units":
        sql.execute("UPDATE plan_units SET unit = ?", (name,))
    else:
        sql.execute("UPDATE OR REPLACE units SET key = ? WHERE key = (SELECT min(key) FROM units)", (name,))


def _product(rng: Random, sql: sqlite3.Connection) -> None:
    """Many scores of a unit that many rows of the plan share, or that has a long text."""
    unit, many = "a" * 32, range(rng.choice(_MANY))
    rows = [(f"i{i}", "9" * rng.choice((1, 5000)), unit) for i in range(rng.choice(_MANY))]
    sql.executemany("INSERT OR IGNORE INTO plan_units VALUES (0, 0, ? || ?, 0, 'map', ?)", rows)
    sql.executemany("INSERT OR IGNORE INTO scores VALUES (?, ?, '', '', 0.5)", [(unit, f"m{i}") for i in many])
    sql.execute("UPDATE units SET config = ? WHERE key = ?", (f'"{"x" * rng.choice((1, 100_000))}"', unit))


def _computed(rng: Random, sql: sqlite3.Connection) -> None:
    """Columns, indices and views that are computed as they are read."""
    text = f"hex(zeroblob({rng.choice((1, 1000, 100_000_000))}))"
    sql.execute("DROP TABLE IF EXISTS further")
    for statement in rng.choice((
        ("DROP TABLE digests", f"CREATE TABLE digests(unit TEXT PRIMARY KEY, map TEXT, content TEXT AS ({text}))",
         "INSERT INTO digests(unit) VALUES ('a')"),
        ("DROP TABLE meta", f"CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT AS ({text}))",
         "INSERT INTO meta(key) VALUES ('schema')"),
        (f"CREATE TABLE further(a, b AS ({text}))",),
        ("CREATE TABLE further(a)", "CREATE INDEX index_of_it ON further(length(a))"),
    )):  # fmt: skip
        sql.execute(statement)


_CHANGES: tuple[Callable[[Random, sqlite3.Connection], None], ...] = (_key, _key, _product, _computed)
