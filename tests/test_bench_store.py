"""A run on disk: whole commits, one writer, and one sentence for whatever is wrong with it."""

import errno
import os
import sqlite3

import numpy as np
import pytest

from fei.bench.plan import keys, parse_plan
from fei.bench.store import Store
from fei.bench.store.disk import explained
from fei.bench.units import KEPT, Outcome
from fei.errors import DataError, InputError

TEXT = """
name = "a test"
[[pairs]]
model = "efficientnet_lite0"
data = "photos"
name = "Lite0"
[[methods]]
name = "saliency"
label = "Saliency"
"""


@pytest.fixture
def plan():
    return parse_plan(TEXT)


def outcome(key="k1", status="done", **facts):
    given = {"kind": "map", "model": "m", "data": "d", "item": "1.png", "method": "saliency", "config": "{}", "seed": 0}
    return Outcome(key=key, status=status, **given | facts)


def scored(key="k1", value=0.5, **facts):
    return outcome(
        key,
        scores=(("insertion", "fei-paper/1", "", value), ("mse", "fei-paper/1", "features.3", 2.0)),
        curves=(("fei-paper/1", "insertion", [0.1, 0.3], [0.9, 0.7]),),
        groups=("map", "external/fei-paper/1"),
        **facts,
    )


def test_what_is_committed_is_read_back(tmp_path, plan):
    with Store.create(tmp_path / "run", plan) as store:
        store.link([(0, 0, "1.png", 0, "map", "k1"), (0, 0, "2.png", 0, "map", "k2")], layers=[["features.3"]])
        store.commit([scored(seconds=2.5, correct=True)])
        assert store.counts() == {"done": 1, "failed": 0, "pending": 1}
    with Store.open(tmp_path / "run", readonly=True) as store:
        assert store.plan == plan
        assert store.plan.text == TEXT == (tmp_path / "run" / "plan.toml").read_text(encoding="utf-8")
        assert store.done_groups() == {"k1": {"map", "external/fei-paper/1"}}
        first, second = store.results()
        assert (first["pair"], first["method"], first["item"]) == ("Lite0", "Saliency", "1.png")
        assert (first["metric"], first["protocol"], first["value"]) == ("insertion", "fei-paper/1", 0.5)
        assert (second["layer"], second["depth"], second["seconds"], second["correct"]) == ("features.3", 0, 2.5, 1)
        assert store.rows("SELECT fractions FROM curves") == [("[0.1, 0.3]",)]
        assert store.map("k1") is None


def test_a_finished_run_is_one_plain_file(tmp_path, plan):
    with Store.create(tmp_path, plan) as store:
        store.commit([scored()])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["lock", "plan.toml", "run.sqlite"]
    connection = sqlite3.connect(tmp_path / "run.sqlite")
    assert connection.execute("SELECT count(*) FROM scores").fetchone() == (2,)
    connection.close()


def test_numbers_that_are_there_stay(tmp_path, plan):
    with Store.create(tmp_path, plan) as store:
        store.commit([scored(value=0.5, seconds=1.0)])
        store.commit([scored(value=0.9, seconds=9.0, target=7)])
        assert store.rows("SELECT value FROM scores WHERE metric = 'insertion'") == [(0.5,)]
        assert store.rows("SELECT seconds, target FROM units") == [(1.0, 7)]


def test_a_failed_unit_that_succeeds_later_is_done(tmp_path, plan):
    with Store.create(tmp_path, plan) as store:
        store.commit([outcome(status="failed", error="No.")])
        assert store.failed() == {"k1": "No."}
        store.commit([scored()])
        assert store.failed() == {}


def test_maps_are_kept_as_files_and_one_that_is_gone_is_missing(tmp_path, plan):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    with Store.create(tmp_path, plan) as store:
        store.commit([outcome(map=values, groups=("map", KEPT))])
        assert np.array_equal(store.map("k1"), values)
        assert store.done_groups() == {"k1": {"map", KEPT}}
        (tmp_path / "maps" / "k1.npy").unlink()
        assert store.done_groups() == {"k1": {"map"}}
        assert store.map("k1") is None


def test_a_batch_is_committed_whole_or_not_at_all(tmp_path, plan):
    with Store.create(tmp_path, plan) as store:
        with pytest.raises(DataError, match="cannot be used"):
            store.commit([scored("k1"), scored("k2", value=object())])
        assert store.rows("SELECT count(*) FROM units") == [(0,)]
        store.commit([scored("k1")])  # and the store goes on
        assert store.rows("SELECT count(*) FROM scores") == [(2,)]


def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path, plan):
    with Store.create(tmp_path, plan) as store:
        store.commit([scored("first")])
        (pages,) = store.rows("PRAGMA page_count")[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(DataError, match=r"is full; free some space, then go on with: fei bench resume"):
            store.commit([scored(f"k{i}") for i in range(2000)])
        assert store.rows("SELECT key FROM units") == [("first",)]
        store._connection.execute("PRAGMA max_page_count = 1000000")
        store.commit([scored("k1")])
        assert store.rows("SELECT count(*) FROM units") == [(2,)]


def test_a_disk_that_is_full_for_a_map(tmp_path, plan, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with Store.create(tmp_path, plan) as store:
        with monkeypatch.context() as patch:
            patch.setattr(np, "save", full)
            with pytest.raises(DataError, match="is full"):
                store.commit([outcome(map=np.zeros((2, 2), np.float32), groups=("map", KEPT))])
        assert store.rows("SELECT count(*) FROM units") == [(0,)]
        assert list((tmp_path / "maps").iterdir()) == []


def test_one_writer_at_a_time_and_readers_beside_it(tmp_path, plan):
    with Store.create(tmp_path, plan) as store:
        store.commit([scored()])
        with pytest.raises(InputError, match=rf"is being worked on by process {os.getpid()} on .+; wait for it"):
            Store.open(tmp_path)
        with Store.open(tmp_path, readonly=True) as reader:
            assert reader.rows("SELECT key FROM units") == [("k1",)]
        store.commit([scored("k2")])
    Store.open(tmp_path).close()


def test_what_a_driver_killed_while_it_wrote_left_behind_is_swept(tmp_path, plan):
    with Store.create(tmp_path, plan) as store:
        store.commit([outcome(map=np.zeros((2, 2), np.float32), groups=("map", KEPT))])
    there = {path.name for folder in (tmp_path, tmp_path / "maps") for path in folder.iterdir()}
    left = [tmp_path / f".fei-{'0' * 16}", tmp_path / "maps" / f".fei-{'a' * 16}"]
    others = [tmp_path / ".fei-notes", tmp_path / "maps" / f".fei-{'b' * 16}"]  # a file of the user's, a newer one
    for file in left + others:
        file.touch()
        os.utime(file, (1, 1))  # long ago
    os.utime(others[1], (2**32, 2**32))
    Store.open(tmp_path, readonly=True).close()  # who reads may not know what is written now
    assert all(file.exists() for file in left)
    with Store.open(tmp_path):
        assert [file.exists() for file in left + others] == [False, False, True, True]
    assert {path.name for folder in (tmp_path, tmp_path / "maps") for path in folder.iterdir()} - there == {
        file.name for file in others
    }


def test_the_plan_is_parsed_once_and_again_when_it_changes(tmp_path, plan, monkeypatch):
    parsed = []
    monkeypatch.setattr("fei.bench.plan.parse_plan", lambda text, **how: parsed.append(text) or parse_plan(text, **how))
    with Store.create(tmp_path, plan) as store, Store.open(tmp_path, readonly=True) as reader:
        assert store.plan is store.plan
        assert reader.plan == plan
        assert parsed == [TEXT, TEXT]
        other = parse_plan(TEXT.replace("Lite0", "Other"))
        store.link([], other)
        assert store.plan == reader.plan == reader.plan == other
        assert parsed == [TEXT, TEXT, other.text, other.text]


def test_a_newer_schema_is_refused_and_left_alone(tmp_path, plan):
    with Store.create(tmp_path, plan) as store:
        store.set_meta(schema="2")
    before = (tmp_path / "run.sqlite").read_bytes()
    for readonly in (True, False):
        with pytest.raises(DataError, match="has schema 2 and this version of fei reads 1; use the version that"):
            Store.open(tmp_path, readonly=readonly)
    with pytest.raises(InputError, match="holds a run already"):
        Store.create(tmp_path, plan)
    assert (tmp_path / "run.sqlite").read_bytes() == before
    assert not Store.begun(tmp_path / "elsewhere")


def test_what_is_no_run(tmp_path, plan):
    with pytest.raises(InputError, match="There is no run in"):
        Store.open(tmp_path)
    (tmp_path / "run.sqlite").write_text(
        "something else entirely, and long enough not to pass for an empty file" * 9, encoding="utf-8"
    )
    with pytest.raises(DataError, match="cannot be used"):
        Store.open(tmp_path)
    with pytest.raises(DataError, match="cannot be used"):
        Store.begun(tmp_path)


def test_a_crash_in_the_first_moment_leaves_a_folder_that_can_be_used(tmp_path, plan):
    (tmp_path / "run.sqlite").touch()
    assert not Store.begun(tmp_path)
    with pytest.raises(InputError, match="was never begun"):
        Store.open(tmp_path)
    Store.create(tmp_path, plan).close()
    assert Store.begun(tmp_path)


def test_a_plan_of_someone_else_is_not_overwritten(tmp_path, plan):
    (tmp_path / "plan.toml").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="is there already and is not this plan"):
        Store.create(tmp_path, plan)
    assert (tmp_path / "plan.toml").read_text(encoding="utf-8") == "mine"


def test_a_folder_that_cannot_be_made(tmp_path, plan):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be made"):
        Store.create(tmp_path / "file" / "run", plan)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_only_be_read(tmp_path, plan):
    with Store.create(tmp_path / "run", plan) as store:
        store.commit([scored()])
    (tmp_path / "run").chmod(0o500)
    try:
        with pytest.raises(InputError, match="cannot be written to"):
            Store.open(tmp_path / "run")
        with Store.open(tmp_path / "run", readonly=True) as store:
            assert store.rows("SELECT key FROM units") == [("k1",)]
    finally:
        (tmp_path / "run").chmod(0o700)


def test_a_changed_plan_relinks_and_forgets_failures_without_numbers(tmp_path, plan):
    other = parse_plan(TEXT.replace("Lite0", "Other"))
    with Store.create(tmp_path, plan) as store:
        store.link([(0, 0, "1.png", 0, "map", "k1"), (0, 0, "2.png", 0, "map", "k2")])
        store.commit([scored("k1"), outcome("k2", "failed", error="No.")])
        store.link([(0, 0, "3.png", 0, "map", "k3")], other)
        assert store.plan == other
        assert store.plan_key == keys.plan_key(other)
        assert store.rows("SELECT key FROM units") == [("k1",)]
        assert store.rows("SELECT name FROM pairs") == [("Other",)]
        assert store.counts() == {"done": 0, "failed": 0, "pending": 1}
    assert (tmp_path / "plan.toml").read_text(encoding="utf-8") == other.text


def test_keys_depend_on_content_alone():
    assert keys.canonical({"b": (1, 2.5), "a": None}) == '{"a":null,"b":[1,2.5]}'
    key = keys.key_of("map", seed=1, method="x")
    assert key == keys.key_of("map", method="x", seed=1)
    assert len(key) == 32
    assert len({key, keys.key_of("map", seed=2, method="x"), keys.key_of("sanity", seed=1, method="x")}) == 3
    assert keys.plan_key(parse_plan(TEXT)) == keys.plan_key(parse_plan("# a remark\n" + TEXT))


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS kind FROM c"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (f"DROP VIEW results; CREATE VIEW results AS {ENDLESS}", "its tables are not those of a run"),
        ("CREATE TRIGGER t AFTER UPDATE ON meta BEGIN DELETE FROM units; END", "its tables are not those of a run"),
        ("ALTER TABLE scores RENAME COLUMN value TO other", "its tables are not those of a run"),
        ("UPDATE scores SET value = 'many'", "its table 'scores' holds what no run writes"),
        ("UPDATE plan_units SET pair = 7", "its table 'plan_units' holds what no run writes"),
        ("UPDATE plan_units SET item = x'00ff'", "its table 'plan_units' holds what no run writes"),
        ("UPDATE units SET key = '../../up'", "its table 'units' holds what no run writes"),
        ("UPDATE meta SET value = x'00' WHERE key = 'plan_text'", "its table 'meta' holds what no run writes"),
    ],
)
def test_a_database_that_no_run_wrote_is_refused(tmp_path, plan, change, told):
    with Store.create(tmp_path, plan) as store:
        store.link([(0, 0, "1.png", 0, "map", "k1")])
        store.commit([scored()])
    with sqlite3.connect(tmp_path / "run.sqlite") as connection:
        connection.executescript(change)
    connection.close()
    for readonly in (True, False):
        with pytest.raises(DataError, match=told):
            Store.open(tmp_path, readonly=readonly)


def test_a_plan_that_is_not_that_of_the_tables_is_told(tmp_path, plan):
    with Store.create(tmp_path, plan) as store:
        store.set_meta(plan_text=TEXT + '[[methods]]\nname = "random"\n')
        with pytest.raises(DataError, match="is not that of its tables"):
            _ = store.plan


@pytest.mark.parametrize("text", ["{", "5", '["a"]', "[" * 100_000, "[" + "9" * 400 + "]"])
def test_a_curve_that_is_none_is_told(tmp_path, plan, text):
    from fei.bench.report.numbers import Numbers
    from fei.bench.store.exchange import stored_outcomes

    with Store.create(tmp_path, plan) as store:
        store.link([(0, 0, "1.png", 0, "map", "k1")])
        store.commit([scored()])
        store._connection.execute('UPDATE curves SET "values" = ?', (text,))
        for read in (
            lambda: list(stored_outcomes(store)),
            lambda: Numbers(store).curve(0, 0, "fei-paper/1", "insertion"),
        ):
            with pytest.raises(DataError, match="stands where"):
                read()


def test_a_curve_of_other_length_than_its_fractions_is_told(tmp_path, plan):
    from fei.bench.report.numbers import Numbers

    with Store.create(tmp_path, plan) as store:
        store.link([(0, 0, "1.png", 0, "map", "k1")])
        store.commit([scored()])
        store._connection.execute("UPDATE curves SET \"values\" = '[1.0]'")
        with pytest.raises(DataError, match="more or fewer scores than fractions"):
            Numbers(store).curve(0, 0, "fei-paper/1", "insertion")


def test_versions_that_are_none_are_told(tmp_path, plan):
    with Store.create(tmp_path, plan) as store:
        assert store.versions["sqlite"] == sqlite3.sqlite_version
        store.set_meta(versions="[1]")
        with pytest.raises(DataError, match="names no versions"):
            _ = store.versions


@pytest.mark.parametrize("shape", ["(1000000000000,)", "(2, 2", "(4,)", "()"])
def test_a_map_with_a_lying_header_is_none(tmp_path, plan, shape):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    with Store.create(tmp_path, plan) as store:
        store.commit([scored(map=np.zeros((2, 2), np.float32))])
        assert store.map("k1").shape == (2, 2)
        (tmp_path / "maps" / "k1.npy").write_bytes(b"\x93NUMPY\x01\x00" + bytes((len(header), 0)) + header + bytes(16))
        assert store.map("k1") is None


def test_an_index_that_does_not_fit_its_table_is_refused(tmp_path, plan):
    with Store.create(tmp_path, plan) as store:
        store.link([(0, 0, "1.png", 0, "map", "k1")])
    content = (tmp_path / "run.sqlite").read_bytes()
    first, second = (content.index(b"1.png"), content.rindex(b"1.png"))
    assert first != second  # once in the table, once in the index
    (tmp_path / "run.sqlite").write_bytes(content[:second] + b"2.png" + content[second + 5 :])
    with pytest.raises(DataError, match=r"cannot be used \(it is damaged\); restore it"):
        Store.open(tmp_path, readonly=True)


def test_damage_that_the_database_tells_in_no_words(tmp_path):
    with pytest.raises(DataError, match="cannot be used"), explained(tmp_path):
        b"\xff".decode()
