"""The seven rules: against the specification's conditions case by case, and against the paper's derivation."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fei
from fei.core.clipgrad import RULES

# (γ, h, h̃) zeroed? written out from the table of definitions, one lambda a row
ZERO_WHERE = {
    "vm": lambda g, h, t: (g <= 0 and t > h) or (g > 0 and t <= h),
    "ivm": lambda g, h, t: g <= 0 and t > h,
    "avm": lambda g, h, t: g > 0 and t <= h,
    "ibm": lambda g, h, t: g <= 0 and h <= 0,
    "abm": lambda g, h, t: g > 0 and h > 0,
    "bm": lambda g, h, t: (g <= 0 and h <= 0) or (g > 0 and h > 0),
    "none": lambda g, h, t: False,
}
CASES = list(itertools.product([-2.0, 0.0, 3.0], [-1.0, 0.0, 1.0, 2.0], [-1.0, 0.0, 1.0, 2.0]))


@pytest.mark.parametrize("rule", ZERO_WHERE)
def test_truth_table_over_all_signs_and_orders(rule):
    g, h, t = torch.tensor(CASES).unbind(1)
    expected = [0.0 if ZERO_WHERE[rule](*case) else case[0] for case in CASES]
    assert fei.clip_gradient(g, h, t, rule).tolist() == expected


def test_every_rule_of_the_table_is_tested():
    assert set(RULES) == set(ZERO_WHERE)


def test_known_values():
    g = torch.tensor([-1.0, -1.0, 2.0, 2.0])
    h = torch.tensor([0.0, 5.0, 0.0, 5.0])
    t = torch.tensor([1.0, 1.0, 1.0, 1.0])  # above, below, above, below its original value
    assert fei.clip_gradient(g, h, t, "VM").tolist() == [0, -1, 2, 0]
    assert fei.clip_gradient(g, h, t, "ivm").tolist() == [0, -1, 2, 2]
    assert fei.clip_gradient(g, h, t, "avm").tolist() == [-1, -1, 2, 0]
    assert fei.clip_gradient(g, h, t, "ibm").tolist() == [0, -1, 2, 2]


finite = st.floats(-1e6, 1e6, allow_nan=False).filter(lambda v: abs(v) > 1e-6)


@given(st.lists(st.tuples(finite, finite, finite).filter(lambda c: c[1] != c[2]), min_size=1, max_size=20))
def test_derivation(cases):
    """VM = ½(γ + |γ|·sign(h̃−h)) and BM = ½(γ + |γ|(1−2B)), away from ties (appendix, eqs. total_gradient, binary)."""
    g, h, t = torch.tensor(cases, dtype=torch.float64).unbind(1)
    torch.testing.assert_close(fei.clip_gradient(g, h, t, "vm"), (g + g.abs() * (t - h).sign()) / 2)
    active = (h > 0).double()
    torch.testing.assert_close(fei.clip_gradient(g, h, t, "bm"), (g + g.abs() * (1 - 2 * active)) / 2)


def test_arguments_are_left_alone():
    g, h, t = torch.tensor([1.0, -1.0]), torch.tensor([1.0, -1.0]), torch.tensor([0.0, 0.0])
    before = [v.clone() for v in (g, h, t)]
    assert fei.clip_gradient(g, h, t, "vm").tolist() == [0, 0]
    assert all(torch.equal(a, b) for a, b in zip((g, h, t), before, strict=True))


def test_unknown_rule_and_unequal_shapes_are_refused():
    one = torch.ones(3)
    with pytest.raises(ValueError, match="unknown clipping rule 'wm'; choose one of vm, ivm, avm, bm, ibm, abm, none"):
        fei.clip_gradient(one, one, one, "wm")
    with pytest.raises(ValueError, match=r"must have one shape; got \(3,\), \(3,\) and \(2,\)"):
        fei.clip_gradient(one, one, torch.ones(2), "vm")
