"""What a file says is shown: a terminal does not obey it, and a spreadsheet does not compute it."""

import csv

import pytest
from commands import run as fei

from fei.bench.plan import parse_plan
from fei.bench.report import write_report
from fei.bench.store import Store
from fei.bench.store.exchange import export, import_results
from fei.bench.units import Outcome
from fei.cli import _common
from fei.common.words import from_spreadsheet_cell, printable, spreadsheet_cell

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
    _common.print_table(["a", "b"], [[name, name]])
    _common.complain(RuntimeError(name), debug=True)
    told = "".join(capsys.readouterr())
    assert [sign for sign in told if not sign.isprintable() and sign not in "\n\t"] == []
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
