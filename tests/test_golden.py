"""Golden values: what every method and metric gave on the embedded network must be what it gives now.

A failure means that results changed, by a change here or by another torch. If that is meant, write them anew with
``python reliability/golden.py --write`` and say so in the changelog.
"""

import inspect
import sys
from pathlib import Path

import pytest
import torch

import fei
from fei.core import quantiles

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))

import _golden_entries
import golden

pytestmark = pytest.mark.slow

STORED = golden.load()
# Masks that start as equal as round-off lets them be, and a ranking of them; noise that is drawn in single precision.
# KernelSHAP's least squares weigh two of the rows a million times as much as the others.
LOOSE = {"method extremal-perturbation": 1e-2, "sensitivity": 1e-5, "method kernel-shap": 1e-5}


def release(version):
    return tuple(map(int, version.split("+")[0].split(".")[:2]))


@pytest.mark.parametrize("name", golden.ENTRIES)
def test_results_are_what_they_were(name):
    if name == "method kernel-shap" and release(torch.__version__) < release(STORED["torch"]):
        pytest.skip("captum draws coalitions by torch.multinomial, which drew others from the same seed in torch 2.4")
    wrong = golden.complaint(name, golden.compute(name), STORED)
    assert wrong is None, wrong


def test_every_method_protocol_and_metric_has_a_golden_value():
    assert {method for method, _ in _golden_entries.METHODS.values()} == set(fei.methods.available())
    steady = [name for name in fei.protocols.available() if not fei.protocols.get(name).caution]
    assert {f"protocol {name}" for name in steady} < set(STORED["entries"])
    source = inspect.getsource(_golden_entries)
    functions = {name for name in fei.metrics.__all__ if inspect.isfunction(getattr(fei.metrics, name))}
    functions -= {"declared", "describe", "group_of", "groups"}  # they tell of metrics and measure nothing
    assert {name for name in functions if f"metrics.{name}(" not in source} == set()
    assert set(STORED["entries"]) == set(golden.ENTRIES)


def test_the_file_is_small_and_its_tolerances_follow_from_what_was_measured():
    assert golden.STORED.stat().st_size < 100_000
    for name, entry in STORED["entries"].items():
        assert entry["tolerance"] == golden.tolerance(name, max(entry["spread"].values())), name
        assert entry["tolerance"] <= (0.1 if name.endswith("single precision") else LOOSE.get(name, 1e-6)), name


def test_a_small_change_of_the_optimiser_is_seen(monkeypatch):
    monkeypatch.setattr(quantiles, "_MOMENTUM", 0.79)
    wrong = golden.complaint("method fei-vm", golden.compute("method fei-vm"), STORED)
    assert "'method fei-vm' differs from its golden value: pooled[" in wrong


def test_a_complaint_names_the_entry_both_values_and_the_tolerance():
    stored = {"torch": "1.0", "entries": {"thing": {"tolerance": 0.01, "series": {"a": [1.0, 2.0], "b": [5.0]}}}}
    assert golden.complaint("thing", {"a": [1.0, 2.01], "b": [5.0]}, stored) is None
    wrong = golden.complaint("thing", {"a": [1.0, 2.1], "b": [5.0]}, stored)
    assert wrong.startswith(
        "'thing' differs from its golden value: a[1] is 2.1, expected 2.0; that is 0.05 of the series' largest number, "
        "the tolerance being 0.01 (written with torch 1.0, here "
    )
    assert golden.complaint("thing", {"a": [1.0, float("nan")], "b": [5.0]}, stored)
    assert golden.complaint("thing", {"a": [1.0, 2.0]}, stored)
    assert "golden.py --write" in golden.complaint("other", {}, stored)
