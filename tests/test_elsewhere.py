"""A slice of `make test-elsewhere`: a few tests on another processor, in another place, as another user, at once."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))

import elsewhere

pytestmark = pytest.mark.slow

FILES = ("clipgrad", "protocols", "references", "bench_store")
NUMBERS = ("method kernel-shap", "method gradcam")


def test_a_few_tests_pass_on_another_machine():
    tests = [f"tests/test_{name}.py" for name in FILES]
    tests += [f"tests/test_golden.py::test_results_are_what_they_were[{name}]" for name in NUMBERS]
    tests += ["--deselect=tests/test_clipgrad.py::test_derivation"]  # symbols, which are the same everywhere
    result = elsewhere.run(elsewhere.ALL_AT_ONCE, seed=1, tests=tests)
    if "not played" in result and os.environ.get("CI") != "true":
        pytest.skip(result["not played"])
    assert result.get("failed") == [], result
    assert result["passed"] > 100


def test_what_cannot_be_played_is_told():
    machine = elsewhere.Machine(needs="no-such-program")
    assert elsewhere.run(machine, 0, []) == {"not played": "there is no 'no-such-program' here"}


def test_a_failure_is_seen(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import os\n\ndef test_place():\n    assert os.environ['TZ'] == 'UTC'\n", encoding="utf-8"
    )
    machine = elsewhere.Machine({"TZ": "Pacific/Kiritimati"}, ("-n0", f"--rootdir={tmp_path}", "-c", os.devnull))
    result = elsewhere.run(machine, 0, [str(tmp_path / "test_it.py")])
    assert result["passed"] == 0
    assert result["failed"][0].startswith("test_place: ")
