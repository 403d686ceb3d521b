"""Folders that somebody else made: nothing outside of them is touched, and what was checked is what is used."""

import os
import shutil
import sqlite3
import struct
import subprocess
import sys

import numpy as np
import pytest

from fei.app.server import private_folder
from fei.bench.plan import parse_plan
from fei.bench.report import write_report
from fei.bench.store import Store
from fei.bench.store.disk import MAX_MAP_BYTES, read_map
from fei.bench.store.exchange import diff
from fei.bench.units import Outcome
from fei.common.lock import Lock
from fei.errors import DataError, InputError
from fei.service.outputs import page_name

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links and owners as on POSIX")
PLAN = parse_plan(
    'name = "p"\n[[pairs]]\nmodel = "efficientnet_lite0"\ndata = "photos"\n[[methods]]\nname = "random"\n'
)
MAGIC = bytes.fromhex("d9d505f920a163d7")


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    Store.create(folder, PLAN).close()
    return folder


@pytest.fixture
def precious(tmp_path):
    file = tmp_path / "precious"
    file.write_text("precious", encoding="utf-8")
    return file


def open_both(folder):
    """Open a run to write and to read; the errors of both."""
    errors = []
    for readonly in (False, True):
        try:
            Store.open(folder, readonly=readonly).close()
        except (InputError, DataError) as error:
            errors.append(str(error))
    return errors


@pytest.mark.parametrize("kind", ["symlink_to", "hardlink_to", "mkfifo", "somebody else's"])
def test_a_lock_is_a_file_of_ones_own(run, precious, monkeypatch, kind):
    lock = run / "lock"
    lock.unlink()
    if kind == "mkfifo":
        os.mkfifo(lock)
    elif kind == "somebody else's":
        lock.touch()
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    else:
        getattr(lock, kind)(precious)
    with pytest.raises(InputError, match="is a link, which is not followed|is no file of your own"):
        Lock(run)
    assert precious.read_text(encoding="utf-8") == "precious"


def test_a_link_among_temporary_files_is_left_alone(tmp_path, precious, monkeypatch):
    for name in ("fei-serve-a", "fei-serve-b"):
        (tmp_path / name).mkdir()
    (tmp_path / "fei-serve-a" / "lock").symlink_to(precious)
    (tmp_path / "fei-serve-b" / "lock").touch()
    (tmp_path / "fei-serve-c").symlink_to(tmp_path / "fei-serve-b")
    for name in ("fei-serve-a", "fei-serve-b"):
        with private_folder(tmp_path):
            assert (tmp_path / name).exists()  # another server may be about to lock it
        os.utime(tmp_path / name, (0, 0))
    with monkeypatch.context() as patch:
        patch.setattr("fei.app.server.is_mine", lambda status: False)
        with private_folder(tmp_path):
            assert (tmp_path / "fei-serve-b").exists()
    with private_folder(tmp_path):
        assert precious.read_text(encoding="utf-8") == "precious"
        assert not (tmp_path / "fei-serve-b").exists()  # of one's own, and nobody holds it


def test_maps_are_not_written_elsewhere(run, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    part = other / ".fei-0123456789abcdef"
    part.touch()
    os.utime(part, (0, 0))
    (run / "maps").symlink_to(other)
    assert len(open_both(run)) == 2
    assert part.exists()
    with pytest.raises(InputError, match="'.*maps' is a link, which is not followed"):
        Store.open(run)


def test_a_plan_is_not_written_elsewhere(run, precious):
    """What is being written has no name that could be known beforehand, and takes the place of a link."""
    for name in (".plan.toml.part", "plan.toml.part", ".plan.toml.tmp"):
        (run / name).symlink_to(precious)
    with Store.open(run) as store:
        (run / "plan.toml").unlink()
        (run / "plan.toml").symlink_to(precious)
        store.show_plan(PLAN)
    assert precious.read_text(encoding="utf-8") == "precious"
    assert not (run / "plan.toml").is_symlink()
    assert (run / "plan.toml").read_text(encoding="utf-8") == PLAN.text


@pytest.mark.parametrize("name", ["run.sqlite", "run.sqlite-wal", "run.sqlite-journal", "run.sqlite-shm"])
def test_no_file_of_the_database_is_a_link(run, tmp_path, name):
    real = tmp_path / "real"
    if (run / name).exists():
        (run / name).rename(real)
    else:
        real.touch()
    before = real.read_bytes()
    (run / name).symlink_to(real)
    errors = open_both(run)
    assert len(errors) == 2
    assert all(f"{name}' is a link" in error for error in errors)
    assert real.read_bytes() == before


def naming_journal(victim, file):
    """A rollback journal of a transaction over several files, the list of which is in the file that it names."""
    name = str(victim).encode()
    head = MAGIC + struct.pack(">IIIII", 0, 0, file.stat().st_size // 4096, 512, 4096)
    tail = struct.pack(">I", (1 << 30) // 4096 + 1) + name + struct.pack(">II", len(name), sum(name)) + MAGIC
    return head.ljust(512, b"\0") + tail


def test_a_journal_deletes_no_file(run, precious, tmp_path):
    shutil.copyfile(run / "run.sqlite", tmp_path / "plain.sqlite")
    bait = tmp_path / "bait"
    bait.write_text("bait", encoding="utf-8")
    (tmp_path / "plain.sqlite-journal").write_bytes(naming_journal(bait, run / "run.sqlite"))
    sqlite3.connect(tmp_path / "plain.sqlite").execute("SELECT * FROM sqlite_master").fetchall()
    assert not bait.exists()  # that is what SQLite does by itself
    (run / "run.sqlite-journal").write_bytes(naming_journal(precious, run / "run.sqlite"))
    errors = open_both(run)
    assert len(errors) == 2
    assert all("is a journal that no run leaves behind" in error for error in errors)
    assert precious.exists()


def test_what_an_interrupted_program_left_is_taken_back(run):
    """A journal of one's own: readers see what was there before it, and so does whoever goes on."""
    file = run / "run.sqlite"
    program = sqlite3.connect(file, isolation_level=None)
    program.execute("PRAGMA cache_size = 1")
    program.execute("BEGIN")
    program.execute("UPDATE meta SET value = 'changed' WHERE key = 'created'")
    program.execute("CREATE TABLE more(x)")
    program.executemany("INSERT INTO more VALUES (?)", [("x" * 3000,) for _ in range(50)])  # more than it keeps
    left = {end: (run / f"run.sqlite{end}").read_bytes() for end in ("", "-journal")}
    program.execute("ROLLBACK")
    program.close()
    for end, content in left.items():
        (run / f"run.sqlite{end}").write_bytes(content)
    for readonly in (True, False):
        with Store.open(run, readonly=readonly) as store:
            assert store.meta("created") != "changed"
            assert store.rows("SELECT count(*) FROM sqlite_master WHERE name = 'more'") == [(0,)]
    assert not (run / "run.sqlite-journal").exists()


def test_somebody_elses_run_is_read_from_a_copy(run, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with Store.open(run, readonly=True) as store:
        changed = sqlite3.connect(run / "run.sqlite")
        changed.execute("UPDATE meta SET value = 'another' WHERE key = 'plan_key'")
        changed.commit()
        changed.close()
        assert store.plan_key != "another"
    with pytest.raises(InputError, match="belongs to somebody else|no file of your own"):
        Store.open(run)


def test_what_is_compared_is_what_was_checked(run, tmp_path, monkeypatch):
    """Also where a run was exchanged in between: a name in the second that the first does not have would be told."""
    with Store.open(run) as store:
        words = {"model": "m", "data": "d", "item": "i", "method": "random", "config": "{}", "seed": 0}
        store.commit(
            [Outcome("a" * 32, "map", **words, status="done", scores=(("gini", "", "", 0.5),), groups=("map",))]
        )
        store.link([(0, 0, "i", 0, "map", "a" * 32)])
    shutil.copytree(run, tmp_path / "other")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with Store.open(run, readonly=True) as first, Store.open(tmp_path / "other", readonly=True) as second:
        for folder in (run, tmp_path / "other"):
            changed = sqlite3.connect(folder / "run.sqlite")
            changed.execute("UPDATE scores SET value = ?", (float(len(str(folder))),))
            changed.commit()
            changed.close()
        found = diff(first, second)
    assert (found.common, found.differing) == (1, 0)


def test_settings_in_the_folder_do_not_draw(tmp_path):
    """matplotlib would read them, and with usetex have TeX run what they say."""
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n", encoding="utf-8")
    show = "import matplotlib; print(matplotlib.rcParams['text.usetex'])"
    for program, told in ((show, "True"), (f"from fei.cli._app import run; run(['--version']); {show}", "False")):
        words = [sys.executable, "-P", "-c", program]
        found = subprocess.run(words, cwd=tmp_path, capture_output=True, encoding="utf-8", check=True)
        assert found.stdout.split()[-1] == told


def test_a_page_that_is_none_is_no_trouble(tmp_path):
    (tmp_path / "explorer.html").write_bytes(b"\xff\xfe")
    assert page_name(tmp_path, ["fei explain a"], force=False) == "explorer-2.html"
    os.mkfifo(tmp_path / "explorer-2.html")  # nobody writes to it, so that reading would wait for ever
    assert page_name(tmp_path, ["fei explain a"], force=False) == "explorer-2.html"


def test_a_database_is_given_no_trust(run):
    for readonly in (True, False):
        with Store.open(run, readonly=readonly) as store:
            assert store.rows("PRAGMA trusted_schema") == [(0,)]


def test_a_report_is_not_written_elsewhere(run, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "tables").symlink_to(other)
    with Store.open(run, readonly=True) as store, pytest.raises(InputError, match="'.*tables' is a link"):
        write_report(store, tmp_path / "report")
    assert list(other.iterdir()) == []


def test_maps_that_are_no_files_or_too_large_are_none(tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    for name, array in {"plain": values, "transposed": np.asfortranarray(values)}.items():
        np.save(tmp_path / f"{name}.npy", array)
        np.testing.assert_array_equal(read_map(tmp_path, name), values)
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "link.npy").symlink_to(tmp_path / "plain.npy")
    (tmp_path / "large.npy").write_bytes((tmp_path / "plain.npy").read_bytes())
    os.truncate(tmp_path / "large.npy", MAX_MAP_BYTES + 1)
    (tmp_path / "lies.npy").write_bytes((tmp_path / "plain.npy").read_bytes().replace(b"(2, 3)", b"(9, 9)"))
    assert [read_map(tmp_path, name) for name in ("pipe", "link", "large", "lies", "none")] == [None] * 5
