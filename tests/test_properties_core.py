"""Properties of the core: clipping rules, projections, scores, settings, seeds, and what is found in networks."""

import itertools
import json
import math
import re

import numpy as np
import pytest
import strategies
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from networks import OUTPUTS, varied_cnn
from strategies import FLOATS, LAYOUTS, SIZES, attempt, covers, examples, filled, images_for, laid_out, networks, seeds
from test_clipgrad import ZERO_WHERE
from torch import nn

import fei
from fei.core import checks, scoring
from fei.core.clipgrad import RULES, get_rule
from fei.core.dataflow import CONVOLUTIONS, CountingMode, function_name, tensors_in, trace, uncompiled
from fei.core.folding import Folding, can_fold, find_folding, first_pass, is_watched
from fei.core.optimization import contrasted
from fei.core.pathway import Pathway, folding_that_holds, visit_sites
from fei.core.quantiles import AdamUpdate, ProjectedUpdate, SharedUpdate, project, project_nested
from fei.core.randomness import generator_for, image_digest, seed_of
from fei.core.settings import Settings, described, make_settings, previewed
from fei.core.sites import (
    RESIDUALS,
    SITE_KINDS,
    check_kind,
    find_layer,
    find_sites,
    resolve_name,
    several_calls,
    unreachable,
)
from fei.errors import FEIError, InputError, ModelError

pytestmark = pytest.mark.slow

# numbers at which comparisons go wrong: zeros of both signs, the smallest numbers there are, equals, neighbours
CRITICAL = [0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 1e-38, -1e-38, 1e38, -1e38, 1.0000001, 5.0]

activations = st.sampled_from(CRITICAL) | st.floats(-(2.0**126), 2.0**126, width=32)


@covers("core.clipgrad.clip_gradient", "core.clipgrad.get_rule", "core.clipgrad.Rule")
@examples(60)
@given(
    rule=st.sampled_from(sorted(RULES)),
    numbers=st.lists(
        st.tuples(*[st.sampled_from(CRITICAL) | st.floats(-(2.0**126), 2.0**126, width=32)] * 3), max_size=40
    ),
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@example("vm", [(1.0, -0.0, 0.0), (-1.0, -0.0, 0.0)], "contiguous", torch.float32)  # −0 was taken to be below 0
def test_rules_are_their_table_on_any_numbers(rule, numbers, layout, dtype):
    g, h, t = (laid_out(v, layout) for v in torch.tensor(numbers, dtype=dtype).reshape(-1, 3).unbind(1))
    with strategies.undisturbed(None, g, h, t):
        clipped = fei.clip_gradient(g, h, t, rule.upper())
    zero = ZERO_WHERE[rule]
    assert clipped.tolist() == [0.0 if zero(*case) else case[0] for case in torch.stack([g, h, t], 1).tolist()]
    assert clipped.dtype == dtype
    assert get_rule(rule).constrains == (rule != "none")


@pytest.mark.parametrize("rule", sorted(RULES))
def test_rules_are_their_table_on_all_critical_numbers(rule):
    cases = torch.tensor(list(itertools.product(CRITICAL, CRITICAL, CRITICAL)))
    clipped = fei.clip_gradient(*cases.unbind(1), rule)  # type: ignore[call-arg]
    assert clipped.tolist() == [0.0 if ZERO_WHERE[rule](*case) else case[0] for case in cases.tolist()]


@examples(40)
@given(
    rule=st.sampled_from(sorted(RULES)),
    where=st.integers(0, 2),
    bad=st.sampled_from([math.nan, math.inf, -math.inf, 3e38, -3e38]),
)
@example("vm", 0, 3e38)  # halfway between ρ and −ρ went by way of infinity
def test_rules_refuse_what_they_cannot_compare(rule, where, bad):
    values = [torch.zeros(2) for _ in range(3)]
    values[where][1] = bad
    with pytest.raises(InputError, match="NaN, infinite or too large"):
        fei.clip_gradient(*values, rule)  # type: ignore[call-arg]


@pytest.mark.parametrize("bad", [torch.ones(2, dtype=torch.long), torch.ones(2).bool(), 1.0, None, [1.0, 2.0]])
def test_rules_refuse_what_is_no_tensor_of_numbers(bad):
    with pytest.raises(InputError, match="must be a floating-point tensor"):
        fei.clip_gradient(torch.ones(2), bad, torch.ones(2), "vm")


def projection_by_bisection(values, area):
    """The projection on {0 ≤ α ≤ 1, mean α = area} in double precision, by halving an interval that holds τ."""
    low, high = values.min() - 1, values.max()
    for _ in range(100):
        tau = (low + high) / 2
        low, high = (tau, high) if np.clip(values - tau, 0, 1).mean() > area else (low, tau)
    return np.clip(values - tau, 0, 1)


@covers("core.quantiles.project")
@examples(60)
@given(
    kind=st.sampled_from(["uniform", "normal", "ties", "constant", "zero", "tiny", "spike"]),
    seed=seeds,
    rows=st.integers(1, 3),
    pixels=st.sampled_from([1, 2, 7, 91, 4097, 9000]),
    area=st.floats(0.001, 0.999),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    layout=st.sampled_from(LAYOUTS),
)
def test_projection_meets_the_area_inside_the_box(kind, seed, rows, pixels, area, scale, layout):
    values = laid_out((filled((rows, pixels), kind, seed) * scale).clamp(-1e4, 1e4), layout).detach()
    areas = torch.full((rows,), area)
    with strategies.undisturbed(None, values):
        alpha = project(values, areas)
    assert alpha.shape == values.shape
    assert alpha.min() >= 0
    assert alpha.max() <= 1
    off = alpha.double().mean(-1) - areas.double()
    assert off.abs().max() <= 2e-6
    torch.testing.assert_close(project(alpha, areas), alpha, atol=1e-5, rtol=0)  # what is feasible stays
    assert torch.equal(project(values[:1], areas[:1]), alpha[:1])  # other rows do not change its bits
    exact = projection_by_bisection(values[0].double().numpy(), float(areas[0]))
    np.testing.assert_allclose(alpha[0].numpy(), exact, atol=max(1e-5, 1e-6 * float(values.abs().max())))


@covers("core.quantiles.project_nested")
@examples(30)
@given(seed=seeds, kind=st.sampled_from(["uniform", "normal", "ties", "spike"]), pixels=st.sampled_from([2, 9, 200]))
def test_nested_projections_contain_each_other(seed, kind, pixels):
    values = filled((2, 3, pixels), kind, seed).double()
    areas = torch.tensor([0.8, 0.2, 0.5], dtype=torch.float64)
    alpha = project_nested(values, areas)
    assert (alpha[:, 1] <= alpha[:, 2]).all()
    assert (alpha[:, 2] <= alpha[:, 0]).all()
    torch.testing.assert_close(alpha.mean(-1), areas.expand(2, 3), atol=1e-6, rtol=0)


@covers("core.quantiles.AdamUpdate", "core.quantiles.ProjectedUpdate", "core.quantiles.SharedUpdate")
@examples(40)
@given(
    seed=seeds,
    kinds=st.lists(st.sampled_from(["uniform", "normal", "ties", "zero", "tiny", "spike"]), min_size=1, max_size=5),
    size=st.sampled_from(SIZES),
    way=st.sampled_from(["projected", "shared", "penalised"]),
    nested=st.booleans(),
    frozen=st.booleans(),
)
def test_masks_stay_in_the_box_whatever_the_gradients(seed, kinds, size, way, nested, frozen):
    areas = torch.tensor([0.7, 0.3])
    alpha = areas.view(1, 2, 1, 1, 1).expand(2, 2, 1, *size).clone()
    nested |= way == "shared"  # always are
    if way == "projected":
        update = ProjectedUpdate(alpha, areas, lr=0.3, steps=len(kinds), nested=nested)
    elif way == "shared":
        update = SharedUpdate(alpha, areas, lr=0.3, steps=len(kinds))
    else:
        update = AdamUpdate(alpha, areas, lr=1.0, beta=0.1, reduction="sum", nested=nested)
    held = torch.tensor([[True, False], [False, False]]) if frozen and not nested else None
    start = update.alpha.clone()
    for number, kind in enumerate(kinds):
        update.step(filled(alpha.shape, kind, seed + number), held)
        assert ((update.alpha >= 0) & (update.alpha <= 1)).all()
        if nested:
            assert (update.alpha[:, 1] <= update.alpha[:, 0] + 1e-6).all()
        if way != "penalised":
            torch.testing.assert_close(update.alpha.flatten(2).mean(-1), areas.expand(2, 2), atol=2e-6, rtol=0)
    assert held is None or torch.equal(update.alpha[0, 0], start[0, 0])


# What a caller passes


@covers("core.checks.check_inputs", "core.checks.only", "core.checks.layout_of", "core.checks.default_rows")
@examples(80)
@given(
    shape=st.lists(st.integers(0, 4), max_size=6),
    dtype=st.sampled_from(
        [*FLOATS, torch.uint8, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2]
    ),
    layout=st.sampled_from(LAYOUTS),
    wrapped=st.integers(0, 2),
    bad=st.sampled_from([None, math.nan, math.inf]),
)
@example([1, 1, 2, 2], torch.float8_e4m3fn, "contiguous", 0, None)
def test_images_are_copied_or_refused_in_a_sentence(shape, dtype, layout, wrapped, bad):
    values = filled(shape, "uniform", 1)
    if bad is not None and values.numel() and dtype in FLOATS:
        values.view(-1)[-1] = bad
    given = laid_out(values.to(dtype), layout)
    result = attempt(lambda: checks.check_inputs((given,) * wrapped if wrapped else given))
    usable = len(shape) == 4 and 0 not in shape and dtype in FLOATS and wrapped < 2 and bad is None
    assert isinstance(result, torch.Tensor) == usable
    if usable:
        assert torch.equal(result, given.detach())
        assert result.data_ptr() != given.data_ptr()
        assert not result.is_inference()
        assert not result.requires_grad
        assert checks.default_rows(result) >= 1
        assert result.is_contiguous(memory_format=checks.layout_of(result)) or layout in ("strided", "transposed")


@pytest.mark.parametrize("inputs", [None, 3, "image", [[1.0]], torch.rand(1, 1, 2, 2).to_sparse()])
def test_what_is_no_dense_tensor_is_no_batch(inputs):
    assert isinstance(attempt(lambda: checks.check_inputs(inputs)), InputError)


@covers("core.checks.all_finite")
@examples(100)
@given(
    values=st.lists(st.sampled_from([0.0, -0.0, 1.0, 1e-300, 3e38, -3e38, math.inf, -math.inf, math.nan]), max_size=9),
    dtype=st.sampled_from(FLOATS),
)
@example([3e38] * 9, torch.float32)  # finite, and their sum is not
@example([math.inf, -math.inf], torch.float32)
def test_finite_numbers_are_known(values, dtype):
    numbers = torch.tensor(values, dtype=torch.float64).to(dtype)
    assert checks.all_finite(numbers) == all(map(math.isfinite, numbers.tolist()))


anything = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(10**400) | st.just([])
)


@covers(
    *("core.checks.check_batch_size", "core.checks.check_count", "core.checks.check_size", "core.checks.is_number"),
    *("core.checks.is_count", "core.checks.check_between", "core.checks.kind_of"),
)
@examples(100)
@given(value=anything)
@example(10**400)  # is finite, and yet no float
@example(math.inf)
def test_small_arguments(value):
    try:
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(float(value))
    except OverflowError:
        number = False
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    assert checks.is_number(value) == number
    assert isinstance(attempt(lambda: checks.check_size("x", value)), InputError) == (not (number and value >= 0))
    assert isinstance(attempt(lambda: checks.check_count("x", value)), InputError) == (not whole)
    assert isinstance(attempt(lambda: checks.check_batch_size(value)), InputError) == (not (whole or value is None))
    assert checks.is_count(value) == whole
    assert checks.is_count(value, 3) == (whole and value >= 3)
    inside = number and 0 < value < 1
    assert isinstance(attempt(lambda: checks.check_between("x", value)), InputError) == (not inside)
    assert checks.kind_of(value) == type(value).__name__
    assert checks.kind_of(torch.zeros(1)) == "torch.float32"


@covers("core.checks.check_shares")
@examples(60)
@given(values=st.lists(st.floats(-0.5, 1.5) | anything, max_size=4) | anything, increasing=st.booleans())
@example([0.2, 0.5], True)
@example([0.5, 0.2], True)
def test_shares_lie_between_0_and_1(values, increasing):
    made = attempt(lambda: checks.check_shares("x", values, increasing=increasing))
    if isinstance(made, InputError):
        shares = isinstance(values, list) and values and all(checks.is_number(v) and 1e-12 < v < 1 for v in values)
        assert not shares or (increasing and sorted(set(values)) != values)
    else:
        assert made == tuple(values)
        assert all(0 < share < 1 for share in made)
        assert not increasing or sorted(set(made)) == list(made)


@covers("core.checks.check_choice", "core.checks.one_of")
@examples(60)
@given(value=anything | st.sampled_from("abc"), allowed=st.lists(st.text(max_size=3) | st.sampled_from("abc")))
def test_words_are_among_those_allowed_or_refused(value, allowed):
    for check in (checks.one_of(*allowed), lambda name, word: checks.check_choice(name, word, iter(allowed))):
        assert isinstance(attempt(lambda: check("word", value)), InputError) == (value not in allowed)  # noqa: B023


@covers("core.checks.check_finite")
@examples(20)
@given(bad=st.sampled_from([None, math.nan, math.inf, -math.inf]), output=st.sampled_from(["tensor", "dict", "tuple"]))
def test_outputs_are_finite_or_refused(bad, output):
    values = torch.tensor([[1.0, 2.0 if bad is None else bad]])
    made = {"tensor": values, "dict": {"logits": values}, "tuple": (torch.zeros(1), values)}[output]
    result = attempt(lambda: checks.check_finite(made))
    assert isinstance(result, ModelError) if bad is not None else result is made


@covers("core.scoring.check_target", "core.scoring.check_range", "core.scoring.class_indices")
@examples(80)
@given(
    target=anything
    | st.lists(st.integers(-2, 12) | st.floats() | st.none(), max_size=4)
    | st.lists(st.lists(st.integers(0, 3), max_size=2), max_size=3)
    | st.sampled_from(
        [torch.tensor([1, 2], dtype=d) for d in (torch.uint8, torch.int32, torch.bool, torch.complex128)]
    ),
    images=st.integers(1, 4),
    classes=st.sampled_from([2, 10, 1000]),
)
@example("tabby", 1, 10)
@example([[1], [1, 2]], 2, 10)
@example(2**70, 1, 10)
@example(torch.zeros(1, dtype=torch.complex128), 1, 10)
def test_targets_are_one_class_an_image_or_refused(target, images, classes):
    result = attempt(lambda: scoring.check_target(target, images, classes))
    if isinstance(result, torch.Tensor):
        assert result.dtype == torch.int64
        assert result.shape == (images,)
        assert ((result >= 0) & (result < classes)).all()
        given = torch.as_tensor(target).reshape(-1)
        assert torch.equal(result, given.long().expand(images))
    else:
        assert isinstance(result, InputError) or target is None


@covers("core.scoring.top_classes")
@examples(40)
@given(
    kind=st.sampled_from(["uniform", "ties", "constant"]),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 12)),
    count=st.integers(1, 15),
    seed=seeds,
)
def test_the_best_classes_come_in_order_and_of_equal_ones_the_first(kind, shape, count, seed):
    values = filled(shape, kind, seed)
    best, classes = scoring.top_classes(values, count)
    for row, found in zip(values, classes, strict=True):
        assert found.tolist() == sorted(range(len(row)), key=lambda i: (-row[i].item(), i))[:count]
    assert torch.equal(best, values.gather(1, classes))


@covers("core.scoring.logits_of", "core.scoring.evaluate", "core.scoring.check_score")
@examples(60)
@given(
    output=st.sampled_from(sorted(OUTPUTS)),
    rows=st.integers(1, 3),
    classes=st.sampled_from([1, 2, 10, 1000]),
    score=st.sampled_from(["softmax", "sigmoid", "logit", "loss", 3, None]) | st.just(lambda logits, i: logits[:, 0]),
    dtype=st.sampled_from(FLOATS),
    seed=seeds,
)
def test_scores_of_any_output(output, rows, classes, score, dtype, seed):
    logits = filled((rows, classes), "normal", seed, dtype)
    made = OUTPUTS[output](logits, logits)
    chosen = torch.arange(rows) % classes

    def phi():
        scoring.check_score(score, classes)
        return scoring.evaluate(made, None, chosen, score)

    result = attempt(phi)
    if (score not in scoring.SCORES and not callable(score)) or (score == "softmax" and classes == 1):
        assert isinstance(result, InputError)
    elif output in ("tuple", "dict", "none"):
        assert isinstance(result, ModelError)
    else:
        row = logits.double() if dtype == torch.float64 else logits.float()
        expected = {"softmax": row.softmax(1), "sigmoid": row.sigmoid()}.get(score, row)
        expected = expected[:, 0] if callable(score) else expected[torch.arange(rows), chosen]
        torch.testing.assert_close(result, expected)
        assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@covers("core.randomness.image_digest", "core.randomness.generator_for", "core.randomness.seed_of")
@examples(40)
@given(
    seed=st.integers(-(2**63), 2**64 - 1),
    layouts=st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)),
    size=st.sampled_from([*SIZES, (0, 3)]),
    dtype=st.sampled_from(FLOATS),
)
def test_digests_and_seeds_depend_on_values_alone(seed, layouts, size, dtype):
    image = filled((3, *size), "normal", 5, dtype)
    with strategies.undisturbed(None, image):
        first, second = (image_digest(laid_out(image[None], layout)[0]) for layout in layouts)
        assert first == second == image_digest(image)
        draws = [torch.rand(3, generator=generator_for(seed, first, "purpose")).tolist() for _ in range(2)]
    assert draws[0] == draws[1]
    assert draws[0] != torch.rand(3, generator=generator_for(seed, first, "other")).tolist()
    if image.numel():
        assert image_digest(image + 1) != first
    assert seed_of(None, seed) == seed
    if 0 <= seed < 2**63:
        assert seed_of(torch.Generator().manual_seed(seed)) == seed
    assert isinstance(attempt(lambda: seed_of(seed)), InputError)


OPTIONS = {
    "variant": st.sampled_from(["vm", "BM", "none", "wm", None, 3]),
    "preset": st.sampled_from(["paper", "fast", "fei", "preview", "slow", None]),
    "quantiles": st.none() | st.lists(st.floats(-0.5, 1.5), max_size=3) | st.just("0.5") | st.just((0.1, 0.5)),
    "steps": anything,
    "beta": anything,
    "lr": anything,
    "constraint": st.sampled_from([None, "penalty", "projection", "l1", "none", "l2"]),
    "reduction": st.sampled_from(["sum", "mean", "max", None]),
    "init": st.sampled_from([None, "zero", "area", "one", 0.5, 2, -1, True, 10**400]),
    "nesting": st.sampled_from(["independent", "cumulative", "shared", "nested", None]),
    "sites": st.sampled_from(["conv", "first:1/2", "first:2/1", "x", None, 3, [3], ["a"], []]),
    "residual": st.sampled_from(["branch", "post_add", "both", None]),
    "objective": st.sampled_from(["insertion", "deletion", "both", None]),
    "score": st.sampled_from(["softmax", "logit", "x", None]),
    "early_stop": anything,
    "seed": anything,
    "coarse": anything,
    "tries": anything,
}


@covers(
    "core.settings.make_settings", "core.settings.Settings", "core.settings.previewed", "core.settings.described",
    "core.sites.check_kind",
)  # fmt: skip
@examples(200)
@given(given=st.sets(st.sampled_from(sorted(OPTIONS)), max_size=3).flatmap(
    lambda names: st.fixed_dictionaries({name: OPTIONS[name] for name in names})
))  # fmt: skip
@example({"nesting": None})  # `--option nesting=none` came out as a TypeError
@example({"sites": [3]})
@example({"lr": 10**400})
@example({"quantiles": [1e-100]})  # 1 − q was 1, and nothing left to leave out
def test_options_make_settings_or_a_sentence(given):
    defaults = {
        "variant": "vm",
        "quantiles": None,
        "steps": None,
        "beta": 0.1,
        "lr": None,
        "constraint": None,
        "reduction": "sum",
        "init": None,
        "nesting": None,
        "sites": "activation",
        "residual": "branch",
        "objective": "insertion",
        "score": "softmax",
        "early_stop": None,
        "seed": 0,
        "coarse": None,
        "tries": None,
    }
    options = {"preset": "fast"} | defaults | given
    preset = options.pop("preset")
    settings = attempt(lambda: make_settings(preset, **options))
    if isinstance(settings, FEIError):
        assert isinstance(settings, InputError)
        return
    assert all(0 < area < 1 for area in settings.areas)
    assert settings.steps >= 1
    assert settings.one_mask == (settings.constraint in {"l1", "none"})
    assert attempt(lambda: fei.FEI(nn.Identity(), preset=preset, **options)).config["steps"] == settings.steps
    assert json.loads(json.dumps(described(settings)))["steps"] == settings.steps
    flagship = attempt(lambda: make_settings("fei", **options | {"variant": None}))
    if isinstance(flagship, Settings):
        quicker = previewed(flagship)
        assert quicker is None or quicker.steps * quicker.tried < flagship.steps * flagship.tried


@examples(60)
@given(word=st.text(max_size=8) | st.from_regex(r"(first|last):[0-9]{1,3}/[0-9]{1,3}", fullmatch=True))
def test_words_for_sites(word):
    share = re.fullmatch(r"(first|last):([0-9]+)/([0-9]+)", word)
    known = word in SITE_KINDS or (share is not None and 0 < int(share[2]) <= int(share[3]))
    assert isinstance(attempt(lambda: check_kind(word)), InputError) != known


@covers("core.sites.resolve_name")
@examples(60)
@given(
    name=st.text("ab.", min_size=1, max_size=4),
    known=st.lists(st.text("ab.", min_size=1, max_size=6), max_size=6, unique=True),
)
def test_a_name_is_resolved_to_what_it_is_or_uniquely_ends(name, known):
    endings = [candidate for candidate in known if candidate.endswith("." + name)]
    result = attempt(lambda: resolve_name(name, known))
    if name in known:
        assert result == name
    elif len(endings) == 1:
        assert result == endings[0]
    else:
        assert isinstance(result, InputError)


# What is found in networks


class Counted(CountingMode):
    """Keeps the key of each call."""

    def __init__(self):
        super().__init__()
        self.keys = []

    def make(self, key, func, args, kwargs):
        self.keys.append(key)
        return func(*args, **kwargs)


@covers(
    "core.dataflow.trace",
    "core.dataflow.tensors_in",
    "core.dataflow.function_name",
    "core.dataflow.uncompiled",
    "core.dataflow.Call",
    "core.sites.find_sites",
    "core.sites.unreachable",
    "core.sites.find_layer",
    "core.sites.several_calls",
    "core.dataflow.CountingMode",
    "core.pathway.visit_sites",
)
@examples(30)
@given(
    net=networks(output=None) | networks(),
    size=st.sampled_from(SIZES),
    count=st.integers(1, 2),
    select=st.sampled_from([*SITE_KINDS[:2], "nonlinearity", "first:1/2", "last:1/2", ["stem"], ["head", "body"]]),
    residual=st.sampled_from(RESIDUALS),
)
def test_sites_are_values_of_the_network(net, size, count, select, residual):
    if net.output is None:
        net.output = "dict"
    x = images_for(net, size, count)
    with strategies.undisturbed(net, x), uncompiled():
        flow, output = trace(net, x)
        plain = net(x.clone())
    pair = (list(tensors_in(getattr(made, "logits", made))) for made in (output, plain))
    assert all(torch.equal(traced, made) for traced, made in zip(*pair, strict=True))
    assert sum(call.function in CONVOLUTIONS for call in flow.calls) == 2
    assert unreachable(flow) == []
    assert flow.rows == count
    sites = find_sites(net, flow, select, residual)
    assert sites
    assert [site.index for site in sites] == sorted(site.index for site in sites)
    assert len({site.name for site in sites}) == len({site.key for site in sites}) == len(sites)
    seen = {}
    with strategies.undisturbed(net, x):
        visit_sites(net, sites, x, lambda i, value: seen.__setitem__(i, value.numel()))
    assert {i: site.units * count for i, site in enumerate(sites)} == seen
    assert find_layer(net, flow, "stem").key == ("conv2d", 0)
    assert str(several_calls("stem", count + 1)).endswith(f"as stem#0 to stem#{count}.")
    counted = Counted()
    with torch.no_grad(), uncompiled(), counted:
        net(x.clone())
    assert {site.key for site in sites} <= set(counted.keys)
    assert function_name(torch.nn.functional.relu) == "relu"


@covers(
    "core.folding.find_folding",
    "core.folding.Folding",
    "core.folding.first_pass",
    "core.folding.FirstPass",
    "core.folding.Weights",
    "core.folding.Ramp",
    "core.holding.Hold",
    "core.folding.can_fold",
    "core.folding.is_watched",
    "core.pathway.folding_that_holds",
    "core.pathway.Pathway",
    "core.checks.image_gradient",
    "core.checks.gradients",
)
@examples(30)
@given(net=networks(), size=st.sampled_from(SIZES), rule=st.sampled_from(sorted(RULES)), last=st.booleans())
def test_folded_passes_clip_like_plain_ones(net, size, rule, last):
    net = net.double()
    x, other = images_for(net, size, 1, 0, torch.float64), images_for(net, size, 1, 1, torch.float64)
    if last:
        x, other = (v.contiguous(memory_format=torch.channels_last) for v in (x, other))
    flow, _ = trace(net, x)
    sites = find_sites(net, flow)
    gradients = []
    with strategies.undisturbed(net, x, other):
        assert not is_watched(net)
        assert can_fold(x)
        found = find_folding(net, first_pass(net, x), sites)
        for folding in (Folding(), found, folding_that_holds(net, first_pass(net, x), sites)):
            pathway = Pathway(net, sites, get_rule(rule), folding)
            pathway.record(x)
            leaf = other.clone().requires_grad_()
            score = scoring.logits_of(pathway.run(leaf), 1)[:, 0].sum()
            gradients.append(checks.image_gradient(-score, leaf))
            assert torch.allclose(scoring.logits_of(pathway.score(other), 1)[:, 0].sum(), score)
    for gradient in gradients[1:]:  # rounding may move a unit that is just where it was, over its reference
        close = torch.isclose(gradient, gradients[0], rtol=1e-6, atol=1e-9)
        assert close.double().mean() >= 0.9


def test_gradients_are_not_overwritten_while_somebody_watches():
    """Whoever hooks a module may keep its gradients: they must be the same afterwards."""
    net = varied_cnn(inplace=False).double()
    kept = []
    handle = net.relu.register_full_backward_hook(lambda *args: kept.append((args[2][0], args[2][0].clone())))
    x = images_for(net, (6, 6), 1, 0, torch.float64)
    fei.FEI(net, steps=3, quantiles=[0.5]).attribute(x)
    handle.remove()
    assert len(kept) > 4
    assert all(torch.equal(now, then) for now, then in kept)
    assert not is_watched(net)


@covers("core.checks.check_mode", "core.checks.underlying", "core.checks.explained_failure", "core.checks.check_call")
@examples(30)
@given(net=networks(), training=st.sampled_from([None, "stem", "norms", ""]), wraps=st.integers(0, 2))
def test_modes_and_wrappers(net, training, wraps):
    inner = net
    for _ in range(wraps):
        net = nn.DataParallel(net).eval()
    if training is not None:
        inner.get_submodule(training).train()
    assert checks.underlying(net) is inner
    assert isinstance(attempt(lambda: checks.check_mode(inner)), InputError) == (training is not None)
    x = torch.rand(1, 3, 4, 5)
    for size in (None, 2, 0):
        made = attempt(lambda: checks.check_call(inner, (x,), size))  # noqa: B023
        assert isinstance(made, InputError) == (training is not None or size == 0)
        assert isinstance(made, InputError) or (torch.equal(made[0], x) and made[0] is not x and made[1] == size)

    def fails():
        with checks.explained_failure(torch.rand(2, 3, 4, 5)):
            raise RuntimeError("what\nwent wrong")

    assert str(attempt(fails)) == "The model failed on an input of shape (1, 3, 4, 5) (what); pass what it takes."


@covers("core.optimization.contrasted")
@examples(20)
@given(seed=seeds, size=st.integers(1, 6), strength=st.floats(0, 1), dtype=st.sampled_from(FLOATS))
def test_a_contrast_leaves_out_what_both_have(seed, size, strength, dtype):
    drawn = torch.rand(3, 2, 1, size, size, generator=torch.Generator().manual_seed(seed)).to(dtype)
    towards, against, common = drawn
    with strategies.undisturbed(None, towards, against):
        found = contrasted(towards, against, strength)
    assert torch.equal(found, towards - strength * against)
    assert torch.equal(contrasted(towards, against, 0.0), towards)
    assert torch.equal(contrasted(common, common, 1.0), torch.zeros_like(common))
