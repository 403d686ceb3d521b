"""What is public: names that docs/reference/ documents, each of them with an example."""

import ast
import importlib
import inspect

# Modules whose `__all__` is public; without one, all that they define under a name that does not begin with _.
MODULES = (
    "fei",
    "fei.auditing",
    "fei.bench",
    "fei.bench.report",
    "fei.compat.quantus",
    "fei.data",
    "fei.errors",
    "fei.methods",
    "fei.metrics",
    "fei.models",
    "fei.models.finetune",
    "fei.protocols",
    "fei.references",
    "fei.report",
    "fei.report.explorer",
    "fei.service",
)
# What the guide uses of modules that are otherwise no concern of a caller, and what public functions take by name.
SINGLE = {
    "fei.bench.engine.runner": ("RunOptions",),
    "fei.core.clipgrad": ("BINARY", "BOTH", "FALL", "RISE", "RULES", "VALUE", "Block", "Matching", "Rule"),
    "fei.core.dataflow": ("trace",),
    "fei.core.sites": ("Site", "find_sites"),
    "fei.metrics.confidence": ("MaskOptions",),
    "fei.metrics.evaluation": ("CurveOptions", "PassOptions"),
    "fei.metrics.randomization": ("StageOptions",),
}


def public_names():
    """Every public name with what it stands for; modules, which have pages of their own, left out."""
    found = {}
    for place in MODULES:
        module = importlib.import_module(place)
        for name in getattr(module, "__all__", None) or _defined(module):
            found[f"{place}.{name}"] = getattr(module, name)
    for place, names in SINGLE.items():
        found |= {f"{place}.{name}": getattr(importlib.import_module(place), name) for name in names}
    return {name: value for name, value in found.items() if not inspect.ismodule(value)}


def _defined(module):
    tree = ast.parse(inspect.getsource(module))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for target in (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets):
        names += [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
    return [name for name in names if not name.startswith("_")]


def is_code(value):
    """Whether it is a function or a class, rather than a constant or the name of a type."""
    return inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value))
