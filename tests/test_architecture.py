"""The way of the data, as docs/architecture.md draws it: a package knows those before it, and only their open doors."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

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
    {"report"},
    {"service"},
    {"bench"},
    {"auditing"},
    {"app"},
    {"cli"},
    {"__init__", "__main__"},
)
PLACE = {name: place for place, names in enumerate(LAYERS) for name in names}
# What a single function imports from further right when it is called, and why.
UPWARDS = {
    ("core/attribution.py", "fei.models.layers"): "the focus is on the layer that class activation maps look at",
    ("core/explanation.py", "fei.report.drawing"): "`Explanation.show` draws itself",
    ("core/explanation.py", "fei.report.explorer.notebook"): "and so it does in a notebook",
}
FILES = sorted(SOURCE.rglob("*.py"))


def package_of(file):
    parts = file.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else file.stem


@cache
def imports(file):
    """Every module of ours that a file imports, at its top or inside a function; names of packages spelled out."""
    return list(_imports(file))


def _imports(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("fei."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fei":
            for alias in node.names:
                inner = SOURCE.joinpath(*node.module.split(".")[1:], alias.name)
                whole = inner.is_dir() or inner.with_suffix(".py").is_file()
                yield f"{node.module}.{alias.name}" if whole else node.module


def where(file):
    return file.relative_to(SOURCE).as_posix()


def foreign(file):
    """What a file imports of other packages: the module, and its package."""
    for module in imports(file):
        package = module.split(".")[1] if "." in module else "__init__"
        if package not in (package_of(file), "__init__"):
            yield module, package


def test_a_package_knows_those_to_its_left():
    found = {
        (where(file), module)
        for file in FILES
        for module, package in foreign(file)
        if PLACE[package] > PLACE[package_of(file)]
    }
    assert found - set(UPWARDS) == set()


def test_nobody_reaches_into_another_packages_private_modules():
    assert [(where(file), module) for file in FILES for module, _ in foreign(file) if "._" in module] == []


def test_nor_into_those_of_another_room():
    found = []
    for file in FILES:
        package, room = f"fei.{package_of(file)}.", ".".join(("fei", *file.relative_to(SOURCE).parts[:2]))
        if len(file.relative_to(SOURCE).parts) > 2:
            private = [module for module in imports(file) if module.startswith(package) and "._" in module]
            found += [(where(file), module) for module in private if not module.startswith(f"{room}.")]
    assert found == []


def test_exceptions_are_needed():
    needed = {(where(file), module) for file in FILES for module, _ in foreign(file)}
    assert set(UPWARDS) <= needed


def test_core_needs_torch_alone():
    allowed = {"fei", "torch", "safetensors"}
    for file in (SOURCE / "core").glob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []  # type: ignore[list-item]
            others = {name.split(".")[0] for name in names} - allowed
            assert others <= set(sys.stdlib_module_names), file


def test_the_page_names_every_file_that_there_is():
    page = PAGE.read_text(encoding="utf-8")
    told = set(re.findall(r"`((?:src/fei|tests|docs|studies|benchmarks|reliability)/[\w./-]+)`", page))
    root = PAGE.parent.parent
    assert [path for path in sorted(told) if not (root / path).exists()] == []
    assert {name for name in PLACE if (SOURCE / name).is_dir()} <= set(re.findall(r"`(\w+)/`", page))


def test_no_two_public_classes_share_a_name():
    homes = {}
    for file in FILES:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(where(file))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
