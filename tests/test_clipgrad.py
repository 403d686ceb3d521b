"""The seven rules: against the specification's conditions case by case, and against the paper's derivation."""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fei
from fei.core.clipgrad import BINARY, RULES, VALUE, Block, Matching, Rule, get_rule

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


def test_what_a_rule_says_of_itself():
    says = {name: (rule.constrains, rule.binary, rule.follows) for name, rule in RULES.items()}
    value, binary = (True, False, True), (True, True, False)
    assert says == {
        "vm": value, "ivm": value, "avm": value, "bm": binary, "ibm": binary, "abm": binary,
        "none": (False, False, False),
    }  # fmt: skip


def test_a_rule_made_of_known_parts_alone_clips_each_unit_for_itself():
    whole = Block(lambda home: home, lambda rho, guard, memory: rho * (guard.sum() > 0))
    assert all(get_rule(name).local for name in ("vm", "ivm", "avm", "bm", "ibm", "abm"))
    others = Rule(), Rule(VALUE, whole), Rule(BINARY, whole), Rule(Matching(torch.clone))
    assert not any(rule.local for rule in others)


@pytest.mark.parametrize("rule", ["vm", "ivm", "avm"])
def test_memory_is_used_where_it_is_given_and_only_there(rule):
    """A pass over a network's activations makes no new memory: the way home, the guard and ρ̃ take the given one."""
    chosen, h, t, rho = get_rule(rule), torch.tensor([0.0, 5.0]), torch.ones(2), torch.tensor([1.0, -2.0])
    kept, memory = chosen.keep(h), torch.empty(2)
    fresh = chosen.guard(kept, t)
    guard = chosen.guard(kept, t, memory)
    assert guard.data_ptr() == memory.data_ptr()
    assert fresh.data_ptr() not in (memory.data_ptr(), kept.data_ptr())
    assert fresh.tolist() == guard.tolist()
    assert kept.tolist() == [0.0, 5.0]
    clipped = chosen.clip(rho, guard)
    assert guard.tolist() == fresh.tolist()  # it may be needed again
    spent = chosen.block.clip(rho, guard, guard)
    assert spent.data_ptr() == guard.data_ptr()
    assert spent.tolist() == clipped.tolist()


@pytest.mark.parametrize("rule", ["bm", "ibm", "abm"])
def test_what_binary_rules_keep_is_their_guard(rule):
    chosen, h = get_rule(rule), torch.tensor([-1.0, 2.0])
    kept = chosen.keep(h)
    assert kept.data_ptr() != h.data_ptr()
    assert chosen.guard(kept, torch.zeros(2), torch.empty(2)) is kept


@pytest.mark.parametrize("rule", ["vm", "ivm", "abm"])
def test_directions_keep_their_precision(rule):
    """Under autocast a gradient is of lower precision than what was kept in the forward pass, or of higher."""
    chosen = get_rule(rule)
    for low, high in ((torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)):
        guard = chosen.guard(chosen.keep(torch.tensor([0.0, 5.0], dtype=high)), torch.ones(2, dtype=high))
        clipped = chosen.clip(torch.tensor([1.0, -2.0], dtype=low), guard)
        assert clipped.dtype == low


def test_rules_cannot_be_changed():
    rule = get_rule("vm")
    for part, name in ((rule, "block"), (rule.matching, "keep"), (rule.block, "clip")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, name, None)


def test_unknown_rule_and_unequal_shapes_are_refused():
    one = torch.ones(3)
    with pytest.raises(ValueError, match="Unknown clipping rule 'wm'; choose one of vm, ivm, avm, bm, ibm, abm, none"):
        fei.clip_gradient(one, one, one, "wm")
    with pytest.raises(ValueError, match=r"must have one shape; got \(3,\), \(3,\) and \(2,\)"):
        fei.clip_gradient(one, one, torch.ones(2), "vm")


@pytest.mark.parametrize("position", [0, 1, 2])
def test_numbers_that_arithmetic_cannot_hold_are_refused(position):
    """Differences of activations must stay finite: each is at most half the largest number."""
    name, half = ("grad", "reference", "activation")[position], torch.finfo(torch.float32).max / 2

    def with_value(value):
        arguments = [torch.tensor([1.0, 2.0]) for _ in range(3)]
        arguments[position] = value
        return fei.clip_gradient(*arguments, "vm")  # type: ignore[call-arg]

    assert with_value(torch.tensor([half, -half])).isfinite().all()
    for bad in (float("nan"), float("inf"), half * 1.001, -half * 1.001):
        with pytest.raises(ValueError, match=f"`{name}` holds NaN, infinite or too large values; scale the loss down"):
            with_value(torch.tensor([1.0, bad]))
    with pytest.raises(ValueError, match=f"`{name}` must be a floating-point tensor; got torch.int64"):
        with_value(torch.tensor([1, 2]))
    with pytest.raises(ValueError, match=f"`{name}` must be a floating-point tensor; got list"):
        with_value([1.0, 2.0])


def test_how_large_a_number_may_be_depends_on_its_precision():
    for dtype, largest in ((torch.float16, 3e4), (torch.float64, 1e307)):
        some = torch.tensor([largest], dtype=dtype)
        assert fei.clip_gradient(some, some, some, "vm").isfinite().all()
        with pytest.raises(ValueError, match="`grad` holds NaN, infinite or too large values"):
            fei.clip_gradient(some * 1.5 if dtype == torch.float16 else some * 10, some, some, "vm")


@pytest.mark.parametrize("rule", ZERO_WHERE)
def test_zeros_of_either_sign_are_one(rule):
    g = torch.tensor([-1.0, 1.0])
    plus, minus = torch.zeros(2), -torch.zeros(2)
    expected = fei.clip_gradient(g, plus, plus, rule).tolist()
    for h, t in itertools.product((plus, minus), repeat=2):
        assert fei.clip_gradient(g, h, t, rule).tolist() == expected


def test_without_a_constraint_nothing_is_compared():
    kept = torch.ones(2)
    assert get_rule("none").guard(kept, torch.zeros(2)) is kept


def test_the_result_has_no_graph():
    g, h, t = (torch.tensor([1.0, -1.0], requires_grad=True) for _ in range(3))
    assert not fei.clip_gradient(g, h, t, "vm").requires_grad
    assert fei.clip_gradient(g, h, t, "none") is g


def test_a_name_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="Unknown clipping rule 3; choose one of"):
        get_rule(3)
