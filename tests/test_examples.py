"""The examples: their code runs, and the notebook is stored with its outputs."""

import json
import runpy
from pathlib import Path

import matplotlib
import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOK = EXAMPLES / "explain.ipynb"


@pytest.fixture(scope="module")
def cells():
    return [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_the_notebooks_code_runs(cells, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    before = matplotlib.get_backend()
    matplotlib.use("agg")
    names = {}
    try:
        for number, cell in enumerate(cells):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
            if "parameters" in cell["metadata"].get("tags", ()):
                names |= {"steps": 1, "trials": 1}
    finally:
        matplotlib.use(before)
    printed = capsys.readouterr().out
    assert printed.startswith("espresso: ")
    assert "fei-none: in " in printed
    assert (tmp_path / "explorer.html").stat().st_size < 5_000_000


def test_the_notebook_was_executed_and_is_small(cells):
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    assert NOTEBOOK.stat().st_size < 1_500_000


def test_the_library_beside_captum(capsys):
    runpy.run_path(str(EXAMPLES / "library.py"))["main"](steps=1)
    printed = capsys.readouterr().out
    assert printed.startswith("explained: ")
    assert len([line for line in printed.splitlines() if line.startswith(("captum's", "fei"))]) == 4
