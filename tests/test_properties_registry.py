"""Every public function has a property test: a new one without fails here.

Property tests say what they are about with `covers`; names are those under ``fei``, such as "metrics.gini". Public is
what ``fei`` and its packages export, and what the modules listed here define without an underscore.
"""

import dataclasses
import enum
import importlib
import inspect
import typing
from pathlib import Path

import fei

PACKAGES = ("", "bench", "data", "methods", "metrics", "models", "report")
MODULES = (
    "bench.report._statistics",
    "bench.plan.keys",
    "compat.quantus",
    "core.attribution",
    "core.checks",
    "core.clipgrad",
    "core.dataflow",
    "core.explanation",
    "core.folding",
    "core.optimization",
    "core.pathway",
    "core.quantiles",
    "core.randomness",
    "core.scoring",
    "core.settings",
    "core.sites",
    "metrics.black_image",
    "metrics.similarity",
    "models.layers",
    "progress",
    "protocols",
    "references",
)

# Why these have no property test of their own.
EXEMPT = {
    "what it does shows under an interrupt: tests/test_cli.py": {"core.dataflow.WatchingMode"},
    "notes of a data flow, or words for one, checked by hand: tests/test_attention.py, tests/test_sites.py": {
        "core.dataflow.Value",
        "core.settings.as_stored",
        "core.sites.kinds_of",
        "core.sites.sites_at",
    },
    "looks up a name, in labels that are tested: tests/test_first_hour_api.py": {"core.scoring.named_target"},
    "a list of names, read whole: tests/test_pictures.py": {"methods.is_control"},
    "tells a terminal how far work is: tests/test_waiting_told.py": {
        "progress.doing",
        "progress.span",
        "progress.time_left",
    },
    "reads files, or names of them: fuzzed by reliability/fuzz.py": {
        "bench.Plan",
        "bench.Store",
        "bench.plan.keys.file_digest",
        "bench.plan.keys.plan_key",
        "bench.load_plan",
        "data.SpecForm",
        "data.available",
        "data.demo_image",
        "data.load",
        "data.read_image",
        "models.available",
        "models.describe",
        "models.load",
    },
    "runs experiments, in other processes: tests/test_bench_*.py": {
        "bench.LocalEngine",
        "bench.RayEngine",
        "bench.expand",
        "bench.plan.keys.attends",
        "bench.plan.keys.feature_layers",
        "bench.plan.keys.model_fingerprint",
        "bench.resume",
        "bench.run",
    },
    "runs experiments on the store of benchmarks: tests/test_audit*.py": {"audit"},
    "draws a whole figure, of an explanation that is tested: tests/test_report.py": {"report.figure"},
}


def is_plain(thing):
    """Whether there is nothing to test: an exception, a protocol, or a record without behaviour."""
    if not inspect.isclass(thing):
        return False
    if issubclass(thing, (Exception, enum.Enum)) or getattr(thing, "_is_protocol", False):
        return True
    behaves = [
        name
        for name, value in vars(thing).items()
        if (inspect.isfunction(value) and not name.startswith("_")) or isinstance(value, (property, classmethod))
    ]
    return dataclasses.is_dataclass(thing) and not behaves and not {"__post_init__", "__call__"} & set(vars(thing))


def public_names():
    found = {}
    for package in PACKAGES:
        module = importlib.import_module(f"fei.{package}".rstrip("."))
        found |= {f"{package}.{name}".lstrip("."): getattr(module, name) for name in module.__all__}
    for name in MODULES:
        module = importlib.import_module(f"fei.{name}")
        found |= {
            f"{name}.{attribute}": value
            for attribute, value in vars(module).items()
            if not attribute.startswith("_") and getattr(value, "__module__", None) == module.__name__
        }
    return {
        name: value
        for name, value in found.items()
        if callable(value) and not inspect.ismodule(value) and typing.get_origin(value) is None and not is_plain(value)
    }


def property_tests():
    """For each name, the property tests that cover it."""
    found = {}
    for file in sorted(Path(__file__).parent.glob("test_properties_*.py")):
        for value in vars(importlib.import_module(file.stem)).values():
            for name in () if inspect.ismodule(value) else getattr(value, "covers", ()):
                assert getattr(value, "is_hypothesis_test", False), f"{value.__name__} draws nothing"
                found.setdefault(name, []).append(f"{file.stem}::{value.__name__}")
    return found


def aliases(name, value):
    """A function is one and the same under all its names."""
    return {name, *(other for other, thing in PUBLIC.items() if thing is value)}


PUBLIC = public_names()


def test_every_public_function_has_a_property_test():
    covered, exempt = property_tests(), set().union(*EXEMPT.values())
    missing = [name for name, value in PUBLIC.items() if not aliases(name, value) & (covered.keys() | exempt)]
    assert missing == []


def test_nothing_is_covered_or_exempt_that_is_not_there():
    def exists(name):
        module, _, attribute = name.rpartition(".")
        return hasattr(importlib.import_module(f"fei.{module}".rstrip(".")), attribute)

    named = [*property_tests(), *(name for names in EXEMPT.values() for name in names)]
    assert [name for name in named if not exists(name)] == []


def test_no_exemption_has_a_test():
    assert [name for names in EXEMPT.values() for name in names if name in property_tests()] == []


def test_the_package_is_what_is_looked_at():
    assert {"FEI", "clip_gradient", "metrics.gini", "core.quantiles.project", "protocols.get"} <= PUBLIC.keys()
    assert {name for name in fei.__all__ if callable(getattr(fei, name))} <= PUBLIC.keys()
