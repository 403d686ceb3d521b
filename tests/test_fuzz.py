"""The fuzzer: a slice of its cases finds nothing, and its oracle sees what is wrong with readers that are."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))

import _fuzz_rows
import fuzz
from _fuzz_bombs import Bombs
from _fuzz_runs import run_files
from _fuzz_targets import TARGETS, Mixed
from _fuzz_worker import make_case, wrong_words
from bad_readers import BadReader

from fei.errors import DataError, InputError, ModelError

pytestmark = pytest.mark.slow

CASES = 200
TOLD = {
    "raises": "ValueError at bad_readers.py raises: what nobody expected",
    "two_lines": "a message that is not one line of printable text",
    "runs_code": "the file made the process act: os.system",
    "writes_outside": "/stray' was opened for writing",
    "links_outside": "something was written outside the case's folder: a/b/c/stray",
    "leaves_temporary_files": "a temporary file was left: tmp/left",
    "allocates": "MiB of memory, more than 64",
    "is_slow": "s of processor time, more than 0.3",
}


def test_a_slice_of_the_cases_finds_nothing(tmp_path):
    tally = fuzz.fuzz(Mixed(), CASES, 0, findings=tmp_path)
    assert tally.findings == []
    assert tally.cases == CASES == tally.accepted + tally.refused
    assert tally.accepted > CASES / 20  # neither all harmless nor all noise
    assert tally.refused > CASES / 4


def test_changes_of_a_run_go_together():
    """A case that cannot be made would end a run of the fuzzer."""
    with closing(sqlite3.connect(":memory:")) as sql:
        sql.deserialize(run_files()["run.sqlite"])
        sql.execute("DROP TABLE digests")
        sql.execute("CREATE TABLE digests(unit TEXT PRIMARY KEY, map TEXT, content TEXT AS ('x'))")
        for number in range(40):
            _fuzz_rows._key(Random(number), sql)


def test_the_oracle_sees_every_fault_and_nothing_else():
    reader = BadReader("works", *TOLD)
    tally = fuzz.fuzz(reader, 40, 0, max_seconds=0.3)
    faults = {number: make_case(reader, 0, number).ask[0] for number in range(40)}
    assert set(faults.values()) == {"works", *TOLD}  # each came up
    assert tally.refused == list(faults.values()).count("works")
    assert [one["case"] for one in tally.findings] == [f"bad:{n}" for n, fault in faults.items() if fault != "works"]
    for finding in tally.findings:
        assert TOLD[faults[int(finding["case"].removeprefix("bad:"))]] in finding["what"]


def test_a_worker_that_dies_or_hangs_is_seen_and_replaced():
    tally = fuzz.fuzz(BadReader("dies"), 2, 0)
    assert [one["what"] for one in tally.findings] == ["the process died with exit code -6"] * 2
    tally = fuzz.fuzz(BadReader("hangs"), 1, 0, patience=1.0)
    assert [one["what"] for one in tally.findings] == ["it hung for more than 1 s"]


def test_findings_are_kept_and_made_small(tmp_path):
    fuzz.fuzz(BadReader("raises"), 1, 0, findings=tmp_path)
    assert (tmp_path / "bad-0" / "files" / "file").read_bytes() == b""
    assert "what nobody expected" in (tmp_path / "bad-0" / "finding.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("target", TARGETS)
def test_a_case_is_a_function_of_its_number(target):
    tested = TARGETS[target].target
    assert make_case(tested, 0, 5) == make_case(tested, 0, 5)
    assert make_case(tested, 0, 5) != make_case(tested, 0, 6)
    assert make_case(tested, 0, 5) != make_case(tested, 1, 5)


def test_no_case_leads_out_of_the_fuzzers_folder():
    """A reader that follows a link, as earlier ones did, must find nothing of the machine's there."""
    links = [target for number in range(150) for target in make_case(Bombs(), 0, number).links.values()]
    assert len(links) > 20
    for target in links:
        assert not Path(target).is_absolute()
        assert Path("run", target).parts.count("..") <= 3  # of a/b/c/case/run


def test_every_target_gets_its_share():
    shares = fuzz.shares(100_000, list(TARGETS))
    assert shares.keys() == TARGETS.keys()
    assert 100_000 <= sum(shares.values()) < 100_000 + len(TARGETS)
    assert fuzz.shares(10, ["plans"]) == {"plans": 10}


@pytest.mark.parametrize("message", ["", "one\ntwo", "Traceback (most recent call last)", "\x1b[31mred", "x" * 2000])
def test_words_that_are_wrong(message):
    assert wrong_words(message) is not None
    assert wrong_words("The file is damaged; save it anew.") is None


def test_our_errors_are_one_printable_line_whatever_a_file_put_in():
    assert str(DataError("'é ≤ 1' is odd")) == "'é ≤ 1' is odd"
    assert str(InputError("one\ntwo \x1b[31mred \udcff")) == "one\\ntwo \\x1b[31mred \\udcff"
    long = str(ModelError("begins" + "x" * 70_000 + "; do this."))
    assert len(long) < 1400
    assert long.startswith("beginsxx")
    assert long.endswith("xx; do this.")
