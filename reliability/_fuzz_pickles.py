"""Hostile checkpoints: pickles that run code, ask for more memory than there is, or never end."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from _fuzz_mutate import mutate_bytes

_CANARY = "echo bird > canary"
_NUMBERS = 200  # in the one storage of an archive


def archived(rng: Random, entries: Sequence[tuple[str, bytes]]) -> bytes:
    """Entries as an archive, now and then a compressed one."""
    stream, method = io.BytesIO(), zipfile.ZIP_DEFLATED if rng.random() < 0.2 else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return stream.getvalue()


def zipped(rng: Random, pickled: bytes) -> bytes:
    """A pickle as torch's archive, with its numbers or a bomb in their place; or bare, as in the old form."""
    if rng.random() < 0.2:
        return pickled
    if rng.random() < 0.3:
        pickled = mutate_bytes(rng, pickled, 1)
    if rng.random() < 0.1:
        stream = io.BytesIO(_bomb())
        with zipfile.ZipFile(stream, "a") as archive:
            archive.writestr(zipfile.ZipInfo("a/data.pkl"), pickled)
        return stream.getvalue()
    return archived(rng, [("a/data.pkl", pickled), *_BESIDE, ("a/data/0", bytes(4 * _NUMBERS))])


_BESIDE = (("a/byteorder", b"little"), ("a/version", b"3\n"))


@cache
def _bomb() -> bytes:
    """An archive in which 300 MB of zeros take 300 kB."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in _BESIDE:
            archive.writestr(zipfile.ZipInfo(name), data)
        archive.writestr(zipfile.ZipInfo("a/data/0"), bytes(3 * 10**8), zipfile.ZIP_DEFLATED, compresslevel=1)
    return stream.getvalue()


@cache
def hostile_pickles() -> tuple[bytes, ...]:
    """Pickles that run code, ask for more memory than there is, or would keep a reader busy for years."""
    calls = (
        *(("os", "system", (_CANARY,)), ("posix", "system", (_CANARY,)), ("subprocess", "getoutput", (_CANARY,))),
        *(
            ("builtins", "eval", (f"__import__('os').system('{_CANARY}')",)),
            ("builtins", "exec", ("open('canary','w')",)),
        ),
        *(("builtins", "open", ("canary", "w")), ("pathlib", "Path.touch", ("canary",)), ("torch", "load", ("x",))),
        *(
            ("builtins", "bytearray", (10**11,)),
            ("torch", "FloatTensor", (10**11,)),
            ("builtins", "bytearray", (10**9,)),
        ),
        *(
            ("torch", "Tensor", (10**9,)),
            ("torch.nn.parameter", "Parameter", ()),
            ("_codecs", "encode", ("é", "punycode")),
        ),
        *(("torch._utils", "_rebuild_meta_tensor_no_storage", ("float32", (4, 3), (3, 1), False)),),
        *(("torch.serialization", "_get_layout", ("torch.strided",)), ("torch", "device", ("cuda:99",))),
        *(("torch.storage", "UntypedStorage", (10**9,)), ("torch", "Size", ((10**9, 10**9),))),
    )
    called = [_pickle(_called(*call)) for call in calls]
    named = [_pickle(b"}" + _text("4.weight") + _called(*call) + b"s") for call in calls]
    shapes = (
        ((10**9, 4), (0, 0)),
        ((10**12,), (0,)),
        ((4, 4), (-1, 1)),
        ((3, 4), (2**40, 1)),
        ((-3, 4), (4, 1)),
        ((0, 4), (4, 1)),
    )
    tensors = [
        _pickle(b"}" + _text(name) + _tensor(*shape) + b"s") for shape in shapes for name in ("4.weight", "0.weight")
    ]
    rest = _text("0.weight") + _tensor((4, 3, 3, 3), (27, 9, 3, 1)) + _text("0.bias") + _tensor((4,), (1,))
    wide = [
        _pickle(
            b"}(" + rest + _text("4.weight") + _tensor((n, 4), (0, 0)) + _text("4.bias") + _tensor((n,), (0,)) + b"u"
        )
        for n in (5, 10**8, 10**10)
    ]
    hashed = b"}(K\x01tq\x00" + b"".join(b"h\x00h\x00\x86q\x00" for _ in range(60)) + b"K\x01s"
    deep = [b"]" * 50_000 + b"a" * 49_999, b"(" * 50_000, b"}K\x01" * 20_000 + b"}" + b"s" * 20_000]
    listed = b"]q\x00" + b"".join(b"]q\x01(h\x00h\x00eq\x00" for _ in range(60))
    return (
        *called,
        *named,
        *tensors,
        *wide,
        *(_pickle(body) for body in (hashed, listed, *deep)),
        pickle.dumps(Path("x")),
    )


def _pickle(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        raw = value.to_bytes(9, "little", signed=True)
        return b"\x8a" + bytes((len(raw),)) + raw
    return _text(value) if isinstance(value, str) else b"(" + b"".join(map(_value, value)) + b"t"


def _called(module: str, name: str, arguments: tuple[Any, ...]) -> bytes:
    return f"c{module}\n{name}\n".encode() + _value(arguments) + b"R"


def _tensor(size: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """A tensor on the archive's one storage, of a few numbers."""
    storage = b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text("0") + _text("cpu") + _value(_NUMBERS) + b"tQ"
    hooks = b"ccollections\nOrderedDict\n)R"
    arguments = storage + _value(0) + _value(size) + _value(stride) + b"\x89" + hooks
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"
