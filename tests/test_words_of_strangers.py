"""What a file says is shown: a terminal does not obey it, and a spreadsheet does not compute it."""

import csv
import json
import re
import sqlite3
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from commands import run as fei

from fei.auditing import Audit, junit
from fei.auditing.measured import Measured
from fei.auditing.network import FirstLook, Remark
from fei.auditing.questions import QUESTIONS
from fei.auditing.written import markdown
from fei.bench.plan import parse_plan
from fei.bench.report import write_report
from fei.bench.store import Store
from fei.bench.store.exchange import export, import_results
from fei.bench.units import Outcome
from fei.cli import _common
from fei.common.words import from_spreadsheet_cell, in_markdown, printable, spreadsheet_cell

CLIPBOARD = "\x1b]52;c;bWluZQ==\x07"  # has a terminal put something on the clipboard
NAMES = [CLIPBOARD, "\x1b[2J", "\x9b2J", "a\rb", "\x7f", "\u202egnp.exe", "\x08\x08", "a\x00b"]
FORMULA = "=HYPERLINK(A1)"


@pytest.fixture
def run(tmp_path):
    """A run in which all that can be text is hostile."""
    evil = CLIPBOARD.encode("unicode_escape").decode().replace("\\x", "\\u00")
    text = (
        f'name = "{evil}"\n[[pairs]]\nmodel = "efficientnet_lite0"\ndata = "x"\nname = "{FORMULA}"\n'
        f'[[methods]]\nname = "random"\nlabel = "@{evil}"\ngroup = "+1"\n'
    )
    with Store.create(tmp_path / "run", parse_plan(text)) as store:
        words = {"model": FORMULA, "data": "-x", "item": "\t=1", "method": "random", "config": "{}"}
        outcome = Outcome(
            "a" * 32, "map", **words, seed=0, status="done", label=f"={CLIPBOARD}", scores=(("gini", "", "", -0.5),),
            groups=("map", "complexity"),
        )  # fmt: skip
        failed = Outcome("b" * 32, "map", **words | {"item": "b"}, seed=0, status="failed", error=CLIPBOARD)
        store.commit([outcome, failed])
        store.link([(0, 0, "\t=1", 0, "map", "a" * 32), (0, 0, "b", 0, "map", "b" * 32)])
    return tmp_path / "run"


@pytest.mark.parametrize("command", ["status", "report", "show", "export", "diff", "resume"])
def test_no_command_hands_control_characters_to_the_terminal(run, capsys, command):
    more = {"show": ["a" * 32], "export": [run.parent / "a.csv"], "diff": [run]}.get(command, [])
    fei("bench", command, run, *more)
    told = "".join(capsys.readouterr())
    assert told
    assert [sign for sign in told if not sign.isprintable() and sign not in "\n\t"] == []


@pytest.mark.parametrize("name", NAMES)
def test_texts_and_tables_are_escaped(capsys, name):
    _common.say(name)
    _common.note(name)
    _common.print_table(["a", f"[bold]{name}"], [[name, name]])
    _common.complain(RuntimeError(name), debug=True)
    told = "".join(capsys.readouterr())
    assert [sign for sign in told if not sign.isprintable() and sign not in "\n\t"] == []
    assert "[bold]" in told
    assert in_markdown(name).isprintable()
    assert printable("Grüße, 猫\n\t") == "Grüße, 猫\n\t"


def test_cells_are_no_formulas_and_come_back_as_they_were(run):
    with Store.open(run, readonly=True) as store:
        export(store, run.parent / "a.csv")
        write_report(store, run.parent / "report")
    for file in (run.parent / "a.csv", *(run.parent / "report" / "tables").glob("*.csv")):
        with file.open(newline="", encoding="utf-8") as stream:
            texts = [cell for row in csv.reader(stream) for cell in row]
        assert "'=HYPERLINK(A1)" in texts
        assert [cell for cell in texts if cell[:1] in "=+@\t\r" and cell] == []
        assert [cell for cell in texts if cell[:1] == "-"] in ([], ["-0.5"])  # a number
    first, second = import_results(run.parent / "a.csv")
    assert (first.item, first.label) == ("\t=1", f"={CLIPBOARD}")
    assert (second.error, second.item) == (CLIPBOARD, "b")


@pytest.mark.parametrize("text", ["", "a", "'a", "=1", "'=1", "''=1", "-", "'", "\n=", "a=1", " =1"])
def test_a_cell_can_be_undone(text):
    cell = spreadsheet_cell(text)
    assert from_spreadsheet_cell(cell) == text
    assert cell[:1] not in set("=+-@\t\r\n")


def test_numbers_that_json_does_not_have_are_none(run, capsys):
    with sqlite3.connect(run / "run.sqlite") as sql:
        sql.execute("UPDATE scores SET value = 9e999")
    sql.close()
    assert fei("bench", "show", run, "a" * 32) == 0
    assert json.loads(capsys.readouterr().out)["scores"][0]["value"] is None


def test_the_report_of_an_audit_is_text():
    """An error, and with it the name of an image, is a reason why a method was left out."""
    evil = f"a\n\n# head\n<img src=x onerror=alert(1)> [b](javascript:c) `|{CLIPBOARD}"
    audit = Audit(
        recommended=None, sentences=(evil, evil), by_question={}, table={}, methods=(), questions=QUESTIONS[:1],
        dropped={evil: evil}, left_out={evil: evil}, remarks=(Remark("spurious", evil, ()),), measured=Measured(),
        items=(), looked=FirstLook(8, None, 2, 0.5, 0.1, ()), fingerprint="0f", folder=Path(), computed=0, seconds=1.0,
        asked={"spec": evil, "data": evil, "images": 8, "budget": 60.0, "seed": 0, "options": {}}, finished="2026",
    )  # fmt: skip
    text = markdown(audit)
    plain = "".join(re.split(r"(?<!\\)`", text)[::2])  # what is not code
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert "\n# head" not in text
    assert plain.count("<") == plain.count("\\<") > 0
    assert plain.count("[") - plain.count("\\[") == 0
    (case,) = ElementTree.fromstring(junit(audit, evil)).iter("testcase")
    assert "\\x1b]52" in case.get("classname")
    assert "\\x1b]52" in case.find("error").get("message")
