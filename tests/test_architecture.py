"""The way of the data: a layer knows the layers before it and none after, as docs/architecture.md draws it."""

import ast
import re
import sys
from pathlib import Path

import pytest

import fei

SOURCE = Path(fei.__file__).parent
PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
# From left to right; those of one line may know each other.
LAYERS = (
    {"errors"},
    {"common"},
    {"progress"},
    {"data"},
    {"core", "references"},
    {"models"},
    {"protocols"},
    {"methods"},
    {"metrics", "compat"},
    {"_request"},
    {"report", "bench"},
    {"app"},
    {"cli"},
    {"__init__", "__main__"},
)
PLACE = {name: place for place, names in enumerate(LAYERS) for name in names}


def layer_of(file):
    parts = file.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else file.stem


def imported(tree):
    """Layers that a module imports when it is itself imported, not what single functions load when they are called."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "fei":
            names = [f"fei.{alias.name}" for alias in node.names if alias.name != "__version__"]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        else:
            names = []
        yield from (name.split(".")[1] for name in names if name.startswith("fei."))


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_module_knows_what_is_to_its_left(file):
    here = PLACE[layer_of(file)]
    assert [name for name in imported(ast.parse(file.read_text(encoding="utf-8"))) if PLACE[name] > here] == []


def test_core_needs_torch_alone():
    allowed = {"fei", "torch", "safetensors"}
    for file in (SOURCE / "core").glob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            others = {name.split(".")[0] for name in names} - allowed
            assert others <= set(sys.stdlib_module_names), file


def test_the_page_names_every_file_that_there_is():
    page = PAGE.read_text(encoding="utf-8")
    told = set(re.findall(r"`((?:src/fei|tests|docs|studies|benchmarks|reliability)/[\w./-]+)`", page))
    root = PAGE.parent.parent
    assert [path for path in sorted(told) if not (root / path).exists()] == []
    assert {name for name in PLACE if (SOURCE / name).is_dir()} <= set(re.findall(r"`(\w+)/`", page))
