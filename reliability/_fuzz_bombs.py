"""Small files that cost much, and folders that lead elsewhere: what a review found where byte by byte damage had not.

Each kind has a structure that is grown: names and lists in a zip archive, calls in a pickle, parts of TOML keys, scans
of a JPEG, texts of a Parquet file's dictionaries, files beside a database, links in the place of files. Time and memory
are looked at, and whether a file outside is still what it was.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from _fuzz_rows import costly_image, costly_rows
from _fuzz_runs import run_files
from _fuzz_worker import MEBIBYTE, PRECIOUS, Case
from PIL import Image

from fei.bench.plan import load_plan
from fei.bench.report.numbers import Numbers
from fei.bench.store import Store
from fei.bench.store.exchange import COLUMNS, export, import_results
from fei.data import read_image
from fei.models.sources._checkpoint import read_checkpoint

_MAGIC = bytes.fromhex("d9d505f920a163d7")  # of a rollback journal
_PLAN = 'name = "p"\n[[pairs]]\nmodel = "efficientnet_lite0"\ndata = "x"\n[[methods]]\nname = "random"\n'
_BESIDE = ("run.sqlite", "run.sqlite-journal", "run.sqlite-wal", "run.sqlite-shm", "lock", "maps", "plan.toml")
_MANY = (1, 3, 17, 65, 300, 3000, 20_000, 120_000)


class Bombs:
    """Files and folders made to cost, or to touch, more than they seem to."""

    name = "bombs"
    max_bytes = 192 * MEBIBYTE

    def valid(self) -> Sequence[Case]:
        """One harmless file of each kind."""
        return [
            Case({"image.jpg": _jpeg(1)}, "image.jpg", ("image",)),
            Case({"plan.toml": _PLAN.encode()}, "plan.toml", ("plan",)),
            Case({f"run/{name}": content for name, content in run_files().items()}, "run/run.sqlite", ("run",)),
        ]

    def make(self, rng: Random) -> Case:
        """One of some kind."""
        return rng.choice(_KINDS)(rng)

    def read(self, folder: Path, ask: tuple[str, ...]) -> None:
        """As the library reads such a file."""
        _READERS[ask[0]](folder)


def _checkpoint(rng: Random) -> Case:
    """An archive whose names differ in case, that has two lists, or whose pickle calls one thing on another."""
    codecs = ("hex", "hex_codec", "utf-16", "utf-32", "base64", "quopri", "uu", "rot13", "latin1", "idna", "!hex")
    times = rng.choice((1, 2, 8, 20, 26))
    chain = b"c_codecs\nencode\n" * times + _text("a" * rng.choice((1, 64))) + _text("utf-8") + b"\x86R"
    chain += b"".join(_text(rng.choice(codecs) if rng.random() < 0.2 else "hex") + b"\x86R" for _ in range(times - 1))
    names = rng.sample(("data.pkl", "DATA.PKL", "Data.Pkl", "other.pkl", "constants.pkl"), rng.randint(1, 3))
    stream = io.BytesIO()
    with zipfile.ZipFile(
        stream, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as made:
        for name in (*names, "version", "byteorder"):
            content = b"\x80\x02}" + _text("a") + chain + b"s." if "pkl" in name.lower() else b"3\n"
            made.writestr(zipfile.ZipInfo(f"a/{name}"), content)
        made.writestr(zipfile.ZipInfo("a/data/0"), bytes(rng.choice((0, 4000))))
    content = stream.getvalue()
    if rng.random() < 0.3:  # a second list of files, or words behind the last
        start = struct.unpack("<I", content[-6:-2])[0]
        content = content[:-22] + rng.choice((content[start:-22], b"PK\5\6" + bytes(18))) + content[-22:]
    return Case({"a.pt": content}, "a.pt", ("checkpoint",))


def _plan(rng: Random) -> Case:
    """Keys of many parts, and many rows, seeds or labels."""
    count, part = rng.choice(_MANY), rng.choice(("a", "'a'", '"a b"', "1"))
    key = rng.choice((".", " . ", ".\t")).join([part] * count)
    text = rng.choice((
        f"{key} = 1\n{_PLAN}", f"[{key}]\n{_PLAN}", f"{_PLAN}[[{key}]]\n", f"x = {{ {key} = 1 }}\n",
        f"seeds = {list(range(count))}\n{_PLAN}", f"seeds = {[0] * count}\n{_PLAN}",
        _PLAN + "".join(f'[[methods]]\nname = "random"\nlabel = "{i}"\n' for i in range(min(count, 25_000))),
        _PLAN + f"[sanity]\nimages = 1\nmethods = {['random'] * count}\n",
        f"seeds = [0x{'f' * count}]\n{_PLAN}", f"retries = 0x{'f' * count}\n{_PLAN}",
        f"x = {'[' * count}{']' * count}\n", f"x = {'{a=' * count}1{'}' * count}\n",
    ))  # fmt: skip
    return Case({"plan.toml": text[:1_000_000].encode()}, "plan.toml", ("plan",))


def _image(rng: Random) -> Case:
    """A JPEG that goes over its pixels again and again, or pixels as text."""
    if rng.random() < 0.7:
        return Case({"image.jpg": _jpeg(rng.choice((1, 60, 66, 300, 5000)))}, "image.jpg", ("image",))
    side, kind = rng.choice((3, 900, 1100, 3000)), rng.choice((b"P1", b"P2", b"P3"))
    deep = b"" if kind == b"P1" else b"255\n"
    content = b"%s\n%d %d\n%s" % (kind, side, side, deep) + b"1 " * min(3 * side * side, rng.choice((10, 10**7)))
    return Case({"image.ppm": content}, "image.jpg", ("image",))


def _table(rng: Random) -> Case:
    """A Parquet file in which one text stands in every row."""
    return Case({"a.parquet": _parquet(rng.choice((1, 1000, 50_000)), rng.choice((1, 10**6)))}, "a.parquet", ("table",))


def _folder(rng: Random) -> Case:
    """A run with a link, a journal, or anything else in the place of one of its files.

    Nothing leads out of the fuzzer's own folder: where a reader is at fault, what it leads to is lost.
    """
    files = {f"run/{name}": content for name, content in run_files().items()}
    links, up = {}, "../" * 3
    for name in rng.sample(_BESIDE, rng.randint(1, 2)):
        for known in [known for known in files if known == f"run/{name}" or known.startswith(f"run/{name}/")]:
            del files[known]
        if rng.random() < 0.6:
            links[f"run/{name}"] = rng.choice((up + PRECIOUS, up, "run.sqlite", "nowhere", "."))
        else:
            files[f"run/{name}"] = rng.choice((b"", b"x" * 100, _journal(rng), run_files()["run.sqlite"]))
    if rng.random() < 0.3:
        files["run/run.sqlite-journal"] = _journal(rng)
        links.pop("run/run.sqlite-journal", None)
    return Case(files, "run/run.sqlite-journal", ("run",), links)


def _journal(rng: Random) -> bytes:
    """A rollback journal that names another, whose file SQLite then deletes."""
    name = rng.choice((f"../a/b/{PRECIOUS}", PRECIOUS)).encode()  # counted from the working folder
    pages = rng.choice((0, 1, len(run_files()["run.sqlite"]) // 4096))
    head = _MAGIC + struct.pack(">IIIII", rng.choice((0, 2**32 - 1)), 0, pages, 512, 4096)
    tail = struct.pack(">I", (1 << 30) // 4096 + 1) + name + struct.pack(">II", len(name), sum(name)) + _MAGIC
    return head.ljust(512, b"\0") + (tail if rng.random() < 0.7 else b"")


@cache
def _jpeg(scans: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (1500, 1500), "teal").save(content, "JPEG", progressive=True)
    plain = content.getvalue()
    return plain[:-2] + plain[plain.rindex(b"\xff\xda") : -2] * (scans - 1) + plain[-2:]


@cache
def _parquet(rows: int, length: int) -> bytes:
    import pyarrow
    from pyarrow import parquet

    columns: list[Any] = []
    for name, kind in COLUMNS.items():
        if kind is str:
            text = {"kind": "map", "status": "done", "curve": "[1]", "fractions": "[1]"}.get(name, "x" * length)
            index = pyarrow.array([0] * rows, pyarrow.int32())
            columns.append(pyarrow.DictionaryArray.from_arrays(index, pyarrow.array([text])))
        else:
            columns.append(pyarrow.array([1] * rows, pyarrow.int64() if kind is int else pyarrow.float64()))
    stream = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, names=list(COLUMNS)), stream, compression="zstd")
    return stream.getvalue()


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _open(folder: Path) -> None:
    with Store.open(folder / "run", readonly=True) as store:
        store.counts(), store.plan, store.damage()
        numbers = Numbers(store)
        _ = [numbers.values(0, 0, quantity) for quantity in numbers.quantities[0]], numbers.items(0, "map")
        export(store, folder / "run.csv")
    with Store.open(folder / "run") as store:
        store.repair()
        store.set_meta(complete="")


_KINDS: tuple[Callable[[Random], Case], ...] = (
    *(_checkpoint, _plan, _image, _table, _folder, _folder),
    *(costly_image, costly_image, costly_rows, costly_rows),
)
_READERS: dict[str, Callable[[Path], object]] = {
    "checkpoint": lambda folder: read_checkpoint(folder / "a.pt"),
    "plan": lambda folder: load_plan(folder / "plan.toml"),
    "image": lambda folder: read_image(next(folder.glob("image.*"))),
    "table": lambda folder: sum(1 for _ in import_results(folder / "a.parquet")),
    "run": _open,
}
