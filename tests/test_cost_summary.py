"""Costs counted on known calls, and means with intervals against scipy."""

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from networks import fingerprint, pictures, small_cnn
from scipy import stats
from torch import nn

from fei.core.attribution import FEI
from fei.errors import InputError
from fei.metrics.cost import Cost, measure_cost
from fei.metrics.summary import Mean, Summary, bootstrap_interval


def gradient(model, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(model(x).sum(), x)[0]


def test_rows_forwards_and_backwards():
    model, x = small_cnn(), pictures(5)

    def call():
        with torch.no_grad():
            model(x)
            model(input=x[:2])  # by name
        gradient(model, x[:3])
        return "done"

    before = fingerprint(model)
    result, cost = measure_cost(model, call)
    assert result == "done"
    assert (cost.forwards, cost.backwards) == (10, 3)
    assert cost.seconds > 0
    assert cost.peak_bytes is None or cost.peak_bytes >= 0
    assert fingerprint(model) == before


def test_a_forward_without_a_backward_and_a_backward_twice():
    model, x = small_cnn(), pictures(2)

    def call():
        model(x)  # a graph is built, and nothing comes back
        output = model(x)
        output.sum().backward(retain_graph=True, inputs=[model[0].weight])
        output.sum().backward(inputs=[model[0].weight])

    _, cost = measure_cost(model, call)
    model.zero_grad()
    assert (cost.forwards, cost.backwards) == (4, 4)


def test_nothing_is_counted_after_the_call():
    model, x = small_cnn(), pictures(2)
    output, cost = measure_cost(model, lambda: model(x))
    output.sum().backward()
    model.zero_grad()
    assert (cost.forwards, cost.backwards) == (2, 0)
    assert not output._backward_hooks


def test_outputs_of_other_kinds():
    class Dressed(nn.Module):
        def __init__(self, dress):
            super().__init__()
            self.body, self.dress = small_cnn(), dress

        def forward(self, x):
            return self.dress(self.body(x))

    x = pictures(3).requires_grad_()
    undress = [
        (lambda y: SimpleNamespace(logits=y), lambda out: out.logits),
        (lambda y: {"aux": y * 2, "out": y}, lambda out: out["aux"] + out["out"]),
        (lambda y: (None, y), lambda out: out[1]),
    ]
    for dress, logits in undress:
        model = Dressed(dress)
        _, cost = measure_cost(model, lambda m=model, f=logits: torch.autograd.grad(f(m(x)).sum(), x))
        assert (cost.forwards, cost.backwards) == (3, 3)


def test_hooks_go_also_when_the_call_fails():
    model, x = small_cnn(), pictures(2)
    before = fingerprint(model)
    leaf = x.clone().requires_grad_()

    def fail():
        model(x)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_cost(model, fail)
    assert fingerprint(model) == before
    identity = nn.Identity()
    measure_cost(identity, lambda: identity(leaf))  # its output is the caller's own tensor
    assert not leaf._backward_hooks


def test_fei_costs_what_it_says():
    model, x = small_cnn(), pictures(2)
    explainer = FEI(model, "vm", quantiles=(0.5, 0.9), steps=4)
    maps, cost = measure_cost(model, lambda: explainer.attribute(x, 1))
    assert torch.equal(maps, explainer.attribute(x, 1))  # counting changes nothing
    assert cost.backwards == 2 * 2 * 4 + 2  # images, quantiles, steps; and two that check what was folded
    assert cost.forwards >= cost.backwards


@pytest.mark.parametrize(("platform", "unit"), [("linux", 1024), ("darwin", 1)])
def test_memory_is_the_growth_of_the_processs_peak(monkeypatch, platform, unit):
    resource = pytest.importorskip("resource")
    peaks = iter([1000, 3500])
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=next(peaks)))
    monkeypatch.setattr(sys, "platform", platform)
    assert measure_cost(nn.Identity(), lambda: None)[1].peak_bytes == 2500 * unit


def test_memory_as_the_system_tells_it(monkeypatch):
    cost = measure_cost(nn.Identity(), lambda: None)[1]
    assert isinstance(cost, Cost)
    assert cost.peak_bytes is None or 0 <= cost.peak_bytes < 10_000_000
    monkeypatch.setattr(sys, "platform", "win32")
    assert measure_cost(nn.Identity(), lambda: None)[1].peak_bytes is None


def test_mean_over_batches_by_hand():
    mean = Mean()
    mean.update(torch.tensor([1.0, 2.0]))
    mean.update([3.0, 6.0])
    found = mean.compute()
    assert (found.mean, found.n) == (3.0, 4)
    assert found.std == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3))
    assert (found.low, found.high) == bootstrap_interval([1, 2, 3, 6])
    assert isinstance(found, Summary)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_interval_against_scipy(level):
    values = np.random.default_rng(4).exponential(size=60)
    low, high = bootstrap_interval(torch.from_numpy(values), level, resamples=9000, seed=1)
    expected = stats.bootstrap(
        (values,), np.mean, confidence_level=level, n_resamples=9000, method="percentile"
    ).confidence_interval
    assert (low, high) == pytest.approx(tuple(expected), abs=0.05 * values.std())


def test_interval_covers_the_mean_as_often_as_it_says():
    source = np.random.default_rng(0)
    covered = []
    for seed in range(200):
        low, high = bootstrap_interval(source.normal(size=50), 0.8, resamples=300, seed=seed)
        covered.append(low <= 0 <= high)
    assert np.mean(covered) == pytest.approx(0.8, abs=0.09)  # three standard errors


def test_interval_has_a_generator_of_its_own():
    values = torch.rand(30)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(values) != bootstrap_interval(values, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)


def test_many_values_are_resampled_in_parts_alike(monkeypatch):
    values = torch.rand(50)
    whole = bootstrap_interval(values, resamples=101)
    monkeypatch.setattr("fei.metrics.summary._DRAWS_AT_A_TIME", 400)
    assert bootstrap_interval(values, resamples=101) == pytest.approx(whole)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=20), st.floats(0.1, 0.99))
def test_interval_lies_within_the_values_and_grows_with_the_level(values, level):
    low, high = bootstrap_interval(values, level, resamples=50)
    wider = bootstrap_interval(values, min(0.999, level + 0.05), resamples=50)
    assert min(values) - 1e-9 <= wider[0] <= low <= high <= wider[1] <= max(values) + 1e-9


def test_arrays_that_torch_cannot_share_are_numbers_too():
    values = np.array([1.0, 2.0, 4.0])
    expected = bootstrap_interval([1.0, 2.0, 4.0])
    values.flags.writeable = False  # as pandas gives them
    assert bootstrap_interval(values) == expected
    assert bootstrap_interval(np.array([4.0, 2.0, 1.0])[::-1]) == expected


def test_a_single_value_has_no_spread():
    mean = Mean()
    mean.update([0.25])
    found = mean.compute()
    assert (found.mean, found.n) == (0.25, 1)
    assert all(math.isnan(value) for value in (found.std, found.low, found.high))
    assert bootstrap_interval([2.0, 2.0, 2.0]) == (2, 2)


def test_summary_refusals():
    with pytest.raises(InputError, match=r"nothing to summarise; call update\(\)"):
        Mean().compute()
    with pytest.raises(InputError, match="`values` is empty"):
        bootstrap_interval([])
    with pytest.raises(InputError, match="`values` holds NaN"):
        Mean().update([1.0, math.nan])
    with pytest.raises(InputError, match=r"shape \(N,\); got \(2, 2\)"):
        Mean().update(torch.rand(2, 2))
    for level in (0, 1, 95, "high"):
        with pytest.raises(InputError, match="`level` must lie between 0 and 1"):
            Mean(level=level)
    with pytest.raises(InputError, match="`resamples` must be a whole number of at least 1"):
        bootstrap_interval([1.0, 2.0], resamples=0)
