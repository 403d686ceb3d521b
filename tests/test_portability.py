"""What depends on the machine, and must not: each rule is here because a score or a test once did."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fei.common.machine import usable_processors
from fei.core.scoring import top_classes

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "benchmarks", "reliability", "studies", "examples", "docs")
RUNNERS = {"run", "Popen", "check_output", "check_call"}
OTHER_OPENERS = {"Image", "Store", "os", "zipfile", "webbrowser"}  # whose `open` takes no encoding


def calls(source):
    """Every call: its line, the name called, what it is called on, its arguments and keywords."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            name = node.func.attr if owner else ast.unparse(node.func)
            words = {word.arg: ast.unparse(word.value) for word in node.keywords}
            yield node.lineno, name, owner, [ast.unparse(given) for given in node.args], words


def machine_dependent(source):
    """What a file does that differs between machines: (line, sentence) each."""
    for line, name, owner, given, words in calls(source):
        binary = any("b" in word for word in (*given[:2], words.get("mode", "")) if word.startswith("'"))
        text = (name == "read_text" and not given) or (name == "write_text" and len(given) == 1)
        text |= name == "open" and owner.split(".")[-1] not in OTHER_OPENERS and bool(owner or given) and not binary
        text |= name in RUNNERS and owner == "subprocess" and "text" in words
        if text and "encoding" not in words and None not in words:
            yield line, f"{name}: text is read or written in the encoding of the machine; add encoding"
        if name == "argsort" and owner != "areas" and not {"stable", "kind"} & words.keys():
            yield line, "argsort: equal values are ordered by the processor; add stable=True or kind='stable'"
        if name == "topk":
            yield line, "topk: which of equal values are taken depends on the processor; sort with stable=True"
        if name == "next" and given and "iterdir" in given[0] and "sorted" not in given[0]:
            yield line, "iterdir: the file system decides which file is first; sort"
        if name == "cpu_count":
            yield line, "cpu_count: the machine's processors, not this process's; use usable_processors()"


# numpy_per_value repeats what Quantus does, and says so; tests compare with it, and with unstable originals
EXCUSED = {
    ("src/fei/protocols.py", "argsort"),
    ("src/fei/common/machine.py", "cpu_count"),
    ("tests/test_protocols.py", "argsort"),
    ("tests/test_portability.py", "topk"),
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_depends_on_the_machine(folder):
    found = [
        f"{place}:{line}: {what}"
        for file in sorted((PROJECT / folder).rglob("*.py"))
        for place in [file.relative_to(PROJECT).as_posix()]
        for line, what in machine_dependent(file.read_text(encoding="utf-8"))
        if (place, what.partition(":")[0]) not in EXCUSED
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "Path('a').read_text()",
        "file.write_text('a')",
        "open('a')",
        "path.open('w')",
        "subprocess.run(words, text=True)",
        "np.argsort(-x)",
        "x.argsort(descending=True)",
        "x.topk(3)",
        "next(folder.iterdir())",
        "os.cpu_count()",
    ],
)
def test_each_of_these_is_found(code):
    assert len(list(machine_dependent(code))) == 1


def test_the_best_classes_are_the_same_wherever_probabilities_are_equal():
    values = torch.zeros(1000)
    values[[7, 3, 900]] = torch.tensor([0.5, 0.25, 0.25])
    probabilities, classes = top_classes(values, 5)
    assert classes.tolist() == [7, 3, 900, 0, 1]
    assert probabilities.tolist() == [0.5, 0.25, 0.25, 0, 0]
    assert top_classes(values[:2], 5)[1].tolist() == [0, 1]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity masks")
def test_processors_are_those_this_process_may_use(tmp_path):
    none, quota = tmp_path / "none", tmp_path / "cpu.max"
    allowed = os.sched_getaffinity(0)
    assert usable_processors(none) == len(allowed)
    code = "import os; from fei.common.machine import *; os.sched_setaffinity(0, {%d}); print(usable_processors())"
    done = subprocess.run([sys.executable, "-c", code % min(allowed)], capture_output=True, encoding="utf-8")
    assert done.stdout == "1\n"
    for text, expected in [("max 100000\n", len(allowed)), ("100000 100000", 1), ("50000 100000", 1), ("nonsense", 0)]:
        quota.write_text(text, encoding="ascii")
        assert usable_processors(quota) == (expected or len(allowed))
