"""Rows of a stranger's database: they lead to no other file, and cost no more than the file is worth."""

import sqlite3
import struct

import numpy as np
import pytest

from fei.bench.plan import parse_plan
from fei.bench.report import write_report
from fei.bench.report.numbers import Numbers, natural
from fei.bench.store import Store
from fei.bench.store.exchange import diff
from fei.bench.units import KEPT, Outcome
from fei.errors import DataError, InputError

TEXT = """name = "p"
{}
[[pairs]]
model = "efficientnet_lite0"
data = "photos"
name = "pair"
[[methods]]
name = "random"
[[methods]]
name = "centre"
"""
PLAN = parse_plan(TEXT.format(""))
MAGIC = bytes.fromhex("d9d505f920a163d7")


@pytest.fixture
def run(tmp_path):
    """A run of one unit with a score and a map."""
    return make_run(tmp_path / "run")


def make_run(folder, plan=PLAN):
    facts = {"model": "m", "data": "d", "item": "1.png", "method": "random", "config": "{}", "seed": 0}
    unit = Outcome(
        key="a" * 32, kind="map", status="done", scores=(("gini", "", "", 0.5),), groups=("map", KEPT),
        map=np.zeros((2, 2), np.float32), **facts,
    )  # fmt: skip
    with Store.create(folder, plan) as store:
        store.link([(0, 0, "1.png", 0, "map", unit.key)], layers=[["0"]])
        store.commit([unit])
    return folder


def change(folder, *statements):
    with sqlite3.connect(folder / "run.sqlite") as sql:
        for statement, *rows in statements:
            sql.executemany(statement, rows or [()])
    sql.close()


def refused(folder, match):
    for readonly in (True, False):
        with pytest.raises(DataError, match=match):
            Store.open(folder, readonly=readonly).close()


@pytest.mark.parametrize("key", ["../../precious", "{}/precious", "a\0/../../../precious", "ä"])
@pytest.mark.parametrize("table", ["groups", "digests", "plan_units", "scores", "curves"])
def test_no_row_names_a_file_elsewhere(run, tmp_path, table, key):
    precious = tmp_path / "precious.npy"
    precious.write_bytes(b"precious")
    values = {
        "groups": ("key", KEPT), "digests": ("key", "0", "0"), "plan_units": (0, 0, "x", 0, "map", "key"),
        "scores": ("key", "gini", "", "", 0.5), "curves": ("key", "p", "n", "[]", "[]"),
    }[table]  # fmt: skip
    row = [key.format(tmp_path) if value == "key" else value for value in values]
    change(run, (f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row))
    refused(run, f"its table '{table}' holds what no run writes")
    assert precious.read_bytes() == b"precious"


@pytest.mark.parametrize(
    "made",
    [
        "CREATE INDEX further ON meta(length(hex(zeroblob(1000000))))",
        "CREATE TABLE further(a, b AS (hex(zeroblob(1000000))))",
        "CREATE VIEW further AS SELECT 1",
        "CREATE TRIGGER further AFTER INSERT ON meta BEGIN SELECT 1; END",
    ],
)
def test_nothing_is_computed_as_it_is_read(run, made):
    change(run, (made,))
    refused(run, "its tables are not those of a run")


@pytest.mark.parametrize("table", ["meta", "digests"])
def test_no_column_is_computed(run, table):
    columns = {"meta": "key TEXT PRIMARY KEY, value TEXT", "digests": "unit TEXT PRIMARY KEY, map TEXT, content TEXT"}
    change(run, (f"DROP TABLE {table}",), (f"CREATE TABLE {table}({columns[table]} AS (hex(zeroblob(100))))",))
    refused(run, "has schema \\?" if table == "meta" else "its tables are not those of a run")


def test_a_run_of_an_earlier_version_has_no_digests(run):
    change(run, ("DROP TABLE digests",))
    with Store.open(run) as store:
        assert store.damage().none
        assert store.damage().covered == 0


def test_a_cell_is_bounded(run):
    with Store.open(run, readonly=True) as store, pytest.raises(DataError, match="too big"):
        store.rows("SELECT zeroblob(100000000)")


@pytest.mark.parametrize("pages", [1 << 18, (1 << 32) - 1])
def test_a_journal_makes_no_database_larger(run, pages):
    head = MAGIC + struct.pack(">IIIII", 0, 0, pages, 512, 4096)
    (run / "run.sqlite-journal").write_bytes(head.ljust(512, b"\0"))
    refused(run, "is a journal that no run leaves behind")


def test_rows_that_refer_to_each_other(run):
    many = range(3000)
    change(
        run,
        ("INSERT INTO plan_units VALUES (0, 0, ?, 0, 'map', ?)", *[(f"i{i}", "a" * 32) for i in many]),
        ("INSERT INTO scores VALUES (?, ?, '', '', 0.5)", *[("a" * 32, f"m{i}") for i in many]),
    )
    refused(run, "its rows refer to each other without end")


def test_a_long_text_that_every_row_has(run):
    change(
        run,
        ("UPDATE units SET config = ?", ["x" * 1_000_000]),
        ("INSERT INTO scores VALUES (?, ?, '', '', 0.5)", *[("a" * 32, f"m{i}") for i in range(500)]),
    )
    refused(run, "its rows refer to each other without end")


def test_long_names_that_every_score_has(run):
    change(
        run,
        (
            "INSERT INTO plan_units VALUES (0, 0, ?, 0, 'map', ?)",
            *[("9" * 4000 + str(i), "a" * 32) for i in range(120)],
        ),
        ("INSERT INTO scores VALUES (?, ?, '', '', 0.5)", *[("a" * 32, f"m{i}") for i in range(1000)]),
    )
    refused(run, "its rows refer to each other without end")


def test_places_without_units(tmp_path):
    run = make_run(tmp_path / "run", parse_plan(TEXT.format(f"seeds = {list(range(10_000))}")))
    rows = [(f"i{i}", "a" * 32) for i in range(1000)]
    change(run, ("INSERT INTO plan_units VALUES (0, 0, ?, 0, 'map', ?)", *rows))
    with Store.open(run, readonly=True) as store, pytest.raises(DataError, match="1001 units for 1001 × 10000 places"):
        Numbers(store)


def test_numbers_are_let_go_where_they_are_many(run, monkeypatch):
    change(run, ("INSERT INTO scores VALUES (?, ?, '', '', ?)", *[("a" * 32, f"m{i}", i / 4) for i in range(4)]))
    monkeypatch.setattr("fei.bench.report.numbers._MOST_BYTES", 10)
    with Store.open(run, readonly=True) as store:
        numbers = Numbers(store)
        found = {
            q.metric: numbers.values(0, 0, q).item() for _ in range(2) for q in sorted(numbers.quantities[0], key=str)
        }
        assert len(numbers._values) <= 2
    assert found == {"gini": 0.5, **{f"m{i}": i / 4 for i in range(4)}}


def test_names_in_tables_are_those_of_the_plan(run, tmp_path):
    other = make_run(tmp_path / "other")
    change(other, ("UPDATE methods SET label = 'same'",))
    with (
        Store.open(run, readonly=True) as one,
        Store.open(other, readonly=True) as two,
        pytest.raises(DataError, match="is not that of its tables"),
    ):
        diff(one, two)


def test_numbers_in_names_may_be_long(run):
    assert sorted(["a15", "a8", "a" + "9" * 5000, "a015", "b"], key=natural) == [
        "a8",
        "a15",
        "a015",
        "a" + "9" * 5000,
        "b",
    ]
    change(run, ("INSERT INTO plan_units VALUES (0, 0, ?, 0, 'map', ?)", ("9" * 4096, "a" * 32)))
    with Store.open(run, readonly=True) as store:
        assert Numbers(store).items(0, "map") == ["1.png", "9" * 4096]
    change(run, ("UPDATE plan_units SET item = ? WHERE item LIKE '9%'", ("9" * 4097,)))
    refused(run, "its table 'plan_units' holds what no run writes")


def test_a_kind_is_text_too(run, tmp_path):
    change(run, ("INSERT INTO plan_units VALUES (0, 1, 'x', 0, '<img src=x onerror=alert(1)>', ?)", ("a" * 32,)))
    with Store.open(run, readonly=True) as store:
        (page, *_) = write_report(store, tmp_path / "report")
    assert "<img src" not in page.read_text(encoding="utf-8").replace("\\<", "")


@pytest.mark.parametrize("line", ["seeds = [0x{}]", "retries = 0x{}", "keep_maps = 0b{}"])
def test_numbers_longer_than_python_writes(line):
    with pytest.raises(InputError, match="a number has too many digits"):
        parse_plan(TEXT.format(line.format("1" * 20_000)))
