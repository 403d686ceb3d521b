"""The examples: their code runs, and one notebook is stored with its outputs."""

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOK = EXAMPLES / "explain.ipynb"


def code_of(notebook):
    return [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def execute(cells, **parameters):
    """Run cells one after the other, with other values for what the first one sets."""
    before = matplotlib.get_backend()
    matplotlib.use("agg")
    names = {}
    try:
        for number, cell in enumerate(cells):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
            if "parameters" in cell["metadata"].get("tags", ()):
                names |= parameters
    finally:
        plt.close("all")
        matplotlib.use(before)
    return names


class Cell:
    """A notebook's cell: what it shows now, and what it ever showed. Clearing waits for the next that is shown."""

    def __init__(self):
        self.now, self.ever, self.stale = [], [], False

    def clear_output(self, wait):
        self.stale = wait

    def display(self, figure):
        self.now = [*([] if self.stale else self.now), figure]
        self.ever.append(figure)
        self.stale = False


@pytest.fixture(scope="module")
def cells():
    return code_of(NOTEBOOK)


def test_the_notebook_was_executed_and_is_small(cells):
    """It takes long, so that only `make docs` executes it anew."""
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    assert NOTEBOOK.stat().st_size < 1_500_000


def test_the_first_map(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    cell = Cell()
    ipython = SimpleNamespace(display=cell, get_ipython=lambda: None, version_info=(9, 0))  # matplotlib asks it
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", cell)
    names = execute(code_of(EXAMPLES / "first_map.ipynb"), steps=2)
    assert [figure.axes[1].get_title() for figure in cell.ever] == ["class 282\npreview", "class 282"]
    assert cell.now == cell.ever[1:]  # one took the place of the other
    assert tuple(names["again"].maps.shape) == (1, 1, 224, 224)
    assert capsys.readouterr().out.startswith("tiger cat ")


def test_a_network_of_ones_own(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names = execute(code_of(EXAMPLES / "own_network.ipynb"), steps=8)
    assert "right on 100%" in capsys.readouterr().out
    assert torch.equal(names["loaded"](names["images"]), names["model"](names["images"]))
    on, off = (names["result"].maps[:, 0][chosen].mean() for chosen in (names["where"], ~names["where"]))
    assert on > off + 0.1  # the map is about the disc


def test_the_library_beside_captum(capsys):
    runpy.run_path(str(EXAMPLES / "library.py"))["main"](steps=1)
    printed = capsys.readouterr().out
    assert printed.startswith("explained: ")
    assert len([line for line in printed.splitlines() if line.startswith(("captum's", "fei"))]) == 4
