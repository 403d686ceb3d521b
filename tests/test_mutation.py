"""The tool that tries the tests: its faults, its verdicts, its explanations; and a short slice of a whole run."""

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[1]
FOLDER = PROJECT / "reliability"
TARGET = "core/quantiles.py"


@pytest.fixture
def mutants(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("_mutants")


def changes(mutants, line):
    """The last lines of all mutants of a function with that line."""
    return [m.after for m in mutants.mutants_of("f.py", f"def f(a, b):\n    {line}\n")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return a < b", ["return None", "return (a <= b)", "return (a >= b)"]),
        ("return not a", ["return None", "return (a)"]),
        ("return -a", ["return None", "return (a)"]),
        ("return a + 1", ["return None", "return (a - 1)", "return a + (2)", "return a + (0)"]),
        ("return a and b", ["return None", "return (a or b)", "return (b)", "return (a)"]),
        ("return a if b else 0.5", None),
        ("a += b", ["pass"]),
        ("a.clamp_(min=b)", ["pass", "(a.clamp_())", "(a.clamp_(max=b))", "(a)"]),
        ("return min(a, b)", ["return None", "return (min(a))", "return (max)(a, b)"]),
        ("raise ValueError('no')", ["pass"]),
        ("return a[1:]", ["return None", "return (a[:])", "return a[(2):]", "return a[(0):]"]),
        ('"""Says what it does."""', []),
    ],
)
def test_faults(mutants, line, expected):
    if expected is None:
        expected = ["return None", "return (a)", "return (0.5)", "return a if b else (1.0)", "return a if b else (1.5)"]
    assert changes(mutants, line) == expected


def test_a_mutant_is_known_by_its_text_and_not_by_its_line(mutants):
    source = "class A:\n    @property\n    def f(self) -> bool:\n        return self.x > 0\n"
    first, moved = mutants.mutants_of("f.py", source), mutants.mutants_of("f.py", "\n\n" + source)
    assert [m.key for m in first] == [m.key for m in moved]
    assert first[1].key == ("f.py", "A.f", "return self.x > 0", "return (self.x >= 0)")
    assert all(m.in_function for m in first)
    assert not any(m.in_function for m in mutants.mutants_of("f.py", "ROUNDS = 3\n"))


def test_every_explanation_gives_a_reason_and_matches_a_mutant(mutants):
    entries = tomllib.loads((FOLDER / "equivalent_mutants.toml").read_text(encoding="utf-8"))["mutant"]
    known = {}
    for entry in entries:
        file = entry["file"]
        if file not in known:
            source = (PROJECT / "src" / "fei" / file).read_text(encoding="utf-8")
            known[file] = {mutant.key for mutant in mutants.mutants_of(file, source)}
        assert (file, entry["scope"], entry["before"], entry["after"]) in known[file]
        assert len(entry["reason"].split()) > 3


def run(*arguments):
    return started(FOLDER / "mutate.py", *arguments)


def started(*words):
    command = [sys.executable, *words]
    environment = os.environ | {"PYTHONPATH": str(PROJECT / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=PROJECT, env=environment, check=False, encoding="utf-8"
    )


def test_a_slice_of_the_mutants_is_killed():
    done = run("--only", TARGET, "--sample", "1", "--seed", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(TARGET)
    assert "'mutants': 1, 'killed by a test': 1" in done.stdout
    assert "'survived': 0" in done.stdout


def test_blind_tests_let_mutants_survive(tmp_path):
    blind = tmp_path / "test_blind.py"
    blind.write_text(
        "from fei.core.clipgrad import get_rule\n\ndef test_nothing():\n    assert get_rule\n", encoding="utf-8"
    )
    done = run("--only", "core/clipgrad.py", "--sample", "3", "--seed", "1", "--tests", str(blind))
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("survived: core/clipgrad.py:") == 3
    failing = tmp_path / "test_failing.py"
    failing.write_text("def test_never():\n    assert False\n", encoding="utf-8")
    done = run("--only", "core/clipgrad.py", "--sample", "1", "--tests", str(failing))
    assert done.returncode == 1
    assert "the tests of core/clipgrad.py do not pass on the unchanged source" in done.stderr


IMPORTED = """
import sys
sys.path.insert(0, {folder!r})
from _mutant_runs import PACKAGE, run_all, warm_up
from _mutants import mutants_of

file = "metrics/evaluation.py"
every = mutants_of(file, (PACKAGE / file).read_text(encoding="utf-8"))
chosen = [mutant for mutant in every if mutant.scope == "_relevant" and mutant.after == "return None"]
warm_up([{test!r}])
run_all([{test!r}], chosen, lambda mutant, outcome: print(mutant.in_function, outcome.end))
"""


def test_a_function_that_is_called_while_its_module_is_imported_is_mutated_too(tmp_path):
    test = tmp_path / "test_metrics_are_there.py"
    test.write_text(
        "from fei.metrics.evaluation import METRICS\n\n"
        "def test_measures():\n    assert all(callable(metric.measure) for metric in METRICS)\n",
        encoding="utf-8",
    )
    done = started("-c", IMPORTED.format(folder=str(FOLDER), test=str(test)))
    assert done.stdout == "True failed\n", done.stderr
