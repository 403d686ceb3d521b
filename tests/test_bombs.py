"""Small files that would take a reader hours or gigabytes are refused before they do, in every reader."""

import io
import os
import struct
import sys
import time
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch
from commands import NETWORK, furnish
from commands import run as fei
from PIL import Image

from fei.bench.plan import load_plan, parse_plan
from fei.bench.store.exchange import COLUMNS, import_results
from fei.data import read_image
from fei.errors import DataError, InputError, ModelError
from fei.models.sources._checkpoint import read_checkpoint

TIMES, BYTES = 150, 60_000_000

pytestmark = pytest.mark.slow

PLAN = 'name = "p"\n{}\n[[pairs]]\nmodel = "efficientnet_lite0"\ndata = "x"\n[[methods]]\nname = "random"\n'


@pytest.fixture
def bounded():
    """The test takes bounded memory of Python's, and bounded time: as often as a piece of work on this very machine."""
    tracemalloc.start()
    began = time.process_time()
    work = [str(number) for number in range(200_000)]
    unit = time.process_time() - began
    del work
    tracemalloc.reset_peak()
    began = time.process_time()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.process_time() - began < TIMES * unit
    assert peak < BYTES


def encoded_again(times):
    """A pickle of a text that is written in hexadecimal, and the result again, and so on."""
    calls = b"c_codecs\nencode\n" * times
    first = b"X\x10\x00\x00\x00" + b"a" * 16 + b"X\x05\x00\x00\x00utf-8\x86R"
    return b"\x80\x02}(X\x01\x00\x00\x00a" + calls + first + b"X\x03\x00\x00\x00hex\x86R" * (times - 1) + b"u."


def archive(file, files, **how):
    with zipfile.ZipFile(file, "w", **how) as made:
        for name, content in files.items():
            made.writestr(name, content)
    return file


@pytest.mark.parametrize("name", ["data.pkl", "DATA.PKL", "Data.pkl"])
def test_texts_that_are_encoded_again_and_again(tmp_path, bounded, name):
    files = {f"a/{name}": encoded_again(24), "a/version": b"3\n", "a/filler": b"0" * 1000}
    with pytest.raises(ModelError, match="was refused"):
        read_checkpoint(archive(tmp_path / "a.pt", files))


def test_two_pickles_of_one_name_are_refused(tmp_path):
    torch.save({"w": torch.zeros(2)}, tmp_path / "good.pt")
    with zipfile.ZipFile(tmp_path / "good.pt") as good:
        files = {entry.filename: good.read(entry) for entry in good.infolist()}
    assert read_checkpoint(archive(tmp_path / "same.pt", files)).state["w"].tolist() == [0, 0]
    home = next(iter(files)).partition("/")[0]
    with pytest.raises(ModelError, match="was refused"):
        read_checkpoint(archive(tmp_path / "two.pt", files | {f"{home}/DATA.PKL": encoded_again(2)}))
    with pytest.raises(ModelError, match="was refused"):
        read_checkpoint(archive(tmp_path / "small.pt", files, compression=zipfile.ZIP_DEFLATED))


def test_an_archive_has_one_list_of_files(tmp_path):
    """Python's reader takes the list that stands before the end, torch's the one at the place that is named."""
    torch.save({"w": torch.zeros(2)}, tmp_path / "good.pt")
    with zipfile.ZipFile(tmp_path / "good.pt") as good:
        files = {entry.filename: good.read(entry) for entry in good.infolist()}
    plain = archive(tmp_path / "plain.pt", files).read_bytes()
    start = struct.unpack("<I", plain[-6:-2])[0]
    listed, end = plain[start:-22], plain[-22:]
    (tmp_path / "twice.pt").write_bytes(plain[:-22] + listed + end)
    with pytest.raises(ModelError, match="was refused"):
        read_checkpoint(tmp_path / "twice.pt")
    (tmp_path / "remark.pt").write_bytes(plain[:-2] + b"\4\0more")
    with pytest.raises(ModelError, match="was refused"):
        read_checkpoint(tmp_path / "remark.pt")
    assert read_checkpoint(tmp_path / "good.pt").state["w"].tolist() == [0, 0]  # as torch ends one


@pytest.mark.parametrize("key", ["a.", "'a' . ", '"a".'])
def test_keys_of_many_parts(bounded, key):
    with pytest.raises(InputError, match="a key has too many parts"):
        parse_plan(key * 20_000 + "a = 1\n")
    with pytest.raises(InputError, match="a key has too many parts"):
        parse_plan(f"[{key * 20_000}a]\n")


@pytest.mark.parametrize("text", ["a" * 900_000, '"' * 900_000, "'a\n" * 300_000, "a. " * 9 + "a" * 900_000])
def test_looking_for_such_keys_takes_no_time(bounded, text):
    with pytest.raises(InputError):
        parse_plan(text)


def test_as_many_parts_as_anyone_writes():
    assert parse_plan(PLAN.format('layout = "plain"').replace('"x"', '"a.b.c.d.e.f.g.h/1.2.3.4"')).pairs[0].data


def test_plans_of_many_seeds_and_rows(tmp_path, bounded):
    with pytest.raises(InputError, match="`seeds` is .* give at most 10000 entries"):
        parse_plan(PLAN.format(f"seeds = {list(range(30_000))}"))
    assert len(parse_plan(PLAN.format(f"seeds = {list(range(10_000))}")).seeds) == 10_000
    rows = "".join(f'[[methods]]\nname = "random"\nlabel = "{i}"\n' for i in range(1001))
    with pytest.raises(InputError, match="`methods` is .* give at most 1000 entries"):
        parse_plan(PLAN.format("") + rows)
    (tmp_path / "large.toml").write_text(PLAN.format("") + "#" * 1_000_000, encoding="utf-8")
    with pytest.raises(InputError, match="larger than 1 MB"):
        load_plan(tmp_path / "large.toml")


def test_a_text_that_every_row_of_a_table_has(tmp_path, bounded):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    types, columns, rows = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}, [], 1000
    before = arrow.default_memory_pool().max_memory()
    known = {"config": "x" * 1_000_000, "fractions": "[1]", "curve": "[1]", "kind": "map", "status": "done"}
    for name, kind in COLUMNS.items():
        if kind is str:
            texts = arrow.array([known.get(name, "a")], arrow.string())
            columns.append(arrow.DictionaryArray.from_arrays(arrow.array([0] * rows, arrow.int32()), texts))
        else:
            columns.append(arrow.array([1] * rows, types[kind]))
    file = tmp_path / "a.parquet"
    parquet.write_table(arrow.table(columns, names=list(COLUMNS)), file, compression="zstd")
    assert file.stat().st_size < 20_000
    (found,) = import_results(file)
    assert len(found.config) == 1_000_000
    assert arrow.default_memory_pool().max_memory() - before < BYTES
    many = arrow.table([arrow.array(["a"] * 500_000)] * len(COLUMNS), names=list(COLUMNS))
    parquet.write_table(many, file, compression="zstd")
    with pytest.raises(DataError, match="more rows than bytes"):
        next(import_results(file))


def test_pictures_that_are_painted_again_and_again(tmp_path, bounded):
    content = io.BytesIO()
    Image.new("RGB", (2000, 2000), "teal").save(content, "JPEG", progressive=True)
    plain = content.getvalue()
    (tmp_path / "plain.jpg").write_bytes(plain)
    assert read_image(tmp_path / "plain.jpg").size == (2000, 2000)
    scan = plain[plain.rindex(b"\xff\xda") : -2]
    (tmp_path / "scans.jpg").write_bytes(plain[:-2] + scan * 2000 + plain[-2:])
    with pytest.raises(DataError, match="65 scans or more, of which at most 64"):
        read_image(tmp_path / "scans.jpg")
    # what is in the words of a file, or behind its end, is no scan
    remark = b"\xff\xfe" + (2 + 2 * 1000).to_bytes(2, "big") + b"\xff\xda" * 1000
    (tmp_path / "words.jpg").write_bytes(plain[:2] + remark + plain[2:] + b"\xff\xda" * 1000)
    assert read_image(tmp_path / "words.jpg").size == (2000, 2000)


def test_pixels_as_text(tmp_path, bounded):
    (tmp_path / "large.ppm").write_bytes(b"P3\n1001 1000\n255\n" + b"1 " * 3_003_000)
    with pytest.raises(DataError, match="read one by one, and is large"):
        read_image(tmp_path / "large.ppm")
    (tmp_path / "small.ppm").write_bytes(b"P3\n2 1\n255\n255 0 0 0 0 255\n")
    assert np.asarray(read_image(tmp_path / "small.ppm")).tolist() == [[[255, 0, 0], [0, 0, 255]]]


def test_memory_that_runs_out_is_a_sentence(monkeypatch, tmp_path, capsys):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")

    def no_memory(*_):
        raise MemoryError

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", no_memory)
    with pytest.raises(MemoryError):  # and not "it is damaged"
        read_image(tmp_path / "a.png")
    monkeypatch.setattr("fei.data.images.read_image", no_memory)
    monkeypatch.setattr("fei.service.looking.read_image", no_memory)
    assert fei("explain", tmp_path / "a.png", "--method", "saliency", "--out", tmp_path / "out") == 1
    assert "error: Memory ran out; " in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text elsewhere")
def test_names_that_are_no_text(tmp_path, capsys):
    name = furnish(tmp_path, NETWORK) / os.fsdecode(b"\xff\xe9.png")
    with open(name, "wb") as stream:
        Image.new("RGB", (24, 24), "teal").save(stream, "PNG")
    words = ["--model", f"{tmp_path / 'net.py'}:net", "--methods", "random,edges", "--html", "--out", tmp_path / "out"]
    assert fei("compare", name, *words) == 0
    assert "\\udcff\\udce9.png" in capsys.readouterr().out
    assert (tmp_path / "out" / "explorer.html").is_file()
