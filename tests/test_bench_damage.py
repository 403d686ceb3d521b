"""What a run keeps is not lost unnoticed: all of it has digests, and what is damaged is computed again."""

import json
import sqlite3

import commands
import numpy as np
import pytest
from commands import furnish
from commands import run as fei

from fei.bench.store import Store

pytestmark = pytest.mark.filterwarnings("default:Of the run in:UserWarning")
PLAN = """
name = "tiny"
keep_maps = true
[[pairs]]
model = "net.py:net"
data = "photos"
[[methods]]
name = "saliency"
[metrics]
protocols = ["fei-paper"]
internal = false
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    furnish(tmp_path, commands.NETWORK, "photos/a.png", "photos/b.png", "photos/c.png")
    assert fei("bench", "run", "plan.toml", "--out", "run", "--threads", "1") == 0
    return tmp_path / "run"


def tables(run):
    with Store.open(run, readonly=True) as store:
        rows = store.rows("SELECT unit, metric, protocol, layer, value FROM scores ORDER BY 1, 2, 3, 4")
        curves = store.rows("SELECT * FROM curves ORDER BY 1, 2, 3")
        maps = {key: store.map(key) for (key,) in store.rows("SELECT key FROM units")}
    return rows, curves, maps


def keys(run):
    return sorted(tables(run)[2])


def change(run, statement):
    sql = sqlite3.connect(run / "run.sqlite")
    sql.execute(statement)
    sql.commit()
    sql.close()


def verified(capsys):
    capsys.readouterr()
    code = fei("bench", "verify", "run", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (code == 0) == found["sound"]
    return {name: found[name] for name in ("plan", "units", "maps", "missing")}


SOUND = {"plan": True, "units": [], "maps": [], "missing": []}


def test_a_run_is_as_it_was_written(run, capsys):
    capsys.readouterr()
    assert fei("bench", "verify", "run") == 0
    assert capsys.readouterr().out == "All that is known of 3 units and 3 maps is as it was written.\n"
    assert fei("bench", "merge", "run", "run", "--out", "both") == 0
    assert fei("bench", "verify", "both") == 0


@pytest.mark.parametrize(
    "statement",
    [
        # one bit of the last digit of one score
        "UPDATE scores SET value = value + 1e-15 * value WHERE rowid_key",
        "UPDATE curves SET \"values\" = replace(\"values\", '0.', '1.') WHERE unit = 'KEY'",
        "UPDATE units SET probability = probability / 2 WHERE key = 'KEY'",
        "DELETE FROM groups WHERE unit = 'KEY' AND name LIKE 'external%'",
        "DELETE FROM units WHERE key = 'KEY'",
    ],
)
def test_a_damaged_unit_is_found_and_computed_again(run, capsys, statement):
    before, key = tables(run), keys(run)[1]
    change(run, statement.replace("rowid_key", "unit = 'KEY' AND metric = 'insertion'").replace("KEY", key))
    assert verified(capsys) == SOUND | {"units": [key]}
    assert fei("bench", "resume", "run", "--threads", "1") == 0
    told = capsys.readouterr()
    assert "1 units and 0 maps are damaged and 0 maps are missing; they are computed again" in told.err
    assert "1 units computed, 2 there already" in told.out
    assert verified(capsys) == SOUND
    for now, then in zip(tables(run)[:2], before[:2], strict=True):
        assert now == then


@pytest.mark.parametrize("how", ["missing", "cut", "flipped", "empty"])
def test_a_map_that_is_missing_or_damaged_is_computed_again(run, capsys, how):
    before, key = tables(run), keys(run)[0]
    file = run / "maps" / f"{key}.npy"
    content = file.read_bytes()
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes({"cut": content[:-9], "flipped": content[:-1] + bytes([content[-1] ^ 1]), "empty": b""}[how])
    assert verified(capsys) == SOUND | {"missing" if how == "missing" else "maps": [key]}
    assert fei("bench", "run", "plan.toml", "--out", "run", "--threads", "1") == 0
    assert "1 units computed, 2 there already" in capsys.readouterr().out
    assert verified(capsys) == SOUND
    assert file.read_bytes() == content
    np.testing.assert_equal(tables(run)[2], before[2])


def test_a_damaged_list_of_units_is_made_anew(run, capsys):
    change(run, "DELETE FROM plan_units WHERE item = 'a.png'")
    assert verified(capsys) == SOUND | {"plan": False}
    assert fei("bench", "resume", "run", "--threads", "1") == 0
    assert "0 units computed, 3 there already" in capsys.readouterr().out
    assert verified(capsys) == SOUND


def test_runs_of_earlier_versions_have_no_digests_and_say_so(run, capsys):
    change(run, "DROP TABLE digests")
    change(run, "DELETE FROM meta WHERE key = 'plan_digest'")
    capsys.readouterr()
    assert fei("bench", "verify", "run") == 0
    told = capsys.readouterr().out
    assert "Of 3 units nothing is known, since an earlier version wrote them." in told
    file = run / "maps" / f"{keys(run)[0]}.npy"
    file.write_bytes(b"no map")
    assert fei("bench", "resume", "run", "--threads", "1") == 0
    assert "1 units computed" in capsys.readouterr().out
    assert verified(capsys) == SOUND
